import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { isSameLead } from "../../contract/agent-link.ts";
import type { FeedMark, FeedMessage, FeedReading, GatewayMessage, GatewayReport } from "../../contract/feed.ts";
import type { FeedSettings } from "../../contract/gateway-config.ts";
import {
  isOfLeader,
  takeChange,
  takeWhole,
  type FeedHeld,
  type FeedRefusal,
  type FeedState,
} from "../../decide/feed/take-feed.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { type LinkTls, readLinkTls } from "../../link/link-tls.ts";
import type { Random } from "../../kernel/random.ts";
import { feedPath, loadFeed, saveFeed } from "./feed-file.ts";
import { type BoardRequest, FeedLink, type FeedStanding } from "./feed-link.ts";

/**
 * What the control planes tell this gateway, and what it tells them.
 *
 * Invariants:
 *   F1. Silence is no news: a connection that ended and a standby change nothing of what is served (statements C13, I8).
 *   F2. What was taken is soon on the disk, whole, the newest last; a gateway starts from it with every control plane away.
 *   F3. One report holds all: it is made when it is sent, and kept for nobody.
 */
const REPORT_MS = 1_000;
/** What is wanted within a moment is told together. */
const GATHER_MS = 20;

export interface FeedPorts {
  readonly settings: FeedSettings;
  readonly dataDir: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly version: string;
  readonly onRefused: (why: FeedRefusal) => void;
}

/** What the gateway does with it. */
export interface FeedUser {
  onState(state: FeedState): void;
  /** What agents read of their cards. */
  onReadings(nodes: readonly FeedReading[]): void;
  report(now: MonoMs): Pick<GatewayReport, "demand" | "used" | "jobs">;
  readonly board: FeedBoard;
}

/** Who tells a control plane what its board shows. */
export interface FeedBoard {
  take(peer: BoardPeer, message: BoardRequest): void;
  /** The connection has ended, and with it all that was asked on it. */
  leave(peer: BoardPeer): void;
}

export interface BoardPeer {
  /** False when it can't be said now. */
  send(message: GatewayMessage): boolean;
}

/** For `/health` and metrics. */
export interface FeedView {
  readonly state: "following" | "on_its_own" | "nothing_known";
  readonly mark: FeedMark | null;
  /** Since a control plane last told something that was taken; null when none has yet. */
  readonly ageMs: number | null;
  readonly links: readonly { readonly url: string; readonly standing: FeedStanding; readonly why: string | null }[];
}

export class FeedClient {
  readonly #ports: FeedPorts;
  readonly #links: readonly FeedLink[];
  readonly #path: string;
  readonly #gatewayId = randomBytes(12).toString("hex");
  readonly #startedAt: MonoMs;
  readonly #stop = new AbortController();
  #user: FeedUser | null = null;
  #held: FeedHeld;
  #toldAt: MonoMs | null = null;
  #seq = 0;
  #reportSoon: (() => void) | null = null;
  #lastRefusal = "";
  /** Why the last word on a link was not taken; a link whose last word was is not in it. */
  readonly #refused = new Map<FeedLink, string>();
  #saving: Promise<void> | null = null;
  #saved: FeedState | null;
  #runs: readonly Promise<void>[] = [];

  /** Throws CONFIG_INVALID when a file of a certificate can't be read. */
  static async open(ports: FeedPorts): Promise<FeedClient> {
    const tls = (): Promise<LinkTls> => readLinkTls(ports.settings.tls, "gateway");
    await tls();
    return new FeedClient(ports, await loadFeed(feedPath(ports.dataDir), ports.log), tls);
  }

  private constructor(ports: FeedPorts, state: FeedState | null, tls: () => Promise<LinkTls>) {
    const { settings, clock, random, log } = ports;
    this.#ports = ports;
    this.#path = feedPath(ports.dataDir);
    this.#startedAt = clock.mono();
    this.#held = { state, confirmed: false };
    this.#saved = state;
    let toldNoToken = false;
    const bearer = (): FeedSettings["token"] => {
      if (settings.token === null && !toldNoToken)
        log.error("feed.no_token", { message: "gateway.token_env names no set variable" });
      toldNoToken = true;
      return settings.token;
    };
    this.#links = settings.controls.map(
      (url) =>
        new FeedLink(url, {
          clock,
          random,
          log,
          tls,
          bearer,
          hello: () => this.#hello(),
          onWelcome: (link, message) => this.#welcome(link, message),
          onReadings: ({ mark, nodes }) => {
            if (isOfLeader(this.#held, mark)) this.#user?.onReadings(nodes);
          },
          onState: (link, message) => this.#take(link, message),
          onBoard: (peer, message) => this.#user?.board.take(peer, message),
          onEnd: (peer) => this.#user?.board.leave(peer),
        }),
    );
  }

  /** Null until something was told, now or in an earlier run. */
  get state(): FeedState | null {
    return this.#held.state;
  }

  run(user: FeedUser): void {
    this.#user = user;
    const { signal } = this.#stop;
    this.#runs = [...this.#links.map((link) => link.run(signal)), this.#reports(signal)];
  }

  /** Tells every control plane now rather than at the next turn. */
  reportSoon(): void {
    this.#reportSoon?.();
  }

  view(now: MonoMs): FeedView {
    const { state } = this.#held;
    const following = this.#links.some((link) => link.standing === "leads" && !this.#refused.has(link));
    return {
      state: following ? "following" : state === null ? "nothing_known" : "on_its_own",
      mark: state?.mark ?? null,
      ageMs: this.#toldAt === null ? null : now - this.#toldAt,
      links: this.#links.map((link) => {
        const { url, standing, lastEnd } = link;
        return { url, standing, why: this.#refused.get(link) ?? (lastEnd === "" ? null : lastEnd) };
      }),
    };
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error("the gateway stops"));
    await Promise.allSettled(this.#runs);
    await this.#saving;
  }

