import type { FeedMessage } from "../../contract/feed.ts";

/** A gateway's connection, as the board uses it. */
export interface GatewayPeer {
  readonly id: string;
  readonly name: string;
  /** It is of a version that knows of boards. */
  readonly tellsBoards: boolean;
  /** False when it can't be said now. */
  say(message: FeedMessage): boolean;
}
