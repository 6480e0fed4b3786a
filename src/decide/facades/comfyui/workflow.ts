import { JsonTopScan } from "../../http/json-scan.ts";
import { setMembers, spliceBody } from "../../http/json-splice.ts";

export type Workflow =
  | {
      readonly kind: "ok";
      readonly chunks: readonly Buffer[];
      readonly bytes: number;
      /** Of the graph, so that progress has a whole. */
      readonly nodes: number;
    }
  | { readonly kind: "bad"; readonly why: string };

const WANTED = ["prompt", "prompt_id", "client_id", "front", "number"] as const;

/**
 * A job's workflow as ComfyUI gets it: under the id by which it is found again, and in the line where everybody else's stands. All
 * other bytes stay, as seeds have more digits than a number read from JSON keeps.
 */
export function prepareWorkflow(chunks: readonly Buffer[], promptId: string): Workflow {
  const scan = new JsonTopScan(WANTED);
  for (const chunk of chunks) scan.push(chunk);
  const scanned = scan.end();
  if (scanned.kind === "invalid") return { kind: "bad", why: `the body can't be read: ${scanned.why}` };
  if (scanned.fields.has("number"))
    return { kind: "bad", why: "`number` is a place in ComfyUI's line, which jobs don't choose" };
  const nodes = countNodes(chunks);
  if (nodes === 0) return { kind: "bad", why: "`prompt` is not a workflow: an object with a member for each node" };
  const id = JSON.stringify(promptId);
  const members = [
    { key: "prompt_id", valueText: id },
    { key: "client_id", valueText: id },
  ];
  if (scanned.fields.has("front")) members.push({ key: "front", valueText: "false" });
  return { kind: "ok", ...spliceBody(chunks, setMembers(scanned, members)), nodes };
}

function countNodes(chunks: readonly Buffer[]): number {
  const { prompt } = JSON.parse(Buffer.concat(chunks).toString("utf8")) as { readonly prompt?: unknown };
  return typeof prompt === "object" && prompt !== null && !Array.isArray(prompt) ? Object.keys(prompt).length : 0;
}

/** The id that ComfyUI gave the prompt; older ones choose their own. Undefined where it names none. */
export function readAccepted(body: string): string | undefined {
  try {
    const id = (JSON.parse(body) as { readonly prompt_id?: unknown } | null)?.prompt_id;
    return typeof id === "string" && /^[A-Za-z0-9-]{1,64}$/.test(id) ? id : undefined;
  } catch {
    return undefined;
  }
}
