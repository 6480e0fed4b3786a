import { dirname, join } from "node:path";
import { readFeedFrame, writeFeedFrame } from "../../contract/feed.ts";
import { endpointsOf, takeWhole, type FeedState } from "../../decide/feed/take-feed.ts";
import { readIfThere, writeDurably } from "../../kernel/durable-file.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { makeFolder } from "../../kernel/make-folder.ts";

/** The last good state, as it would be told. Only its owner can read it: it holds the keys of engines. */
export const feedPath = (dataDir: string): string => join(dataDir, "feed.json");

/** Null when there is none, or none that can be read: the control planes tell everything again. */
export async function loadFeed(path: string, log: Logger): Promise<FeedState | null> {
  let why: string;
  try {
    const text = await readIfThere(path);
    if (text === null) return null;
    const frame = readFeedFrame(text);
    if (frame.kind === "message" && frame.message.type === "state") {
      const outcome = takeWhole({ state: null, confirmed: false }, frame.message);
      if (outcome.kind === "taken") return outcome.state;
    }
    why = frame.kind === "invalid" ? frame.why : "not a whole state";
  } catch (error) {
    why = messageOf(error);
  }
  log.warn("feed.file_unreadable", { path, why });
  return null;
}

export async function saveFeed(path: string, state: FeedState): Promise<void> {
  await makeFolder(dirname(path));
  const models = [...state.models.values()];
  await writeDurably(
    path,
    writeFeedFrame({ type: "state", mark: state.mark, models, endpoints: [...endpointsOf(state)] }),
  );
}
