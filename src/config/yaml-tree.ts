import { LineCounter, isAlias, isMap, isScalar, isSeq, parseDocument } from "yaml";
import type { Alias, Document, Node, ParsedNode, Scalar, YAMLError, YAMLMap } from "yaml";
import type { Env } from "../contract/resolve-config.ts";
import type { FieldPath } from "../contract/schema-fields.ts";
import { formatPath } from "./config-problem.ts";
import { coreScalar, substituteEnv } from "./substitute-env.ts";

/** Text to plain values, with the place of each kept. YAML 1.2 core and nothing beyond: no merge keys, no custom tags. */

export interface Position {
  readonly line: number;
  readonly column: number;
}

export interface TreeProblem {
  readonly path: FieldPath;
  readonly position: Position;
  readonly message: string;
  readonly hint?: string;
}

export interface YamlTree {
  /** Objects have no prototype; a value with a problem of its own is undefined. */
  readonly value: unknown;
  readonly problems: readonly TreeProblem[];
  /** Paths (formatted) whose text came from the environment: never shown. */
  readonly fromEnv: ReadonlySet<string>;
  /** Where the value stands, or its nearest parent if it is absent. With `key`, where its key stands. */
  locate(path: FieldPath, key?: "key"): Position;
}

export type ParsedYaml =
  | { readonly kind: "tree"; readonly tree: YamlTree }
  | { readonly kind: "broken"; readonly problems: readonly TreeProblem[] };

const DEPTH_MAX = 24;
const ALIASES_MAX = 100;
/** Values after aliases are followed: far above an honest file, far below what an alias bomb needs. */
const VALUES_MAX = 200_000;

/** One slip can break each line after it; the first ones tell what to mend. */
const SYNTAX_PROBLEMS_MAX = 20;

interface Walk {
  readonly doc: Document.Parsed;
  readonly lines: LineCounter;
  readonly env: Env | null;
  readonly problems: TreeProblem[];
  readonly fromEnv: Set<string>;
  aliases: number;
  values: number;
}

/** Without an environment a reference to it is a mistake. */
export function parseYaml(text: string, env: Env | null): ParsedYaml {
  const lines = new LineCounter();
  let doc: Document.Parsed;
  try {
    // Duplicate keys are found by the walk below: the library compares each key with all before it.
    doc = parseDocument(text, {
      version: "1.2",
      schema: "core",
      strict: true,
      uniqueKeys: false,
      merge: false,
      prettyErrors: false,
      lineCounter: lines,
      logLevel: "error",
    });
  } catch (err) {
    if (!(err instanceof RangeError)) throw err;
    return {
      kind: "broken",
      problems: [{ path: [], position: { line: 1, column: 1 }, message: "is nested too deeply to be read" }],
    };
  }
  const syntax = [...doc.errors, ...doc.warnings]
    .slice(0, SYNTAX_PROBLEMS_MAX)
    .map((error) => describeSyntax(error, text, lines));
  if (doc.directives.yaml.explicit === true && doc.directives.yaml.version !== "1.2") {
    syntax.push({
      path: [],
      position: { line: 1, column: 1 },
      message: "`%YAML` names a version other than 1.2",
      hint: "remove the line",
    });
  }
  if (syntax.length > 0) return { kind: "broken", problems: syntax };
  const walk: Walk = { doc, lines, env, problems: [], fromEnv: new Set(), aliases: 0, values: 0 };
  const value = convert(doc.contents, [], walk);
  const locate = (path: FieldPath, key?: "key"): Position => locateNode(walk, path, key === "key");
  return { kind: "tree", tree: { value, problems: walk.problems, fromEnv: walk.fromEnv, locate } };
}

function positionAt(lines: LineCounter, offset: number): Position {
  const { line, col } = lines.linePos(offset);
  return line === 0 ? { line: 1, column: 1 } : { line, column: col };
}

const SYNTAX_HINTS: Readonly<Record<string, string>> = {
  TAB_AS_INDENT: "indent with spaces",
  BAD_INDENT: "keys of one mapping, and the dashes of one list, start in the same column",
  BAD_SCALAR_START: "put the text in quotes",
  MULTIPLE_DOCS: "keep one document in the file: remove the `---` between them",
  TAG_RESOLVE_FAILED: "custom tags are not supported",
};

/** Where the library's words are for programs that call it. */
const SYNTAX_WORDS: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: "holds more than one YAML document",
};

