import type { UpstreamKind } from "./gateway-config.ts";

export interface KindTraits {
  /** Its answers are anything's, and go on as they are. Else they are an engine's, which are looked into. */
  readonly anyAnswer: boolean;
  /** For hours its word that it is at work is all that comes of it, so that word is what the first byte is waited for by. */
  readonly saysAtWork: boolean;
  /** Its work goes on when whoever asked for it is gone, and another attempt at the same goes on with it. */
  readonly outlivesItsCall: boolean;
}

const USUAL: KindTraits = { anyAnswer: false, saysAtWork: false, outlivesItsCall: false };

/** What follows from what an upstream speaks. */
export const KIND_TRAITS: Readonly<Record<UpstreamKind, KindTraits>> = {
  openai: USUAL,
  job: USUAL,
  http: { ...USUAL, anyAnswer: true },
  "azure-di": USUAL,
  comfyui: { anyAnswer: true, saysAtWork: true, outlivesItsCall: true },
};
