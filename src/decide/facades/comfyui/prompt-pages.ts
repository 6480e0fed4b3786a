import { isJsonObject, type JsonObject } from "../../http/token-usage.ts";
import { words } from "../../http/words.ts";
import { parseJsonObject } from "../../engines/readings.ts";

/** A file that a workflow wrote, by what `/view` wants to know of it. */
export interface OutputFile {
  readonly node: string;
  readonly filename: string;
  readonly subfolder: string;
  readonly type: string;
}

/** What `/history/{id}` says of one prompt. */
export type HistoryReading =
  /** Waiting, running and unknown look alike there. */
  | { readonly kind: "absent" }
  /** `outputs`: all that its nodes gave, as JSON; empty where they gave nothing. */
  | { readonly kind: "succeeded"; readonly files: readonly OutputFile[]; readonly outputs: string }
  /** `again`: another try may do better. */
  | { readonly kind: "failed"; readonly why: string; readonly again: boolean }
  /** Somebody stopped it. */
  | { readonly kind: "interrupted" };

/** What `/queue` says of one prompt. */
export type QueueReading =
  | { readonly kind: "running"; readonly promptId: string }
  /** `ahead`: prompts that go before it, the running one included. */
  | { readonly kind: "pending"; readonly promptId: string; readonly ahead: number }
  | { readonly kind: "absent" };

/** Of a workflow's files that are handed over. */
export const OUTPUT_FILES_MAX = 64;

/** Undefined: the page can't be read, which says nothing of the prompt. */
export function readHistory(body: string, promptId: string): HistoryReading | undefined {
  const page = parseJsonObject(body);
  if (page === undefined) return undefined;
  const entry = page[promptId];
  if (!isJsonObject(entry)) return { kind: "absent" };
  const status = isJsonObject(entry["status"]) ? entry["status"] : {};
  const outputs = isJsonObject(entry["outputs"]) ? entry["outputs"] : {};
  if (status["status_str"] === "error") return readFailure(status["messages"]);
  if (status["status_str"] !== "success" || status["completed"] === false) return undefined;
  const given = Object.keys(outputs).length > 0;
  return { kind: "succeeded", files: filesOf(outputs), outputs: given ? JSON.stringify(outputs) : "" };
}

function readFailure(messages: unknown): HistoryReading {
  const list: readonly unknown[] = Array.isArray(messages) ? messages : [];
  const find = (name: string): JsonObject | undefined => {
    const found = list.find((message) => Array.isArray(message) && message[0] === name);
    const detail: unknown = Array.isArray(found) ? found[1] : undefined;
    return isJsonObject(detail) ? detail : found === undefined ? undefined : {};
  };
  if (find("execution_interrupted") !== undefined) return { kind: "interrupted" };
  const error = find("execution_error") ?? {};
  const said = words(error["exception_message"], "");
  const node = words(error["node_type"], "");
  const type = words(error["exception_type"], "");
  // A full card may be empty in the next minute; what else a node throws it throws again.
  const again = /out ?of ?memory/i.test(`${type} ${said}`);
  return { kind: "failed", why: `${node === "" ? "a node" : `the node ${node}`} failed: ${said || "no words"}`, again };
}

/** In the order of the nodes. What a workflow keeps counts before its previews, which are there for looking at. */
function filesOf(outputs: JsonObject): readonly OutputFile[] {
  const files = Object.entries(outputs).flatMap(([node, given]) =>
    Object.values(isJsonObject(given) ? given : {}).flatMap((list) =>
      (Array.isArray(list) ? list : []).flatMap((item) => fileOf(node, item)),
    ),
  );
  const kept = files.filter(({ type }) => type === "output");
  return (kept.length > 0 ? kept : files).slice(0, OUTPUT_FILES_MAX);
}

function fileOf(node: string, item: unknown): readonly OutputFile[] {
  if (!isJsonObject(item)) return [];
  const { filename, subfolder = "", type = "output" } = item;
  if (typeof filename !== "string" || filename === "" || typeof subfolder !== "string" || typeof type !== "string")
    return [];
  return [{ node, filename, subfolder, type }];
}

export const viewPath = ({ filename, subfolder, type }: OutputFile): string =>
  `/view?${new URLSearchParams({ filename, subfolder, type }).toString()}`;

/**
 * By the prompt's own id, or by the client's, which is ours too: an older ComfyUI gives prompts ids of its own. Undefined: the page
 * can't be read.
 */
export function readQueue(body: string, promptId: string): QueueReading | undefined {
  const page = parseJsonObject(body);
  const running = page?.["queue_running"];
  const pending = page?.["queue_pending"];
  if (!Array.isArray(running) || !Array.isArray(pending)) return undefined;
  const now = running.find((item) => isOurs(item, promptId));
  if (now !== undefined) return { kind: "running", promptId: idOf(now) };
  const waits = pending.find((item) => isOurs(item, promptId));
  if (waits === undefined) return { kind: "absent" };
  // The list is a heap and in no order.
  const ahead = running.length + pending.filter((item) => numberOf(item) < numberOf(waits)).length;
  return { kind: "pending", promptId: idOf(waits), ahead };
}

function isOurs(item: unknown, promptId: string): boolean {
  if (!Array.isArray(item)) return false;
  const extra: unknown = item[3];
  return item[1] === promptId || (isJsonObject(extra) && extra["client_id"] === promptId);
}

const idOf = (item: unknown): string => (Array.isArray(item) && typeof item[1] === "string" ? item[1] : "");
const numberOf = (item: unknown): number => (Array.isArray(item) && typeof item[0] === "number" ? item[0] : 0);
