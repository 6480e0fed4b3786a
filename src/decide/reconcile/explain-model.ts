import { explainPlacement, type ProfileExplanation } from "../placement/place-replica.ts";
import { roomOf } from "./holdings.ts";
import { observe } from "./observe.ts";
import { PassDraft } from "./pass-draft.ts";
import { wishFor } from "./placing.ts";
import { NO_MEMORY, type PassMint, type PassSnapshot, type PassTime } from "./snapshot.ts";
import { whyWithheld } from "./why-withheld.ts";

const NO_MINT: PassMint = {
  replicaId: () => {
    throw new Error("an explanation makes no replica");
  },
  engineKey: () => {
    throw new Error("an explanation makes no key");
  },
};

export interface ModelExplanation {
  readonly profiles: readonly ProfileExplanation[];
  /** What else keeps it from being started, in words. */
  readonly notes: readonly string[];
}

/** Where one more replica of the model would fit, and for each other node why not. Undefined: the catalog has no such model. */
export function explainModel(snapshot: PassSnapshot, name: string, now: PassTime): ModelExplanation | undefined {
  const model = snapshot.catalog.models.get(name);
  if (model === undefined) return undefined;
  const draft = new PassDraft(snapshot, NO_MEMORY, now, NO_MINT);
  const profiles = explainPlacement(roomOf(draft, observe(snapshot.fleet), { model: name }), wishFor(draft, model));
  return { profiles, notes: whyWithheld(draft, model) };
}
