import { YardmasterError } from "../../kernel/errors.ts";

export type DocKind = "file" | "batch";

/** What a document is found by, besides its id. */
export interface DocPlace {
  readonly kind: DocKind;
  readonly keyId: string;
  /** In lists. */
  readonly shown: boolean;
  /** Somebody has work with it. */
  readonly open: boolean;
  /** By the store's clock; then it is forgotten, with its pieces. */
  readonly expiresAt: number;
}

export interface StoredDoc {
  readonly id: string;
  /** JSON. */
  readonly text: string;
  /** Grows by one with each change. */
  readonly version: number;
  /** Grows from document to document. */
  readonly seq: number;
}

/** Told without its text, since somebody asks again and again. */
export interface OpenDoc {
  readonly id: string;
  readonly keyId: string;
}

export interface FileLimits {
  /** Files and batches that are kept. */
  readonly docsMax: number;
  /** Of pieces, of all keys together. */
  readonly bytesMax: number;
  /** Of one key. */
  readonly keyBytesMax: number;
  /** Batches of one key that are open. */
  readonly keyOpenMax: number;
}

export type CreateOutcome = "created" | "docs" | "open";
/** Why a piece was not kept: a bound, or there is no such document. */
export type PieceOutcome = "kept" | "bytes" | "unknown";

export interface FileListQuery {
  readonly kind: DocKind;
  /** Null: of all keys. */
  readonly keyId: string | null;
  readonly limit: number;
  /** Of the last one of the page before. */
  readonly after: number | null;
  readonly oldestFirst: boolean;
}

export interface FileTotals {
  readonly docs: number;
  readonly bytes: number;
}

/**
 * Where files and batches live: documents that change over their version alone, and pieces of bytes that belong to a document and
 * never change. A file's document names its pieces, so what nobody named in the end is in no file, whoever wrote it.
 *
 * Invariants:
 *   F1. A change is written whole or not at all, and only over the version that it was made from.
 *   F2. A change that was answered is as durable as the store is, and so are the pieces that were kept before it.
 *   F3. Every method ends: by its result, or by a rejection with FILE_STORE_UNAVAILABLE, after which nobody can know whether it took
 *       effect. Each may be repeated.
 *   F4. Documents and bytes are bounded, but for pieces that work which was accepted comes to (`bounded: false`).
 */
export interface FileStore {
  readonly kind: "local" | "redis";
  /** The store's clock. */
  now(): Promise<number>;
  /** Told again it changes nothing: an id is given once. */
  create(id: string, text: string, place: DocPlace): Promise<CreateOutcome>;
  read(id: string): Promise<StoredDoc | undefined>;
  /** False: it is no longer of that version. */
  write(id: string, version: number, text: string, place: DocPlace): Promise<boolean>;
  /** With its pieces. False: it is no longer of that version. */
  forget(id: string, version: number): Promise<boolean>;
  list(query: FileListQuery): Promise<readonly StoredDoc[]>;
  /** Open documents, oldest first. */
  open(limit: number): Promise<readonly OpenDoc[]>;
  /** The bytes are the store's from then on. */
  putPiece(id: string, name: string, bytes: Buffer, bounded: boolean): Promise<PieceOutcome>;
  /** Undefined: there is none of this name. */
  piece(id: string, name: string): Promise<Buffer | undefined>;
  dropPieces(id: string, names: readonly string[]): Promise<void>;
  /** Forgets what has expired. */
  sweep(): Promise<void>;
  totals(): Promise<FileTotals>;
  close(): Promise<void>;
}

export const PIECE_BYTES = 256 * 1024;

/** For F3. `why` in words. */
export const filesUnavailable = (why: string): YardmasterError =>
  new YardmasterError("FILE_STORE_UNAVAILABLE", `the store of the files can't be used: ${why}`);
