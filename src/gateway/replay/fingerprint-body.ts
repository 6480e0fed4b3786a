import { createHash } from "node:crypto";
import { type BodyForm, fingerprintSteps } from "../../decide/idempotency/body-fingerprint.ts";
import type { NewHasher } from "../../decide/idempotency/canonical-digest.ts";
import { JsonTopScan } from "../../decide/http/json-scan.ts";
import { asksForSameAnswer } from "../../decide/replay/plan-replay.ts";
import { nextTurn } from "../../kernel/next-turn.ts";

export const sha256: NewHasher = () => createHash("sha256");

/** Steps made in one turn of the event loop, each of a quarter of a MiB at most. */
const STEPS_PER_TURN = 4;

/** See `fingerprintSteps`. A large body is worked on over several turns of the event loop, so that streams go on beside it. */
export async function fingerprintBody(chunks: readonly Buffer[], form: BodyForm): Promise<string> {
  const steps = fingerprintSteps(chunks, form, sha256);
  for (let made = 1; ; made += 1) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (made % STEPS_PER_TURN === 0) await nextTurn();
  }
}

const SAME_ANSWER_KEYS = ["temperature", "seed"] as const;
const PIECE_BYTES = 1024 * 1024;

/** Whether a JSON body asks for the same answer each time. One that says so twice is taken to say nothing. */
export async function bodyAsksForSameAnswer(chunks: readonly Buffer[]): Promise<boolean> {
  const scan = new JsonTopScan(SAME_ANSWER_KEYS);
  let pushed = 0;
  for (const chunk of chunks) {
    scan.push(chunk);
    pushed += chunk.length;
    if (pushed < PIECE_BYTES) continue;
    pushed = 0;
    await nextTurn();
  }
  const result = scan.end();
  if (result.kind === "invalid") return false;
  return asksForSameAnswer(result.fields.get("temperature")?.text, result.fields.get("seed")?.text);
}
