/** What a streamed chat answer says, piece by piece. All text is the engine's. */
export type ChatPiece =
  | { readonly kind: "text" | "thinking"; readonly text: string }
  | { readonly kind: "usage"; readonly prompt: number | null; readonly completion: number | null }
  | { readonly kind: "finish"; readonly why: string }
  | { readonly kind: "error"; readonly code: string; readonly message: string };

const LINE_CHARS_MAX = 1024 * 1024;
const MESSAGE_CHARS_MAX = 2_000;

/** Reads OpenAI's stream of chat chunks, and a whole answer in one piece as well. What it can't read it passes over. */
export class ChatStreamReader {
  #rest = "";

  take(text: string): ChatPiece[] {
    this.#rest += text;
    if (this.#rest.length > LINE_CHARS_MAX) {
      this.#rest = "";
      return [{ kind: "error", code: "UPSTREAM_PROTOCOL", message: "a line of the answer is too long" }];
    }
    const lines = this.#rest.split(/\r?\n/);
    this.#rest = lines.pop() ?? "";
    return lines.flatMap(readLine);
  }

  /** What was left without an end of line. */
  end(): ChatPiece[] {
    const last = this.#rest;
    this.#rest = "";
    return last === "" ? [] : last.startsWith("{") ? readJson(last) : readLine(last);
  }
}

function readLine(line: string): ChatPiece[] {
  if (!line.startsWith("data:")) return [];
  const data = line.slice("data:".length).trim();
  return data === "" || data === "[DONE]" ? [] : readJson(data);
}

function readJson(text: string): ChatPiece[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return [];
  }
  const chunk = asObject(value);
  const pieces: ChatPiece[] = [];
  const error = asObject(chunk["error"]);
  if (chunk["error"] !== undefined && chunk["error"] !== null) {
    const message = asText(error["message"]) ?? "the engine told of an error";
    pieces.push({
      kind: "error",
      code: asText(error["code"]) ?? "ENGINE_ERROR",
      message: message.slice(0, MESSAGE_CHARS_MAX),
    });
  }
  const choices = Array.isArray(chunk["choices"]) ? chunk["choices"] : [];
  const choice = asObject(choices[0]);
  const said = asObject(choice["delta"] ?? choice["message"]);
  const thinking = asText(said["reasoning_content"]) ?? asText(said["reasoning"]);
  if (thinking !== null && thinking !== "") pieces.push({ kind: "thinking", text: thinking });
  const content = asText(said["content"]) ?? asText(choice["text"]);
  if (content !== null && content !== "") pieces.push({ kind: "text", text: content });
  const finish = asText(choice["finish_reason"]);
  if (finish !== null) pieces.push({ kind: "finish", why: finish });
  if (typeof chunk["usage"] === "object" && chunk["usage"] !== null) {
    const usage = asObject(chunk["usage"]);
    pieces.push({
      kind: "usage",
      prompt: asCount(usage["prompt_tokens"]),
      completion: asCount(usage["completion_tokens"]),
    });
  }
  return pieces;
}

const asObject = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
const asText = (value: unknown): string | null => (typeof value === "string" ? value : null);
const asCount = (value: unknown): number | null =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;
