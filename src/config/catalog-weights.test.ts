import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCatalogText } from "./load-catalog.ts";
import { resolveCatalog } from "../contract/resolve-catalog.ts";

/** What is said of a catalog with one model: its mistakes, or else its warnings. */
function told(model: string): { readonly kind: "valid" | "invalid"; readonly text: string } {
  const read = parseCatalogText(`models:\n  - name: m\n    profiles: ${model}\n`, "catalog.yaml");
  if (read.kind === "valid") return { kind: "valid", text: read.warnings.join("\n") };
  return { kind: "invalid", text: read.problems.map(({ path, message }) => `${path}: ${message}`).join("\n") };
}
const profile = (source: string, rest = ""): string =>
  `[{engine: vllm, source: ${JSON.stringify(source)}, gpu: {class: [h200], memory_gb: 70}${rest}}]`;

for (const source of [
  "https://host/model.bin",
  "/models/model.pt",
  "models/model.PTH",
  "file:///models/model.ckpt",
  "hf://org/model@rev/pytorch_model.bin",
  "s3://bucket/model.pkl",
])
  test(`the source ${source} is a mistake, and with allow_pickle a warning [80.C43]`, () => {
    assert.match(told(profile(source)).text, /models\[0\]\.profiles\[0\]\.source: is a pickle format: .*runs code/);
    const allowed = told(`${profile(source)}\n    allow_pickle: true`);
    assert.equal(allowed.kind, "valid");
    assert.match(allowed.text, /models\[0\]\.allow_pickle.*is set: .*runs code/);
  });

test("a flag that makes the engine read pickle is a mistake where pickle is not allowed [80.C43]", () => {
  const args = ", args: {load-format: pt}";
  assert.match(told(profile("hf://org/model@rev", args)).text, /args\.load-format: makes the engine read pickle/);
  assert.doesNotMatch(told(`${profile("hf://org/model@rev", args)}\n    allow_pickle: true`).text, /load-format/);
});

test("a model that may have pickle has other weights of its own, and one that says nothing of it is as it was [80.C43]", () => {
  const read = (more: string): ReturnType<typeof resolveCatalog> => {
    const text = `models:\n  - name: m\n    profiles: ${profile("hf://org/model@rev")}\n${more}`;
    const loaded = parseCatalogText(text, "catalog.yaml");
    assert.ok(loaded.kind === "valid");
    return resolveCatalog(loaded.data, 1);
  };
  const [silent, no, yes] = ["", "    allow_pickle: false\n", "    allow_pickle: true\n"].map(
    (more) => read(more).models.get("m")!.profiles[0]!,
  );
  assert.deepEqual(no, silent);
  assert.ok(!("allowPickle" in silent!));
  assert.notEqual(yes!.hash, silent!.hash);
  assert.notEqual(yes!.weightsName, silent!.weightsName);
});

const LONG = "x".repeat(300);
for (const name of [
  "../../x",
  "/etc/passwd",
  "a/../b",
  "..",
  ".",
  "a/..",
  "",
  "a\0b",
  "a\nb",
  LONG,
  "__proto__",
  "-rf",
  "a b",
])
  test(`a model or alias of the name ${JSON.stringify(name.slice(0, 20))} is refused, as name and as alias [80.D24]`, () => {
    const quoted = JSON.stringify(name);
    for (const model of [
      `models: [{name: ${quoted}, profiles: [{engine: sim}]}]`,
      `models: [{name: m, aliases: [${quoted}], profiles: [{engine: sim}]}]`,
    ])
      assert.equal(parseCatalogText(model, "catalog.yaml").kind, "invalid");
  });

for (const sha256 of [
  "sha256:../../x",
  "../../x",
  "/etc/passwd",
  "AB".repeat(32),
  "ab".repeat(31),
  `${"ab".repeat(32)}\n`,
  "ab\0cd",
  LONG,
])
  test(`the digest ${JSON.stringify(sha256.slice(0, 20))} is refused [80.D24]`, () =>
    assert.match(
      told(profile("https://host/m.gguf", `, sha256: ${JSON.stringify(sha256)}`)).text,
      /profiles\[0\]\.sha256/,
    ));

for (const source of [
  "../../x",
  "/models/../../x",
  "file:///models/../x",
  "hf://org/model@../../x",
  "hf://org/model@rev/../../x",
  "hf://org/..@rev",
  "s3://bucket/../../x",
  "sha256:../../x",
  "/models/a\0b",
  `hf://org/model@rev/${LONG}`,
  `hf://org/model@${LONG}`,
  "https://host/model.zip",
  "/models/model.tar.gz",
  "s3://bucket/model.7z",
])
  test(`the source ${JSON.stringify(source.slice(0, 40))} is refused when the catalog is given [80.D24]`, () =>
    assert.match(told(profile(source)).text, /profiles\[0\]\.source/));
