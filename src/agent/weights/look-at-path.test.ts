import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { lookAtPath } from "./look-at-path.ts";

let root = "";
before(async () => {
  root = await mkdtemp(join(tmpdir(), "yardmaster-path-"));
  for (const [folder, names] of [
    ["safe", ["config.json", "model.safetensors", "pytorch_model.bin"]],
    ["pickle", ["config.json", "pytorch_model.bin"]],
    ["none", ["config.json"]],
  ] as const) {
    await mkdir(join(root, folder));
    for (const name of names) await writeFile(join(root, folder, name), "");
  }
  await writeFile(join(root, "m.gguf"), "");
  await writeFile(join(root, "m.pt"), "");
  await symlink(join(root, "pickle"), join(root, "link.safetensors"));
});
after(() => rm(root, { recursive: true }));

for (const [path, allowed, expect] of [
  ["m.gguf", false, null],
  ["safe", false, null],
  ["none", false, null],
  ["m.pt", false, /m\.pt is a pickle format/],
  ["m.pt", true, null],
  ["pickle", false, /pickle: it has weights in pickle formats alone \(pytorch_model\.bin\)/],
  ["pickle", true, null],
  // The name of a link says nothing of the folder behind it.
  ["link.safetensors", false, /pickle formats alone/],
  ["absent", true, /there is no /],
  ["absent", false, /there is no /],
] as const)
  test(`what lies on the node at ${path} ${expect === null ? "may be given to an engine" : "may not"}${allowed ? ", with allow_pickle" : ""}; nothing is touched [80.C43]`, async () => {
    const before = await readdir(root, { recursive: true });
    const found = await lookAtPath(join(root, path), allowed);
    if (expect === null) assert.equal(found, "present");
    else assert.match(found === "present" ? found : found.missing, expect);
    assert.deepEqual(await readdir(root, { recursive: true }), before);
  });
