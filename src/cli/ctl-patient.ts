import { hasErrorCode } from "../kernel/errors.ts";
import { escapeControls } from "../kernel/log.ts";
import type { CliIo } from "./cli-io.ts";
import type { CtlAnswer, CtlClient } from "./ctl-client.ts";

/** As long as a control plane may be away while somebody watches: longer than its restart, or a change of leaders. */
export const AWAY_MS_MAX = 60_000;
/**
 * The key of a control plane that was started again is another one, and its file is written some moments after it listens. A key that
 * is refused without any other sign of a restart is more likely one that was revoked.
 */
const OTHER_KEY_MS_MAX = 15_000;
const AGAIN_MS = 500;
/** What stands before a control plane says this of one that is away, and one that starts of its store. */
const AWAY_STATUSES: readonly number[] = [502, 503, 504];

/**
 * A client for whoever watches: what it reads is asked for again while the control plane is away, for a bounded time, and that is said
 * on stderr. Only what was reached before can be away.
 */
export function patientClient(client: CtlClient, io: CliIo, wasReached: boolean): CtlClient {
  let [now, reached] = [client, wasReached];
  const request: CtlClient["request"] = async (method, path, body, headers) => {
    let answer = await now.request(method, path, body, headers);
    if (method !== "GET" || !reached) {
      reached ||= answer.kind === "done";
      return answer;
    }
    const from = io.clock.mono();
    let isTold = false;
    let limitMs = 0;
    while (isAway(answer)) {
      limitMs = Math.max(limitMs, isRefusedKey(answer) ? OTHER_KEY_MS_MAX : AWAY_MS_MAX);
      const awayMs = io.clock.mono() - from;
      if (awayMs >= limitMs) return answer;
      if (!isTold) io.err(`yardmaster: ${escapeControls(whyAway(answer))}: trying again for ${limitMs / 1_000} s\n`);
      isTold = true;
      await io.clock.sleep(Math.min(AGAIN_MS, limitMs - awayMs), io.signal);
      now = await reopened(now);
      answer = await now.request(method, path, body, headers);
    }
    if (isTold && answer.kind === "done")
      io.err(`yardmaster: it answers again, after ${Math.round((io.clock.mono() - from) / 1_000)} s\n`);
    return answer;
  };
  return { base: client.base, request, reopen: () => client.reopen() };
}

const isRefusedKey = (answer: CtlAnswer): boolean => answer.kind === "refused" && answer.status === 401;
const isAway = (answer: CtlAnswer): boolean =>
  answer.kind === "unreachable" ||
  isRefusedKey(answer) ||
  (answer.kind === "refused" && AWAY_STATUSES.includes(answer.status));

const whyAway = (answer: CtlAnswer): string =>
  answer.kind === "unreachable"
    ? `the control plane is not reached at ${answer.message}`
    : answer.kind === "refused"
      ? `the control plane refuses (${answer.status} ${answer.code})`
      : "";

/** With the address and key that are in the data folder by now. */
async function reopened(client: CtlClient): Promise<CtlClient> {
  try {
    return await client.reopen();
  } catch (error) {
    // A file that is just being written is read again next time.
    if (hasErrorCode(error, "USAGE")) return client;
    throw error;
  }
}
