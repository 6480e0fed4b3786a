import type { ProviderPrice } from "../../../contract/provider-settings.ts";
import { isJsonObject, type JsonObject } from "../../http/token-usage.ts";
import { type CloudPlan } from "./cloud-call.ts";
import { quote } from "./price-quote.ts";
import type { PriceQuote } from "./provider-work.ts";

type Unfit = Extract<CloudPlan, { kind: "unfit" }>;

/** What a video cloud makes. */
export interface VideoLengths {
  /** Those of a job that leaves them open. */
  readonly usual: number;
  readonly fits: (seconds: number) => boolean;
  /** `Kling makes videos of 5 or 10 seconds` */
  readonly words: string;
}

export type VideoWork =
  | {
      readonly kind: "ok";
      readonly asked: JsonObject;
      readonly prompt: string;
      readonly seconds: number;
      readonly quote: PriceQuote;
    }
  | Unfit;

/**
 * What a video cloud is asked for, and what that costs. A workflow's graph means nothing there, so a job that may go to one says beside
 * the graph, in `overflow`, what it wants in words; a body whose `prompt` is a text says it itself.
 */
export function readVideoWork(body: unknown, price: ProviderPrice | null, lengths: VideoLengths): VideoWork {
  const work = readAsked(body);
  if (work.kind === "unfit") return work;
  const { asked } = work;
  const { prompt, duration } = asked;
  if (typeof prompt !== "string" || prompt.trim() === "")
    return unfit(
      "the job says nothing that a video cloud understands: put `overflow` with a `prompt` in words into its body",
    );
  // The seconds are sent even where the job leaves them open: what is paid for must be what was reserved.
  const seconds = duration === undefined ? lengths.usual : readSeconds(duration);
  if (seconds === undefined || !lengths.fits(seconds)) return unfit(lengths.words);
  if (price === null) return unfit("the tier has no price");
  return { kind: "ok", asked, prompt, seconds, quote: quote(price, { seconds }) };
}

/** The part of a job's body that is for a place elsewhere. */
export function readAsked(body: unknown): { readonly kind: "ok"; readonly asked: JsonObject } | Unfit {
  if (!isJsonObject(body)) return unfit("the job's body is not a JSON object");
  const asked = body["overflow"] ?? body;
  return isJsonObject(asked) ? { kind: "ok", asked } : unfit("the job's `overflow` is not a JSON object");
}

const unfit = (why: string): Unfit => ({ kind: "unfit", why });

/** Whole seconds, as a number or digits; undefined for anything else. */
export function readSeconds(value: unknown): number | undefined {
  const seconds = typeof value === "string" && /^\d{1,4}$/.test(value) ? Number(value) : value;
  return typeof seconds === "number" && Number.isInteger(seconds) && seconds > 0 && seconds < 10_000
    ? seconds
    : undefined;
}

/** The named members that are there. */
export const pick = (asked: JsonObject, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(names.filter((name) => asked[name] !== undefined).map((name) => [name, asked[name]]));
