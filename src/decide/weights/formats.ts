// Which files of weights an engine may be given. Pickle is a program that runs while it is loaded, so whoever made the file runs
// code on the node; safetensors and GGUF are data alone. Endings decide: loaders choose by them, and refuse what is not what its ending says.

const PICKLE = /\.(?:bin|pt|pth|ptl|ckpt|pkl|pickle|dill|joblib|nemo|mar|t7)$/i;
const PLAIN = /\.(?:safetensors|gguf)$/i;
/** Nothing here unpacks one, and no engine reads one. */
const ARCHIVE = /\.(?:zip|tar|tgz|tbz2?|txz|gz|bz2|xz|zst|7z|rar|jar|whl|cpio|ar)$/i;
const NAMES_TOLD = 3;

export const isPickle = (path: string): boolean => PICKLE.test(path);
export const isArchive = (path: string): boolean => ARCHIVE.test(path);

export const PICKLE_RUNS_CODE = "loading pickle runs code of whoever made the file";
const ALLOW = "`allow_pickle: true` in the catalog lets the model have it";

/** Why a file that a source names itself is not given to an engine; null: it may be. */
export function whyNotFile(path: string, allowPickle: boolean): string | null {
  if (isArchive(path)) return "the source is an archive, and nothing unpacks one";
  if (!isPickle(path) || allowPickle) return null;
  return `${path.split("/").at(-1) ?? path} is a pickle format, and ${PICKLE_RUNS_CODE}; ${ALLOW}`;
}

const PICKLE_LOADERS: readonly unknown[] = ["pt", "npcache"];

/** Whether a flag of an engine, without its dashes, makes it read pickle. */
export const readsPickle = (flag: string, value: unknown): boolean =>
  flag.toLowerCase().replaceAll("_", "-") === "load-format" &&
  PICKLE_LOADERS.includes(typeof value === "string" ? value.trim().toLowerCase() : value);

export type ChosenFiles<File> =
  | { readonly kind: "files"; readonly files: readonly File[] }
  | { readonly kind: "refused"; readonly why: string };

/** Of a folder's files those that are fetched: pickle is left out where the weights are there in another form, and refused where they are not. */
export function chooseFormats<File extends { readonly path: string }>(
  files: readonly File[],
  allowPickle: boolean,
): ChosenFiles<File> {
  const kept = files.filter(({ path }) => !isArchive(path));
  const pickles = kept.filter(({ path }) => isPickle(path));
  if (allowPickle || pickles.length === 0) return { kind: "files", files: kept };
  if (kept.some(({ path }) => PLAIN.test(path)))
    return { kind: "files", files: kept.filter(({ path }) => !isPickle(path)) };
  const named = pickles.slice(0, NAMES_TOLD).map(({ path }) => path);
  const more = pickles.length - named.length;
  return {
    kind: "refused",
    why: `it has weights in pickle formats alone (${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}), and ${PICKLE_RUNS_CODE}; ${ALLOW}`,
  };
}
