import type { Profile } from "../../contract/catalog.ts";
import { isLoopback } from "../../contract/listen-address.ts";

/** What a profile's `source` names: something that lies on the node, or something that is fetched into its cache. */
export type WeightsSource =
  /** The profile needs none. */
  | { readonly kind: "none" }
  | { readonly kind: "path"; readonly path: string }
  | FetchedSource
  | { readonly kind: "unavailable"; readonly why: string };

export type FetchedSource =
  /** One file by its own URL. `file` is its name in the cache. */
  | { readonly kind: "web"; readonly url: string; readonly file: string }
  /** A repository of a model hub at a revision; `file`: one file of it alone. */
  | { readonly kind: "hub"; readonly repo: string; readonly revision: string; readonly file: string | null }
  /** One object, or with a slash at the end all objects below. */
  | { readonly kind: "s3"; readonly bucket: string; readonly key: string };

const no = (why: string): WeightsSource => ({ kind: "unavailable", why });

/** `folder` is absolute, without a slash at its end; a path without a slash at its begin is looked for in it. */
export function parseSource(source: Profile["source"], folder: string): WeightsSource {
  if (source === null) return { kind: "none" };
  // oxlint-disable-next-line no-control-regex -- control characters are what it keeps out
  if (/[\u0000-\u001f\u007f]/.test(source)) return no("the source holds a control character");
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(source)?.[1]?.toLowerCase();
  const rest = scheme === undefined ? source : source.slice(scheme.length + "://".length);
  switch (scheme) {
    case undefined:
      return parsePath(source, folder);
    case "file":
      return rest.startsWith("/") ? parsePath(rest, folder) : no("a file:// source names an absolute path");
    case "https":
    case "http":
      return parseWeb(source);
    case "hf":
      return parseHub(rest);
    case "s3":
      return parseS3(rest);
    default:
      return no(`sources by ${scheme}:// are not known`);
  }
}

function parsePath(path: string, folder: string): WeightsSource {
  if (path.split("/").includes("..")) return no("a source may not lead upwards");
  return { kind: "path", path: path.startsWith("/") ? path : `${folder}/${path}` };
}

function parseWeb(source: string): WeightsSource {
  const url = URL.parse(source);
  if (url === null) return no("the source is no URL");
  if (url.username !== "" || url.password !== "") return no("the source holds a password");
  if (url.protocol === "http:" && !isLoopback(bareHost(url)))
    return no("http:// is for this machine alone: use https://");
  url.hash = "";
  return { kind: "web", url: url.href, file: fileNameOf(url) };
}

/** The host without the brackets of an IPv6 address. */
export const bareHost = (url: URL): string => url.hostname.replace(/^\[|\]$/g, "");

const FILE_NAME_CHARS_MAX = 200;

/** Some engines go by the ending of a file's name, so it is kept; whatever could mean something to a file system is not. */
function fileNameOf(url: URL): string {
  const last = url.pathname.split("/").at(-1) ?? "";
  const name = decodedOr(last, "")
    .replaceAll(/[^A-Za-z0-9._+-]/g, "_")
    .replace(/^[.-]+/, "_")
    .slice(-FILE_NAME_CHARS_MAX);
  return name === "" ? "weights" : name;
}

function parseHub(rest: string): WeightsSource {
  const match = /^([A-Za-z0-9][\w.-]{0,95})\/([A-Za-z0-9][\w.-]{0,95})(?:@([^/]+))?(?:\/(.+))?$/.exec(rest);
  if (match === null) return no("write hf://ORGANISATION/MODEL@REVISION, or with /FILE behind it for one file");
  const [, owner = "", name = "", given = "main", path] = match;
  const revision = decodedOr(given, "");
  if (!/^[A-Za-z0-9][\w./+-]{0,199}$/.test(revision) || !isPlainPath(revision)) return no("the revision can't be one");
  if (path !== undefined && !isPlainPath(path)) return no("the file of the source is no plain path");
  return { kind: "hub", repo: `${owner}/${name}`, revision, file: path ?? null };
}

function parseS3(rest: string): WeightsSource {
  const slash = rest.indexOf("/");
  const [bucket, key] = slash < 0 ? [rest, ""] : [rest.slice(0, slash), rest.slice(slash + 1)];
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) return no("the bucket's name can't be one");
  if (!isPlainPath(key.replace(/\/$/, ""))) return no("write s3://BUCKET/KEY, or with a slash at the end for a folder");
  return { kind: "s3", bucket, key };
}

const PATH_CHARS_MAX = 1_024;
const SEGMENT_CHARS_MAX = 200;

/** Whether a path that somebody else made up may be used below a folder of ours. */
export function isPlainPath(path: string): boolean {
  // oxlint-disable-next-line no-control-regex -- control characters are what it keeps out
  if (path === "" || path.length > PATH_CHARS_MAX || /[\u0000-\u001f\u007f\\]/.test(path)) return false;
  return path
    .split("/")
    .every((segment) => segment !== "" && segment !== "." && segment !== ".." && segment.length <= SEGMENT_CHARS_MAX);
}

function decodedOr(text: string, fallback: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return fallback;
  }
}
