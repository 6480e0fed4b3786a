import type { StoredEvent } from "../../../src/contract/control-event.ts";
import { matches } from "./lists.ts";
import type { Tone } from "./tones.ts";

const BAD = /failed|lost|parked|sick|vanished|silent|behind|refused|damaged|unacknowledged|unreachable|stopped$/i;
const WARN = /unplaced|backedoff|displaced|off$|held|restored|unknown|removed|revoked|draining/i;
const GOOD = /ready|recovered|released|done|adopted|applied/i;
/** What ends as it was asked to is no trouble. */
const CALM: ReadonlySet<string> = new Set(["replicaStopped", "leaderStoodDown"]);

export function toneOfEvent(kind: string): Tone {
  if (CALM.has(kind)) return "off";
  if (BAD.test(kind)) return "bad";
  if (WARN.test(kind)) return "warn";
  return GOOD.test(kind) ? "good" : "info";
}

export const kindsOf = (events: readonly StoredEvent[]): readonly string[] =>
  [...new Set(events.map(({ kind }) => kind))].toSorted();

/** The live ones and those that were fetched, each once, the newest first. */
export function listEvents(
  live: readonly StoredEvent[],
  older: readonly StoredEvent[],
  { search, kind }: { readonly search: string; readonly kind: string },
): readonly StoredEvent[] {
  const bySeq = new Map([...older, ...live].map((event) => [event.seq, event]));
  return [...bySeq.values()]
    .filter((event) => kind === "" || event.kind === kind)
    .filter(({ kind: is, model, replicaId, nodeId, by, why }) =>
      matches(search, [is, model, replicaId, nodeId, by, why]),
    )
    .toSorted((a, b) => b.seq - a.seq);
}