  #hello(): GatewayMessage {
    const { settings, version } = this.#ports;
    const name = settings.name ?? hostname().slice(0, 128);
    return {
      type: "hello",
      gatewayId: this.#gatewayId,
      name,
      version,
      have: this.#held.state?.mark ?? null,
      board: true,
    };
  }

  #welcome(link: FeedLink, { clusterId }: Extract<FeedMessage, { type: "welcome" }>): void {
    const { state } = this.#held;
    this.#ports.log.info("link.up", { control: link.url, cluster: clusterId });
    if (state?.mark.clusterId === clusterId) this.#held = { state, confirmed: true };
    this.reportSoon();
  }

  #take(link: FeedLink, message: Extract<FeedMessage, { type: "state" | "change" }>): void {
    const outcome = message.type === "state" ? takeWhole(this.#held, message) : takeChange(this.#held, message);
    switch (outcome.kind) {
      case "gap":
        link.send({ type: "resync" });
        return;
      case "refused":
        this.#refuse(link, outcome.why, message.mark);
        return;
      case "known":
      case "taken":
        this.#refused.delete(link);
        this.#toldAt = this.#ports.clock.mono();
        if (outcome.kind === "taken") this.#adopt(outcome.state);
    }
  }

  #adopt(state: FeedState): void {
    const before = this.#held.state;
    this.#held = { state, confirmed: true };
    const { clusterId, epoch, holder, version } = state.mark;
    if (before === null || !isSameLead(before.mark, state.mark))
      this.#ports.log.info("feed.leader", { cluster: clusterId, epoch, holder, version });
    this.#user?.onState(state);
    this.#saving ??= this.#save();
  }

  /** Said once for each that goes on: an old leader may speak for long. */
  #refuse(link: FeedLink, why: FeedRefusal, mark: FeedMark): void {
    this.#ports.onRefused(why);
    const known = this.#held.state?.mark;
    const goesBy = `epoch ${known?.epoch ?? "-"} of cluster ${known?.clusterId ?? "-"}`;
    const words = `it leads cluster ${mark.clusterId} under epoch ${mark.epoch} and is not heard (${why}): this gateway goes by ${goesBy}`;
    this.#refused.set(link, words);
    const said = `${link.url} ${why} ${mark.epoch} ${mark.holder}`;
    if (said === this.#lastRefusal) return;
    this.#lastRefusal = said;
    const { clusterId: cluster, epoch, holder } = mark;
    this.#ports.log.warn("feed.refused", { control: link.url, why, cluster, epoch, holder });
  }

  /** One write at a time, and again for what came meanwhile. */
  async #save(): Promise<void> {
    const { clock, log } = this.#ports;
    while (this.#held.state !== null && this.#saved !== this.#held.state) {
      const { state } = this.#held;
      try {
        await saveFeed(this.#path, state);
        this.#saved = state;
      } catch (error) {
        log.error("feed.not_saved", { path: this.#path, message: messageOf(error) });
        // The disk may be full for long; the next state, at the latest in a minute, tries again.
        break;
      }
      await clock.sleep(REPORT_MS, this.#stop.signal).catch(() => {});
    }
    this.#saving = null;
  }

  async #reports(signal: AbortSignal): Promise<void> {
    const { clock } = this.#ports;
    while (!signal.aborted) {
      const wanted = new AbortController();
      this.#reportSoon = () => wanted.abort();
      const asked = this.#links.map(({ reportMs }) => reportMs).filter((ms) => ms !== null);
      const everyMs = asked.length === 0 ? REPORT_MS : Math.min(...asked);
      await clock.sleep(everyMs, AbortSignal.any([signal, wanted.signal])).catch(() => {});
      if (wanted.signal.aborted) await clock.sleep(GATHER_MS, signal).catch(() => {});
      if (!signal.aborted) this.#report();
    }
  }

  #report(): void {
    const user = this.#user;
    const open = this.#links.filter(({ reportMs }) => reportMs !== null);
    if (user === null || open.length === 0) return;
    const now = this.#ports.clock.mono();
    this.#seq += 1;
    const message: GatewayMessage = {
      type: "report",
      seq: this.#seq,
      upForMs: now - this.#startedAt,
      have: this.#held.state?.mark ?? null,
      ...user.report(now),
    };
    for (const link of open) link.send(message);
  }
}
