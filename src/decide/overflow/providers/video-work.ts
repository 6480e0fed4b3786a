import { isMembers, type Members } from "./cloud-call.ts";

export type VideoWork =
  | { readonly kind: "ok"; readonly asked: Members; readonly prompt: string }
  | { readonly kind: "unfit"; readonly why: string };

/**
 * What a video cloud is asked for. A workflow's graph means nothing there, so a job that may go to one says beside the graph, in
 * `overflow`, what it wants in words; a body whose `prompt` is a text says it itself.
 */
export function readVideoWork(body: unknown): VideoWork {
  if (!isMembers(body)) return { kind: "unfit", why: "the job's body is not a JSON object" };
  const asked = body["overflow"] ?? body;
  if (!isMembers(asked)) return { kind: "unfit", why: "the job's `overflow` is not a JSON object" };
  const { prompt } = asked;
  if (typeof prompt === "string" && prompt.trim() !== "") return { kind: "ok", asked, prompt };
  return {
    kind: "unfit",
    why: "the job says nothing that a video cloud understands: put `overflow` with a `prompt` in words into its body",
  };
}

/** Whole seconds, as a number or digits; undefined for anything else. */
export function readSeconds(value: unknown): number | undefined {
  const seconds = typeof value === "string" && /^\d{1,4}$/.test(value) ? Number(value) : value;
  return typeof seconds === "number" && Number.isInteger(seconds) && seconds > 0 && seconds < 10_000
    ? seconds
    : undefined;
}

/** The named members that are there. */
export const pick = (asked: Members, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(names.filter((name) => asked[name] !== undefined).map((name) => [name, asked[name]]));
