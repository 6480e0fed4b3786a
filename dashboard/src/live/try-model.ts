import { BOARD_ACTIONS, type Try, type TryEvent } from "../../../src/contract/board.ts";
import { readRefusal, sayFailure } from "./api.ts";

const LINE_CHARS_MAX = 4 * 1024 * 1024;

/** Asks a model and hands over each piece of the answer as it comes. A failure is handed over as one, too. */
export async function tryModel(ask: Try, signal: AbortSignal, onEvent: (event: TryEvent) => void): Promise<void> {
  const fail = (code: string, message: string): void => onEvent({ kind: "error", code, message });
  try {
    const response = await fetch(BOARD_ACTIONS.try.path, {
      method: BOARD_ACTIONS.try.method,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(ask),
      credentials: "same-origin",
      cache: "no-store",
      signal,
    });
    if (!response.ok || response.body === null) {
      const refused = await readRefusal(response);
      if (refused.kind === "refused") return fail(refused.code, refused.message);
      if (refused.kind === "unreachable") return fail("UNREACHABLE", sayFailure(refused));
      return fail("EMPTY_ANSWER", "there was no answer");
    }
    await readLines(response.body, onEvent);
  } catch (error) {
    if (!signal.aborted) fail("CONNECTION_LOST", error instanceof Error ? error.message : String(error));
  }
}

async function readLines(body: ReadableStream<Uint8Array>, onEvent: (event: TryEvent) => void): Promise<void> {
  const reader = body
    .pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>)
    .getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    if (rest.length > LINE_CHARS_MAX) throw new Error("a line of the answer is too long");
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") onEvent(JSON.parse(line) as TryEvent);
  }
}
