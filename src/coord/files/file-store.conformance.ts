import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { DocPlace, FileLimits, FileStore } from "./file-store.ts";

/** A store that is there, and may be opened again over what it held. */
export interface FilesUnderTest {
  open(limits?: Partial<FileLimits>): Promise<FileStore>;
}

export const FILE_LIMITS: FileLimits = { docsMax: 100, bytesMax: 10_000, keyBytesMax: 5_000, keyOpenMax: 3 };
const FAR = 4_000_000_000_000;
const aPlace = (change: Partial<DocPlace> = {}): DocPlace => ({
  kind: "file",
  keyId: "k",
  shown: true,
  open: false,
  expiresAt: FAR,
  ...change,
});
const bytesOf = (length: number): Buffer => Buffer.alloc(length, "\u00ff\u0000x", "latin1");

/** The same assertions for every store of files. */
export function fileStoreSuite(name: string, fresh: () => Promise<FilesUnderTest>): void {
  describe(`files in ${name}`, () => {
    documentSuite(fresh);
    pieceSuite(fresh);
    boundSuite(fresh);
  });
}

function documentSuite(fresh: () => Promise<FilesUnderTest>): void {
  test("a document changes over its version alone, and is there when the store is opened anew [20.J7]", async () => {
    const under = await fresh();
    const first = await under.open();
    assert.equal(await first.create("file-a", "one", aPlace()), "created");
    assert.equal(await first.create("file-a", "other", aPlace()), "created", "told again it changes nothing");
    assert.equal(await first.write("file-a", 1, "two", aPlace()), true);
    assert.equal(await first.write("file-a", 1, "three", aPlace()), false);
    assert.equal(await first.write("file-b", 1, "none", aPlace()), false);
    await first.close();
    const store = await under.open();
    const read = await store.read("file-a");
    assert.deepEqual([read?.text, read?.version], ["two", 2]);
    assert.equal(await store.forget("file-a", 1), false);
    assert.equal(await store.forget("file-a", 2), true);
    assert.equal(await store.read("file-a"), undefined);
    assert.deepEqual(await store.totals(), { docs: 0, bytes: 0 });
    await store.close();
  });

  test("lists are of one kind and key, of what is shown, in order and page by page [20.J7]", async () => {
    const store = await (await fresh()).open();
    for (const id of ["file-1", "file-2", "file-3", "file-4"]) await store.create(id, id, aPlace());
    await store.create("file-5", "hidden", aPlace({ shown: false }));
    await store.create("file-6", "other", aPlace({ keyId: "other" }));
    await store.create("batch_1", "batch", aPlace({ kind: "batch" }));
    const list = async (change: Partial<Parameters<FileStore["list"]>[0]> = {}): Promise<string[]> => {
      const query = { kind: "file", keyId: "k", limit: 3, after: null, oldestFirst: false, ...change } as const;
      return (await store.list(query)).map(({ id }) => id);
    };
    assert.deepEqual(await list(), ["file-4", "file-3", "file-2"]);
    const { seq = 0 } = (await store.read("file-2")) ?? {};
    assert.deepEqual(await list({ after: seq }), ["file-1"]);
    assert.deepEqual(await list({ after: seq, oldestFirst: true }), ["file-3", "file-4"]);
    assert.deepEqual(await list({ keyId: null, oldestFirst: true, limit: 9 }), [
      "file-1",
      "file-2",
      "file-3",
      "file-4",
      "file-6",
    ]);
    assert.equal(await store.write("file-5", 1, "shown", aPlace()), true);
    assert.deepEqual(await list({ limit: 1 }), ["file-5"]);
    await store.close();
  });

  test("open documents are found, oldest first, until they are closed [20.J7]", async () => {
    const store = await (await fresh()).open();
    const open = aPlace({ kind: "batch", open: true });
    for (const id of ["batch_1", "batch_2", "batch_3"]) await store.create(id, id, open);
    assert.equal(await store.create("batch_4", "one too many", open), "open");
    assert.equal(await store.create("batch_5", "another's", { ...open, keyId: "other" }), "created");
    assert.equal(await store.write("batch_1", 1, "over", { ...open, open: false }), true);
    assert.deepEqual(
      (await store.open(2)).map(({ id }) => id),
      ["batch_2", "batch_3"],
    );
    assert.equal(await store.create("batch_4", "room again", open), "created");
    await store.close();
  });

  test("what has expired goes with its bytes, and nothing else does [20.J7]", async () => {
    const store = await (await fresh()).open();
    const now = await store.now();
    await store.create("file-old", "old", aPlace({ expiresAt: now - 1 }));
    await store.create("file-new", "new", aPlace({ expiresAt: now + 3_600_000 }));
    for (const id of ["file-old", "file-new"])
      assert.equal(await store.putPiece(id, "p.0", bytesOf(100), true), "kept");
    await store.sweep();
    assert.equal(await store.read("file-old"), undefined);
    assert.equal(await store.piece("file-old", "p.0"), undefined);
    assert.deepEqual(await store.piece("file-new", "p.0"), bytesOf(100));
    assert.deepEqual(await store.totals(), { docs: 1, bytes: 100 });
    await store.close();
  });
}

