import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parseCatalogText } from "../config/load-catalog.ts";
import type { CatalogFile } from "../contract/catalog-schema.ts";
import { placeStarterCatalog, type RealModel } from "./starter-catalog.ts";

const REAL: RealModel = { name: "smol", file: "/models/smol.gguf", slots: 2, contextTokens: 4_096 };

async function inFolder(run: (path: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-starter-"));
  try {
    await run(join(folder, "catalog.yaml"));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The names and engines of a catalog that is valid without a word of warning. */
async function modelsIn(path: string): Promise<string[]> {
  const { models } = await catalogIn(path);
  return models.map(({ name, profiles }) => `${name} on ${profiles[0]?.engine}`);
}

async function catalogIn(path: string): Promise<CatalogFile> {
  const loaded = parseCatalogText(await readFile(path, "utf8"), path);
  assert.ok(loaded.kind === "valid", JSON.stringify(loaded));
  assert.deepEqual(loaded.warnings, []);
  return loaded.data;
}

test("a first catalog is valid, holds a simulated model or the real one that was set up, and is its owner's alone", async () => {
  await inFolder(async (path) => {
    assert.equal(await placeStarterCatalog(path, null), true);
    assert.deepEqual(await modelsIn(path), ["sim-model on sim"]);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.equal(await placeStarterCatalog(path, null), false);
  });
  await inFolder(async (path) => {
    assert.equal(await placeStarterCatalog(path, REAL), true);
    assert.deepEqual(await modelsIn(path), ["smol on llama.cpp"]);
  });
});

test("a real model goes beside the simulated one into a first catalog that nobody has touched, and into no other", async () => {
  await inFolder(async (path) => {
    await placeStarterCatalog(path, null);
    assert.equal(await placeStarterCatalog(path, REAL), true);
    assert.deepEqual(await modelsIn(path), ["sim-model on sim", "smol on llama.cpp"]);
    assert.equal(await placeStarterCatalog(path, REAL), false);
  });
  await inFolder(async (path) => {
    await writeFile(path, "models: []\n");
    assert.equal(await placeStarterCatalog(path, REAL), false);
    assert.equal(await readFile(path, "utf8"), "models: []\n");
  });
});

test("a simulated model and a real one of a first catalog fit together on a machine of one core", async () => {
  await inFolder(async (path) => {
    await placeStarterCatalog(path, null);
    await placeStarterCatalog(path, REAL);
    const { models } = await catalogIn(path);
    const cores = models.flatMap(({ profiles }) => profiles.map(({ cpu }) => cpu?.cores ?? 0));
    assert.equal(cores.length, 2);
    assert.ok(cores.reduce((all, one) => all + one, 0) <= 1, cores.join(" + "));
  });
});

test("the example in a first catalog is valid when its marks are taken away", async () => {
  await inFolder(async (path) => {
    await placeStarterCatalog(path, null);
    const text = await readFile(path, "utf8");
    await writeFile(path, text.replaceAll(/^ {2}# (- name: my-model.*| {2}.*)$/gm, "  $1"));
    assert.deepEqual(await modelsIn(path), ["sim-model on sim", "my-model on vllm"]);
  });
});
