import {
  FEED_FRAME_BYTES_MAX,
  FEED_PATH,
  readFeedFrame,
  writeFeedFrame,
  type FeedMessage,
  type GatewayMessage,
} from "../../contract/feed.ts";
import { DialledLink, type DialPorts, type LinkLanguage } from "../../link/dialled-link.ts";

const LANGUAGE: LinkLanguage<FeedMessage, GatewayMessage> = {
  path: FEED_PATH,
  frameBytesMax: FEED_FRAME_BYTES_MAX,
  read: readFeedFrame,
  write: writeFeedFrame,
};

/** `leads`: as far as this one has said. */
export type FeedStanding = "away" | "standby" | "leads";

export interface FeedLinkPorts extends Omit<DialPorts<FeedMessage, GatewayMessage>, "onMessage" | "onEnd"> {
  readonly onWelcome: (link: FeedLink, message: Extract<FeedMessage, { type: "welcome" }>) => void;
  readonly onReadings: (message: Extract<FeedMessage, { type: "readings" }>) => void;
  readonly onState: (link: FeedLink, message: Extract<FeedMessage, { type: "state" | "change" }>) => void;
  readonly onBoard: (link: FeedLink, message: BoardRequest) => void;
  readonly onEnd: (link: FeedLink) => void;
}

/** What is wanted for the board. */
export type BoardRequest = Extract<FeedMessage, { type: "boardWatch" | "ask" | "askOff" }>;

const REPORT_MS_MIN = 200;
const REPORT_MS_MAX = 60_000;

/** A gateway's connection to one control plane. */
export class FeedLink {
  readonly #link: DialledLink<FeedMessage, GatewayMessage>;
  #standing: FeedStanding = "away";
  /** How often this one wants to be told; null while there is no connection. */
  reportMs: number | null = null;

  constructor(url: string, ports: FeedLinkPorts) {
    this.#link = new DialledLink(url, LANGUAGE, {
      ...ports,
      onMessage: (message) => this.#take(message, ports),
      onEnd: () => {
        this.#standing = "away";
        this.reportMs = null;
        ports.onEnd(this);
      },
    });
  }

  get url(): string {
    return this.#link.url;
  }

  get standing(): FeedStanding {
    return this.#standing;
  }

  /** Why there is no connection; "" while there is one. */
  get lastEnd(): string {
    return this.#link.lastEnd;
  }

  /** False when it can't be said now; nothing is kept for later. */
  send(message: GatewayMessage): boolean {
    return this.#link.send(message);
  }

  /** Ends by abort. */
  run(signal: AbortSignal): Promise<void> {
    return this.#link.run(signal);
  }

  #take(message: FeedMessage, ports: FeedLinkPorts): void {
    switch (message.type) {
      case "welcome":
        this.#link.welcome();
        this.#standing = "leads";
        this.reportMs = Math.min(REPORT_MS_MAX, Math.max(REPORT_MS_MIN, message.reportMs));
        ports.onWelcome(this, message);
        break;
      case "standby":
        this.#standing = "standby";
        break;
      case "state":
      case "change":
        this.#standing = "leads";
        ports.onState(this, message);
        break;
      case "readings":
        ports.onReadings(message);
        break;
      case "boardWatch":
      case "ask":
      case "askOff":
        ports.onBoard(this, message);
        break;
      default: // The link itself answers pings.
    }
  }
}