function pieceSuite(fresh: () => Promise<FilesUnderTest>): void {
  test("pieces are the bytes that were given, counted once, also when they are told again [20.J7]", async () => {
    const under = await fresh();
    const first = await under.open();
    await first.create("file-a", "a", aPlace());
    const all = Buffer.from(Uint8Array.from({ length: 256 }, (_, byte) => byte));
    for (let told = 0; told < 2; told += 1) assert.equal(await first.putPiece("file-a", "x.0", all, true), "kept");
    await first.putPiece("file-a", "x.1", bytesOf(10), true);
    assert.equal(await first.putPiece("file-none", "x.0", all, true), "unknown");
    await first.close();
    const store = await under.open();
    assert.deepEqual(await store.piece("file-a", "x.0"), all);
    assert.equal(await store.piece("file-a", "x.2"), undefined);
    assert.deepEqual(await store.totals(), { docs: 1, bytes: 266 });
    await store.dropPieces("file-a", ["x.0", "x.7"]);
    assert.equal(await store.piece("file-a", "x.0"), undefined);
    assert.deepEqual(await store.totals(), { docs: 1, bytes: 10 });
    await store.forget("file-a", 1);
    assert.deepEqual(await store.totals(), { docs: 0, bytes: 0 });
    await store.close();
  });
}

function boundSuite(fresh: () => Promise<FilesUnderTest>): void {
  test("documents and bytes are bounded, by key and in all; what accepted work comes to is kept [20.J7 80.I9]", async () => {
    const store = await (await fresh()).open({ docsMax: 4 });
    for (const keyId of ["a", "b", "c"]) await store.create(`file-${keyId}`, keyId, aPlace({ keyId }));
    assert.equal(await store.putPiece("file-a", "1", bytesOf(5_000), true), "kept");
    assert.equal(await store.putPiece("file-a", "2", bytesOf(1), true), "bytes");
    assert.equal(await store.putPiece("file-b", "1", bytesOf(4_999), true), "kept");
    assert.equal(await store.putPiece("file-c", "1", bytesOf(2), true), "bytes");
    assert.equal(await store.putPiece("file-c", "1", bytesOf(2), false), "kept");
    assert.equal((await store.totals()).bytes, 10_001);
    await store.forget("file-b", 1);
    assert.equal(await store.putPiece("file-c", "2", bytesOf(2), true), "kept");
    assert.equal(await store.create("file-d", "d", aPlace()), "created");
    assert.equal(await store.create("file-e", "e", aPlace()), "created");
    assert.equal(await store.create("file-f", "f", aPlace()), "docs");
    await store.close();
  });
}
