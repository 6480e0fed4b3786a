import { constants } from "node:fs";
import { access, opendir, stat } from "node:fs/promises";
import { chooseFormats, whyNotFile } from "../../decide/weights/formats.ts";

/** Of a folder; weights lie at its top. */
const NAMES_MAX = 5_000;

/** Whether an engine may be given what lies on the node at a path; the folder may be a person's, and is only looked at. */
export async function lookAtPath(
  path: string,
  allowPickle: boolean,
): Promise<"present" | { readonly missing: string }> {
  try {
    await access(path, constants.R_OK);
    if (allowPickle) return "present";
    if (!(await stat(path)).isDirectory()) return missingOr(whyNotFile(path, allowPickle));
    const names: { readonly path: string }[] = [];
    for await (const entry of await opendir(path)) if (names.push({ path: entry.name }) >= NAMES_MAX) break;
    const chosen = chooseFormats(names, allowPickle);
    return missingOr(chosen.kind === "refused" ? `${path}: ${chosen.why}` : null);
  } catch {
    return { missing: `there is no ${path} on this node, or it can't be read` };
  }
}

const missingOr = (why: string | null): "present" | { readonly missing: string } =>
  why === null ? "present" : { missing: why };
