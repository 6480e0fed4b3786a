import type { IncomingMessage, ServerResponse } from "node:http";
import type { Json } from "./json.ts";
import type { Ledger, LedgerCounts } from "./ledger.ts";
import { parseJson, readBody } from "./read-body.ts";
import { parseRules, type Script, type SimRule } from "./script.ts";

export interface AdminParts {
  readonly ledger: Ledger;
  readonly script: Script;
  addRule(rule: SimRule): void;
  /** Ends every scripted state too: frozen, dead, shutting down, loading. */
  clearScript(): void;
}

const WAIT_MS_DEFAULT = 10_000;
const WAIT_MS_MAX = 600_000;
const AT_LEAST: readonly (keyof LedgerCounts)[] = [
  "opened",
  "headSent",
  "firstByte",
  "finished",
  "aborted",
  "failed",
  "concurrentPeak",
  "inSlotPeak",
  "queuedPeak",
];
const EXACT: readonly (keyof LedgerCounts)[] = ["concurrentNow", "inSlotNow", "queuedNow"];

function reply(response: ServerResponse, status: number, value: unknown): void {
  const text = JSON.stringify(value);
  response.writeHead(status, ["content-type", "application/json", "content-length", String(Buffer.byteLength(text))]);
  response.end(text);
}

/** The engine's own control surface, below `/sim/`. It needs no key and is no part of either dialect. */
export async function serveAdmin(parts: AdminParts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? "/", "http://sim");
  const body = await readBody(request);
  if (body.kind !== "read") return;
  switch (`${request.method ?? ""} ${url.pathname}`) {
    case "GET /sim/ledger":
      reply(response, 200, parts.ledger.read());
      return;
    case "DELETE /sim/ledger":
      parts.ledger.reset();
      reply(response, 200, { reset: true });
      return;
    case "GET /sim/ledger/wait":
      await wait(parts.ledger, url.searchParams, response);
      return;
    case "GET /sim/script":
      reply(response, 200, { rules: parts.script.rules() });
      return;
    case "POST /sim/script":
      addRules(parts, parseJson(body.bytes.toString("utf8")), response);
      return;
    case "DELETE /sim/script":
      parts.clearScript();
      reply(response, 200, { rules: [] });
      return;
    default:
      reply(response, 404, { error: "no such control path" });
  }
}

function addRules(parts: AdminParts, raw: Json | undefined, response: ServerResponse): void {
  const rules = parseRules(raw);
  if (rules.kind === "wrong") {
    reply(response, 400, { error: rules.message });
    return;
  }
  for (const rule of rules.value) parts.addRule(rule);
  reply(response, 200, { rules: parts.script.rules() });
}

async function wait(ledger: Ledger, query: URLSearchParams, response: ServerResponse): Promise<void> {
  const wanted: [keyof LedgerCounts, number, boolean][] = [];
  let timeoutMs = WAIT_MS_DEFAULT;
  for (const [name, text] of query) {
    const value = Number(text);
    if (name === "timeout_ms") timeoutMs = Math.min(WAIT_MS_MAX, value);
    else if (AT_LEAST.includes(name as keyof LedgerCounts)) wanted.push([name as keyof LedgerCounts, value, false]);
    else if (EXACT.includes(name as keyof LedgerCounts)) wanted.push([name as keyof LedgerCounts, value, true]);
    else return reply(response, 400, { error: `unknown figure: ${name}` });
    if (!Number.isFinite(value)) return reply(response, 400, { error: `${name} must be a number` });
  }
  const met = await ledger.waitFor(
    (now) => wanted.every(([name, value, exact]) => (exact ? now[name] === value : now[name] >= value)),
    timeoutMs,
  );
  if (!response.destroyed) reply(response, met ? 200 : 408, { met, ...ledger.view() });
}
