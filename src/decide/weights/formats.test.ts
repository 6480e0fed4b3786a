import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { chooseFormats, isArchive, isPickle, whyNotFile } from "./formats.ts";
import { readHubListing } from "./listings.ts";

const files = (...paths: string[]): { readonly path: string }[] => paths.map((path) => ({ path }));
const pathsOf = (paths: readonly string[], allow: boolean): readonly string[] | string => {
  const chosen = chooseFormats(files(...paths), allow);
  return chosen.kind === "files" ? chosen.files.map(({ path }) => path) : chosen.why;
};

for (const ending of ["bin", "pt", "pth", "ckpt", "pkl", "pickle", "PT", "nemo", "joblib"])
  test(`a file that ends with .${ending} is pickle, and goes to no engine whose model does not allow it [80.C43]`, () => {
    const name = `sub/model.${ending}`;
    assert.ok(isPickle(name));
    assert.match(whyNotFile(name, false) ?? "", /^model\.\w+ is a pickle format, .*runs code.*allow_pickle/);
    assert.equal(whyNotFile(name, true), null);
  });

for (const [name, isOne] of [
  ["model.safetensors", false],
  ["model-q4.gguf", false],
  ["model.bin.safetensors", false],
  ["weights", false],
  ["binary", false],
  ["model.safetensors.bin", true],
] as const)
  test(`${name} is ${isOne ? "pickle" : "none"} [80.C43]`, () => assert.equal(isPickle(name), isOne));

for (const ending of ["zip", "tar", "tar.gz", "tgz", "7z", "tar.zst", "gguf.xz"])
  test(`an archive that ends with .${ending} is refused, whatever is allowed: nothing unpacks one [80.D24]`, () => {
    assert.ok(isArchive(`a.${ending}`));
    for (const allowed of [true, false]) assert.match(whyNotFile(`a.${ending}`, allowed) ?? "", /archive/);
  });

for (const [name, paths, allow, expect] of [
  ["beside safetensors", ["config.json", "model.safetensors", "pytorch_model.bin", "training_args.bin"], false, 2],
  ["beside safetensors in a folder", ["unet/a.safetensors", "unet/a.bin"], false, 1],
  ["beside GGUF", ["m.gguf", "m.pth"], false, 1],
  ["alone, and allowed", ["pytorch_model.bin", "config.json"], true, 2],
  ["none, and an archive", ["model.safetensors", "data.zip"], false, 1],
] as const)
  test(`of a folder with pickle ${name}: what may be had is taken, and pickle is left out unless it is allowed [80.C43]`, () =>
    assert.equal(pathsOf(paths, allow).length, expect));

test("a folder whose weights are pickle alone is refused, and the reason names files, risk and what allows them [80.C43]", () => {
  const why = String(pathsOf(["a-1.bin", "a-2.bin", "a-3.bin", "a-4.bin", "config.json"], false));
  assert.match(why, /a-1\.bin, a-2\.bin, a-3\.bin and 1 more.*runs code.*allow_pickle: true/);
  const listing = readHubListing(
    { sha: "c".repeat(40), siblings: [{ rfilename: "pytorch_model.bin", size: 1 }] },
    null,
    false,
  );
  assert.equal(listing.kind, "refused");
});

test("whatever a folder holds, no pickle is taken from it unless that is allowed, and no archive ever [80.C43 80.D24]", () => {
  const ending = fc.constantFrom("bin", "pt", "pkl", "safetensors", "gguf", "json", "zip", "tar", "");
  const path = fc.tuple(fc.stringMatching(/^[a-z]{1,4}(?:\/[a-z]{1,4})?$/), ending).map((parts) => parts.join("."));
  fc.assert(
    fc.property(fc.array(path, { maxLength: 12 }), fc.boolean(), (paths, allow) => {
      const chosen = chooseFormats(files(...paths), allow);
      if (chosen.kind === "refused") return assert.ok(!allow && paths.some(isPickle));
      for (const one of chosen.files) assert.ok(!isArchive(one.path) && (allow || !isPickle(one.path)));
      const plain = paths.filter((one) => !isArchive(one) && !isPickle(one));
      assert.deepEqual(
        chosen.files.map((one) => one.path).filter((one) => !isPickle(one)),
        plain,
      );
    }),
  );
});
