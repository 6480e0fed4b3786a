import type {
  CreateOutcome,
  DocPlace,
  FileListQuery,
  FileStore,
  FileTotals,
  OpenDoc,
  PieceOutcome,
  StoredDoc,
} from "../coord/files/file-store.ts";

/** A store of files in memory, whose clock the test sets. */
export class MemoryFiles implements FileStore {
  readonly kind = "local";
  time = 0;
  readonly docs = new Map<string, StoredDoc & { readonly place: DocPlace }>();
  readonly pieces = new Map<string, Buffer>();
  #seq = 0;

  now(): Promise<number> {
    return Promise.resolve(this.time);
  }

  create(id: string, text: string, place: DocPlace): Promise<CreateOutcome> {
    if (!this.docs.has(id)) this.docs.set(id, { id, text, version: 1, seq: (this.#seq += 1), place });
    return Promise.resolve("created");
  }

  read(id: string): Promise<StoredDoc | undefined> {
    return Promise.resolve(this.docs.get(id));
  }

  write(id: string, version: number, text: string, place: DocPlace): Promise<boolean> {
    const doc = this.docs.get(id);
    if (doc?.version !== version) return Promise.resolve(false);
    this.docs.set(id, { ...doc, text, version: version + 1, place });
    return Promise.resolve(true);
  }

  forget(id: string, version: number): Promise<boolean> {
    if (this.docs.get(id)?.version !== version) return Promise.resolve(false);
    this.docs.delete(id);
    for (const name of [...this.pieces.keys()]) if (name.startsWith(`${id}/`)) this.pieces.delete(name);
    return Promise.resolve(true);
  }

  list({ kind, keyId }: FileListQuery): Promise<readonly StoredDoc[]> {
    const all = [...this.docs.values()];
    return Promise.resolve(all.filter(({ place }) => place.kind === kind && (keyId ?? place.keyId) === place.keyId));
  }

  open(): Promise<readonly OpenDoc[]> {
    const open = [...this.docs.values()].filter(({ place }) => place.open);
    return Promise.resolve(open.map(({ id, place }) => ({ id, keyId: place.keyId })));
  }

  putPiece(id: string, name: string, bytes: Buffer): Promise<PieceOutcome> {
    if (!this.docs.has(id)) return Promise.resolve("unknown");
    this.pieces.set(`${id}/${name}`, Buffer.from(bytes));
    return Promise.resolve("kept");
  }

  piece(id: string, name: string): Promise<Buffer | undefined> {
    return Promise.resolve(this.pieces.get(`${id}/${name}`));
  }

  dropPieces(id: string, names: readonly string[]): Promise<void> {
    for (const name of names) this.pieces.delete(`${id}/${name}`);
    return Promise.resolve();
  }

  sweep(): Promise<void> {
    return Promise.resolve();
  }

  totals(): Promise<FileTotals> {
    return Promise.resolve({ docs: this.docs.size, bytes: 0 });
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
