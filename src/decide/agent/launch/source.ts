import type { Profile } from "../../../contract/catalog.ts";

export type WeightsPlace =
  /** The profile needs none. */
  | { readonly kind: "none" }
  | { readonly kind: "path"; readonly path: string }
  | { readonly kind: "unavailable"; readonly why: string };

/** Where a profile's weights are on this node. `folder` is absolute, without a slash at its end. */
export function placeOfWeights(source: Profile["source"], folder: string): WeightsPlace {
  if (source === null) return { kind: "none" };
  const no = (why: string): WeightsPlace => ({ kind: "unavailable", why });
  if (source.includes("\0")) return no("the source holds a zero byte");
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(source)?.[1]?.toLowerCase();
  if (scheme !== undefined && scheme !== "file") return no(`sources by ${scheme}:// are not available in this version`);
  const path = scheme === "file" ? source.slice("file://".length) : source;
  if (scheme === "file" && !path.startsWith("/")) return no("a file:// source names an absolute path");
  if (path.split("/").includes("..")) return no("a source may not lead upwards");
  return { kind: "path", path: path.startsWith("/") ? path : `${folder}/${path}` };
}
