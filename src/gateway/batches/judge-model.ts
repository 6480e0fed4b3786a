import type { BatchProblem } from "../../contract/batch.ts";
import type { RequestKey } from "../../access/request-key.ts";
import type { Upstreams } from "../jobs/judge-submission.ts";

export interface ModelJudge {
  readonly registry: Upstreams;
  /** Undefined: there is no such key any more. */
  readonly keyById: (keyId: string) => RequestKey | undefined;
  /** A name that is not known may become known. */
  readonly catalogPending: () => boolean;
}

/** What is wrong with a model of a batch for its key; null: nothing. Undefined: nobody knows yet which models there are. */
export function judgeModel(
  { registry, keyById, catalogPending }: ModelJudge,
  keyId: string,
  model: string,
): Omit<BatchProblem, "line"> | null | undefined {
  const shown = JSON.stringify(model.slice(0, 200));
  const problem = (code: string, message: string): Omit<BatchProblem, "line"> => ({
    code,
    message,
    param: "body.model",
  });
  const key = keyById(keyId);
  if (key === undefined) return problem("key_unknown", "the key of the batch is not there any more");
  const upstream = registry.byModel(model);
  if (upstream === undefined && catalogPending()) return undefined;
  if (upstream === undefined || upstream.settings.kind !== "openai")
    return problem("model_not_found", `the model ${shown} does not exist`);
  if (!key.allowsModel(model)) return problem("model_forbidden", `this key may not use the model ${shown}`);
  if (upstream.settings.external && !key.allowExternal)
    return problem("external_upstream_forbidden", "this key's data may not leave the house");
  return null;
}
