import { BOARD_ROUTES, type Change, type Snapshot } from "../../../src/contract/board.ts";
import { BoardState } from "../logic/board-state.ts";
import { judgeLink, type LinkState, reconnectMs } from "../logic/link-state.ts";
import type { PlotSeries } from "../logic/plot-series.ts";
import { EventReader, type ServerEvent } from "../logic/sse.ts";
import { browserClock as clock } from "./browser-clock.ts";

/** A stream that tells nothing for so long is dropped and opened again: a half-open connection never says that it has ended. */
const SILENT_MS_TO_REOPEN = 12_000;
const CONNECT_MS_MAX = 10_000;

/**
 * What the server tells, and how old it is. One connection at a time; after a loss it asks for what came since the last message that it
 * took.
 */
export class LiveBoard {
  state: BoardState | null = null;
  /** By upstream, as far as anybody has looked at it. */
  readonly plots = new Map<string, PlotSeries>();
  /** For measuring what an update costs: how long the last ones took to be laid over what was there, in ms. */
  readonly applyMs: number[] = [];
  readonly #listeners = new Set<() => void>();
  readonly #onEnd: () => void;
  #lastId: string | null = null;
  #lastNews: number | null = null;
  #isOpen = false;
  #tries = 0;
  #stopped = false;
  #attempt: AbortController | null = null;
  #pause: (() => void) | null = null;
  readonly #ticks: () => void;

  /** `onEnd` is told when the session has ended: nothing is tried again then. */
  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
    this.#ticks = clock.every(1_000, () => this.#tick());
    void this.#connect();
  }

  get link(): LinkState {
    return judgeLink(this.#lastNews, clock.mono(), this.#isOpen);
  }

  /** By the server's clock, as far as it can be known from here. */
  get now(): number {
    if (this.state === null || this.#lastNews === null) return clock.wall();
    return this.state.at + (clock.mono() - this.#lastNews);
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Without waiting for the pause between two tries. */
  retryNow(): void {
    this.#tries = 0;
    if (this.#pause !== null) {
      this.#pause();
      this.#pause = null;
      void this.#connect();
    } else if (!this.#isOpen) this.#attempt?.abort();
  }

  stop(): void {
    this.#stopped = true;
    this.#ticks();
    this.#pause?.();
    this.#attempt?.abort();
    this.#listeners.clear();
  }

  async #connect(): Promise<void> {
    if (this.#stopped) return;
    this.#pause = null;
    const attempt = new AbortController();
    this.#attempt = attempt;
    const giveUp = clock.after(CONNECT_MS_MAX, () => attempt.abort());
    try {
      const response = await fetch(BOARD_ROUTES.stream, {
        headers: { accept: "text/event-stream", ...(this.#lastId === null ? {} : { "last-event-id": this.#lastId }) },
        credentials: "same-origin",
        cache: "no-store",
        signal: attempt.signal,
      });
      giveUp();
      if (response.status === 401) return this.#end();
      if (response.ok && response.body !== null) {
        this.#isOpen = true;
        await this.#read(response.body);
      }
    } catch {
      // Whatever it was, the page says how old it is, and another try is made.
    }
    giveUp();
    this.#isOpen = false;
    if (this.#stopped) return;
    this.#notify();
    this.#pause = clock.after(reconnectMs(this.#tries, clock.chance()), () => void this.#connect());
    this.#tries += 1;
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body
      .pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>)
      .getReader();
    const events = new EventReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.#stopped) return;
      this.#lastNews = clock.mono();
      for (const event of events.take(value)) this.#take(event);
    }
  }

  #take({ id, event, data }: ServerEvent): void {
    const begun = clock.mono();
    if (event === "snapshot") {
      this.state = new BoardState(JSON.parse(data) as Snapshot);
      this.#tries = 0;
    } else if (event === "change") {
      this.state?.apply(JSON.parse(data) as Change);
      this.#tries = 0;
    } else if (event === "end") {
      const { code } = JSON.parse(data) as { code: string };
      if (code === "UNAUTHORIZED" || code === "FORBIDDEN") return this.#end();
      return;
    }
    if (id !== null) this.#lastId = id;
    const { state } = this;
    if (state !== null)
      for (const [upstream, series] of this.plots) {
        const row = state.tables.upstreams.get(upstream);
        if (row !== undefined) series.takeRow(state.at, row);
      }
    this.applyMs.push(clock.mono() - begun);
    if (this.applyMs.length > 120) this.applyMs.shift();
    this.#notify();
  }

  #tick(): void {
    const silent = this.#lastNews === null ? 0 : clock.mono() - this.#lastNews;
    if (this.#isOpen && silent > SILENT_MS_TO_REOPEN) this.#attempt?.abort();
    if (this.link.kind !== "live") this.#notify();
  }

  #end(): void {
    this.stop();
    this.#onEnd();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