/** The library's words without what it quotes from the file, which may be part of a secret. */
function describeSyntax(error: YAMLError, text: string, lines: LineCounter): TreeProblem {
  const position = positionAt(lines, error.pos[0]);
  const said = error.message.split(/(?<=\S): /, 1)[0]?.trim() ?? "";
  const message = SYNTAX_WORDS[error.code] ?? `is not valid YAML: ${said || error.code}`;
  const line = text.split("\n", position.line)[position.line - 1] ?? "";
  const reference = line.indexOf("${");
  const flowReference = reference > 0 && /[[{,]/.test(line.slice(0, reference)) && error.code !== "TAB_AS_INDENT";
  const hint = flowReference ? 'inside [ ] and { } a "${…}" needs quotes' : SYNTAX_HINTS[error.code];
  const problem = { path: [], position, message };
  return hint === undefined ? problem : { ...problem, hint };
}

function fail(walk: Walk, node: Node | null, path: FieldPath, message: string, hint?: string): undefined {
  const position = positionAt(walk.lines, node?.range?.[0] ?? 0);
  walk.problems.push(hint === undefined ? { path, position, message } : { path, position, message, hint });
  return undefined;
}

function convert(node: Node | null, path: FieldPath, walk: Walk): unknown {
  walk.values += 1;
  if (walk.values > VALUES_MAX)
    return walk.values === VALUES_MAX + 1 ? fail(walk, node, path, `holds more than ${VALUES_MAX} values`) : undefined;
  if (path.length > DEPTH_MAX) return fail(walk, node, path, `is nested deeper than ${DEPTH_MAX} levels`);
  if (node === null) return null;
  if (isAlias(node)) return convertAlias(node, path, walk);
  if (isMap(node)) return convertMap(node, path, walk);
  if (isSeq(node)) return node.items.map((item, index) => convert(item as Node | null, [...path, index], walk));
  return isScalar(node) ? convertScalar(node, path, walk) : fail(walk, node, path, "can't be read");
}

function convertAlias(node: Alias, path: FieldPath, walk: Walk): unknown {
  walk.aliases += 1;
  if (walk.aliases > ALIASES_MAX)
    return walk.aliases === ALIASES_MAX + 1
      ? fail(walk, node, path, `is one of more than ${ALIASES_MAX} aliases`)
      : undefined;
  return convert(node.resolve(walk.doc) ?? null, path, walk);
}

function keyText(key: unknown): string | undefined {
  const value = isScalar(key) ? key.value : undefined;
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : undefined;
}

function convertMap(map: YAMLMap, path: FieldPath, walk: Walk): object {
  const out: Record<string, unknown> = Object.create(null);
  const lineOfKey = new Map<string, number>();
  for (const pair of map.items) {
    const key = keyText(pair.key);
    const keyNode = pair.key as Node | null;
    if (key === undefined) {
      fail(walk, keyNode ?? map, path, "has a key that is not a plain name");
      continue;
    }
    const first = lineOfKey.get(key);
    if (first !== undefined) {
      fail(walk, keyNode, [...path, key], `is given twice; the first one is on line ${first}`, "keep one of them");
      continue;
    }
    lineOfKey.set(key, positionAt(walk.lines, keyNode?.range?.[0] ?? 0).line);
    const hint = key === "<<" ? "merge keys are not supported; an alias can stand for a whole value" : undefined;
    if (hint !== undefined) fail(walk, keyNode, [...path, key], "is not a known key", hint);
    else out[key] = convert(pair.value as Node | null, [...path, key], walk);
  }
  return out;
}

/** 010 is ten in YAML 1.2, eight in YAML 1.1 and to many readers; nobody writes it and means to be guessed at. */
const AMBIGUOUS_NUMBER = /^[-+]?0[0-9]+$/;

function convertScalar(node: Scalar, path: FieldPath, walk: Walk): unknown {
  const plain = node.type === "PLAIN";
  if (typeof node.value !== "string") {
    if (plain && AMBIGUOUS_NUMBER.test(node.source ?? ""))
      return fail(
        walk,
        node,
        path,
        "is a number with a leading zero, which is read differently by different programs",
        "remove the zero",
      );
    return node.value;
  }
  if (!node.value.includes("${")) return node.value;
  const substituted = substituteEnv(node.value, walk.env);
  if (substituted.kind === "invalid") return fail(walk, node, path, substituted.why);
  if (substituted.fromEnv) walk.fromEnv.add(formatPath(path));
  if (!plain || !substituted.whole) return substituted.text;
  if (AMBIGUOUS_NUMBER.test(substituted.text))
    return fail(
      walk,
      node,
      path,
      "gets a number with a leading zero from the environment",
      "remove the zero, or put the reference in quotes",
    );
  return coreScalar(substituted.text);
}

function locateNode(walk: Walk, path: FieldPath, wantKey: boolean): Position {
  let node: Node | ParsedNode | null | undefined = walk.doc.contents;
  let offset = node?.range?.[0] ?? 0;
  for (const [index, step] of path.entries()) {
    if (isAlias(node)) node = node.resolve(walk.doc);
    if (isSeq(node) && typeof step === "number") {
      node = node.items[step] as Node | undefined;
    } else if (isMap(node)) {
      const pair = node.items.find((item) => keyText(item.key) === step);
      if (pair === undefined) break;
      const key = pair.key as Node | null;
      node = pair.value as Node | null;
      // An empty value has no place of its own worth showing.
      if (node === null || (isScalar(node) && node.value === null) || (wantKey && index === path.length - 1))
        offset = key?.range?.[0] ?? offset;
      else offset = node.range?.[0] ?? offset;
      continue;
    } else break;
    offset = node?.range?.[0] ?? offset;
  }
  return positionAt(walk.lines, offset);
}
