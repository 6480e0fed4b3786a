import type { Clock, Timer } from "../kernel/clock.ts";
import type { Call } from "./call.ts";
import type { SimAction } from "./script.ts";
import { DONE_EVENT } from "./shapes/shape.ts";

/** What a script does to the events of a stream, before they become bytes. Undefined drops the event. */
export function bendEvent(action: SimAction, event: string, index: number): string | undefined {
  if (action.emptyStream === true) return undefined;
  if (action.onlyDone === true && event !== DONE_EVENT) return undefined;
  if (action.noDone === true && event === DONE_EVENT) return undefined;
  let text = event;
  if (action.noFinishReason === true) {
    if (text.startsWith("event: response.completed\n")) return undefined;
    text = text.replace(/"(finish_reason|stop_reason)":"[^"]*"/g, '"$1":null');
  }
  if (action.noSpaceAfterData === true) text = text.replace(/^(data|event): /gm, "$1:");
  if (action.comments !== undefined && action.comments > 0) {
    text = Array.from({ length: action.comments }, (_, line) => `: comment ${line}\n`).join("") + "\n" + text;
  }
  return withLineEnding(action, text, index);
}

const MIXED = ["\n", "\r\n", "\r"] as const;

function withLineEnding(action: SimAction, text: string, index: number): string {
  const ending = action.lineEnding;
  if (ending === undefined || ending === "\n") return text;
  // Mixed changes from event to event: inside one, a CR before an LF would read as a single line end.
  return text.replaceAll("\n", ending === "mixed" ? (MIXED[index % MIXED.length] ?? "\n") : ending);
}

/** Cuts after every CR that has an LF behind it, so that the pair comes in two reads. */
export const splitInsideCrLf = (text: string): string[] => text.split(/(?<=\r)(?=\n)/);

/** The stream of one call: events in, bytes out, with the script's faults between. */
export class EventStream {
  readonly #call: Call;
  readonly #action: SimAction;
  readonly #errorEvent: string;
  readonly #onBroken: () => void;
  readonly #plain: boolean;
  #ping: Timer | undefined;
  #count = 0;
  #over = false;

  /** `onBroken` is called when the script ended the stream before its answer did. */
  constructor(call: Call, errorEvent: string, onBroken: () => void) {
    this.#call = call;
    this.#action = call.action;
    this.#errorEvent = errorEvent;
    this.#onBroken = onBroken;
    this.#plain = Object.keys(call.action).length === 0;
  }

  startPings(clock: Clock): void {
    const everyMs = this.#action.pingEveryMs;
    if (everyMs === undefined) return;
    const beat = (): void => {
      if (this.#over || this.#call.gone) return;
      this.#call.write(":\n\n");
      this.#ping = clock.after(everyMs, beat);
    };
    this.#ping = clock.after(everyMs, beat);
  }

  readonly emit = (event: string): void => {
    if (this.#over) return;
    if (this.#plain) {
      this.#call.write(event);
      return;
    }
    const failAt = this.#action.errorEventFirst === true ? 0 : this.#action.errorEventAfter;
    if (failAt !== undefined && this.#count >= failAt) {
      this.fail(this.#errorEvent, this.#action.thenDone === true);
      this.#onBroken();
      return;
    }
    this.#count += 1;
    this.#write(bendEvent(this.#action, event, this.#count));
    if (this.#action.cutAfterEvents !== undefined && this.#count >= this.#action.cutAfterEvents) {
      this.#over = true;
      this.#call.markFailed();
      if (this.#action.cut === "chunkedEnd") this.#call.end();
      else this.#call.sink.cut(this.#action.cut ?? "fin");
      this.#onBroken();
    }
  };

  /** The engine's own failure: an error event, perhaps `[DONE]`, and a regular end. */
  fail(errorEvent: string, thenDone: boolean): void {
    if (this.#over) return;
    this.#over = true;
    this.#call.markFailed();
    this.#write(bendEvent(this.#action, errorEvent, this.#count));
    if (thenDone) this.#write(bendEvent(this.#action, DONE_EVENT, this.#count + 1));
    this.stop();
    this.#call.end();
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    if (this.#action.noFinishReason === true || this.#action.emptyStream === true || this.#action.onlyDone === true)
      this.#call.markFailed();
    this.stop();
    this.#call.end();
  }

  stop(): void {
    this.#ping?.cancel();
  }

  #write(text: string | undefined): void {
    if (text === undefined) return;
    if (this.#action.splitCrLf === true) for (const part of splitInsideCrLf(text)) this.#call.write(part);
    else this.#call.write(text);
  }
}
