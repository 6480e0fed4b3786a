import { z } from "zod";
import { chooseFormats, whyNotFile } from "./formats.ts";
import { isPlainPath } from "./source.ts";

// What the listings of a hub and of an S3 bucket say of the files of a source. Both are a stranger's word: a path in it names a
// file below a folder of ours only if it is plain.

export interface ListedFile {
  /** Plain, below the source's own folder. */
  readonly path: string;
  readonly bytes: number | null;
  readonly sha256: string | null;
}

export type Listing =
  | { readonly kind: "files"; readonly revision: string; readonly files: readonly ListedFile[] }
  | { readonly kind: "refused"; readonly why: string };

/** Of one source. */
export const FILES_MAX = 5_000;
const refused = (why: string): Listing => ({ kind: "refused", why });

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const bytes = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const hubAnswer = z.object({
  sha: z.string().regex(/^[0-9a-f]{40,64}$/),
  siblings: z
    .array(
      z.object({
        rfilename: z.string(),
        size: bytes.nullish(),
        lfs: z.object({ sha256: sha256.optional(), oid: sha256.optional(), size: bytes.optional() }).nullish(),
      }),
    )
    .max(FILES_MAX),
});

/** The hub's answer on a revision, with the sizes of its files. `only`: one file of it. */
export function readHubListing(body: unknown, only: string | null, allowPickle = false): Listing {
  const answer = hubAnswer.safeParse(body);
  if (!answer.success) return refused("the hub's answer can't be understood");
  const { sha, siblings } = answer.data;
  const odd = siblings.find(({ rfilename }) => !isPlainPath(rfilename));
  if (odd !== undefined)
    return refused(`the repository has a file of the name ${JSON.stringify(odd.rfilename.slice(0, 80))}`);
  const files = siblings.map(({ rfilename, size, lfs }) => ({
    path: rfilename,
    bytes: lfs?.size ?? size ?? null,
    sha256: lfs?.sha256 ?? lfs?.oid ?? null,
  }));
  const wanted = only === null ? chooseFiles(files) : files.filter(({ path }) => path === only);
  if (wanted.length === 0)
    return refused(only === null ? "the repository has no files" : `the repository has no file ${only}`);
  const listing = withFormats({ kind: "files", revision: sha, files: wanted }, only, allowPickle);
  return listing.kind === "refused" ? refused(`of the repository: ${listing.why}`) : listing;
}

/** Other forms of the same weights; engines read the safetensors where there are any. */
const OTHER_FORMS = /(?:\.(?:bin|pt|pth|msgpack|h5|ot|onnx|gguf|tflite)|\.ckpt|onnx_data)$/i;
const NEVER = /^(?:\.gitattributes|original\/.*|.*\/\.gitattributes)$/;

function chooseFiles(files: readonly ListedFile[]): ListedFile[] {
  const kept = files.filter(({ path }) => !NEVER.test(path));
  const hasSafetensors = kept.some(({ path }) => /^[^/]+\.safetensors$/.test(path));
  return hasSafetensors ? kept.filter(({ path }) => !OTHER_FORMS.test(path)) : kept;
}

/** What of a listing an engine may be given. `named`: the one file that the source names itself. */
export function withFormats(
  listing: Extract<Listing, { kind: "files" }>,
  named: string | null,
  allowPickle: boolean,
): Listing {
  if (named !== null) {
    const why = whyNotFile(named, allowPickle);
    return why === null ? listing : refused(why);
  }
  const chosen = chooseFormats(listing.files, allowPickle);
  if (chosen.kind === "refused") return chosen;
  return chosen.files.length === 0 ? refused("there are only archives") : { ...listing, files: chosen.files };
}

export type S3Page =
  | { readonly kind: "page"; readonly files: readonly ListedFile[]; readonly next: string | null }
  | { readonly kind: "refused"; readonly why: string };

/** One page of a bucket's list; paths are those below `prefix`, which ends with a slash. */
export function readS3Page(xml: string, prefix: string): S3Page {
  if (!/<ListBucketResult[\s>]/.test(xml))
    return { kind: "refused", why: "the list of the bucket can't be understood" };
  const files: ListedFile[] = [];
  for (const [, entry = ""] of xml.matchAll(/<Contents>([\s\S]*?)<\/Contents>/g)) {
    const key = element(entry, "Key");
    const size = element(entry, "Size");
    if (key === null || size === null || !/^\d{1,15}$/.test(size) || !key.startsWith(prefix))
      return { kind: "refused", why: "the list of the bucket can't be understood" };
    const path = key.slice(prefix.length);
    // Consoles make objects of no bytes that stand for a folder.
    if (path === "" || path.endsWith("/")) continue;
    if (!isPlainPath(path))
      return { kind: "refused", why: `the bucket has an object of the name ${JSON.stringify(path.slice(0, 80))}` };
    files.push({ path, bytes: Number(size), sha256: null });
  }
  return { kind: "page", files, next: element(xml, "NextContinuationToken") };
}

function element(xml: string, name: string): string | null {
  const found = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
  return found === undefined ? null : decodeXml(found);
}

const NAMED: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
const decodeXml = (text: string): string =>
  text.replaceAll(
    /&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|(amp|lt|gt|quot|apos));/gi,
    (all, hex?: string, decimal?: string, name?: string) => {
      if (name !== undefined) return NAMED[name.toLowerCase()] ?? all;
      const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
      return code <= 0x10_ff_ff ? String.fromCodePoint(code) : all;
    },
  );
