import type { ChainEntry } from "../../contract/audit-chain.ts";

/** Hashes and signatures, as 64 hex digits: this module knows no cryptography. */
export interface ChainMaker {
  readonly keyId: string;
  hash(text: string): string;
  mac(text: string): string;
}

/** Whether the signature is by the key of this id; null: there is no such key here. */
export type MacCheck = (keyId: string, text: string, mac: string) => boolean | null;

export interface ChainEnd {
  readonly chain: string;
  readonly seq: number;
  readonly hash: string;
}

export interface ChainLink extends ChainEnd {
  readonly line: string;
}

/** What the first line has in the place of the hash before it. */
export const NO_HASH = "0".repeat(64);

// JSON leaves U+2028 as it is, which only a dot of this kind takes.
const LINE =
  /^(\{"seq":(\d{1,15}),"chain":"([0-9a-f]{16})","prev":"([0-9a-f]{64})",.*),"hash":"([0-9a-f]{64})","mac":"([0-9a-f]{64})","key":"([0-9a-f]{8})"\}$/s;
const SEAL =
  /^(\{"seal":\{"chain":"([0-9a-f]{16})","first":(\d{1,15}),"last":(\d{1,15}),"hash":"([0-9a-f]{64})","time":\d{1,15}\}),"mac":"([0-9a-f]{64})","key":"([0-9a-f]{8})"\}$/;

/** The next line behind the end. What is hashed is the line's own text up to the hash, so no two texts mean one entry. */
export function linkEntry(entry: ChainEntry, after: ChainEnd, maker: ChainMaker): ChainLink {
  const seq = after.seq + 1;
  const { chain } = after;
  const head = JSON.stringify({ seq, chain, prev: after.hash, ...entry }).slice(0, -1);
  const hash = maker.hash(head);
  return { chain, seq, hash, line: `${head},"hash":"${hash}","mac":"${maker.mac(hash)}","key":"${maker.keyId}"}` };
}

/** Says that the chain ends here: without it nobody could see that its last lines are missing. */
export function sealLine(first: number, end: ChainEnd, time: number, maker: ChainMaker): string {
  const head = JSON.stringify({ seal: { chain: end.chain, first, last: end.seq, hash: end.hash, time } }).slice(0, -1);
  return `${head},"mac":"${maker.mac(head)}","key":"${maker.keyId}"}`;
}

/** The end of the chain that a stored line stands for; null: it is no line of a chain, or not as it was written. */
export function readLink(line: string, hash: ChainMaker["hash"], macIs: MacCheck): ChainLink | null {
  const [, head = "", seq = "", chain = "", , told = "", mac = "", key = ""] = LINE.exec(line) ?? [];
  return head !== "" && hash(head) === told && macIs(key, told, mac) === true
    ? { chain, seq: Number(seq), hash: told, line }
    : null;
}

export type ChainVerdict =
  | {
      readonly kind: "whole";
      readonly chain: string;
      readonly first: number;
      readonly last: number;
      /** False: nobody gave the keys, so that only the hashes were checked. */
      readonly signed: boolean;
    }
  | { readonly kind: "empty" }
  /** `seq`: the first number whose entry is not as it was written, or not there. */
  | { readonly kind: "broken"; readonly seq: number; readonly why: string };

/**
 * Checks the lines of an export, one after the other, and remembers the first that is wrong.
 *
 * Invariants:
 *   V1. An entry that was changed, dropped, moved, put in or cut off is named by the number at which the chain stops being whole.
 *   V2. Nothing after the first fault counts, but for the seal's word on where the chain began.
 *   V3. A chain without its seal is not whole: its end may be missing.
 */
export class ChainCheck {
  readonly #hash: ChainMaker["hash"];
  readonly #macIs: MacCheck | null;
  #first: number | null = null;
  #chain = "";
  #seq = 0;
  #prev = "";
  #sealed = false;
  #fault: { readonly seq: number; readonly why: string } | null = null;

  /** `macIs` null: signatures are not looked at. */
  constructor(hash: ChainMaker["hash"], macIs: MacCheck | null) {
    this.#hash = hash;
    this.#macIs = macIs;
  }

  push(line: string): void {
    if (this.#fault !== null) return this.#lookForBegin(line);
    if (this.#sealed) return this.#broken(this.#next, "there are lines behind the seal");
    const entry = LINE.exec(line);
    if (entry !== null) return this.#onEntry(entry);
    const seal = SEAL.exec(line);
    if (seal !== null) return this.#onSeal(seal);
    this.#broken(this.#next, "its line can't be read");
  }

  end(): ChainVerdict {
    if (this.#fault !== null) return { kind: "broken", ...this.#fault };
    if (!this.#sealed && this.#first === null) return { kind: "empty" };
    if (!this.#sealed)
      return { kind: "broken", seq: this.#next, why: "the seal is missing, so entries may be missing from here on" };
    if (this.#first === null) return { kind: "empty" };
    return {
      kind: "whole",
      chain: this.#chain,
      first: this.#first,
      last: this.#seq,
      signed: this.#macIs !== null,
    };
  }

  get #next(): number {
    return this.#seq + 1;
  }

  #onEntry([, head = "", number = "", chain = "", prev = "", hash = "", mac = "", key = ""]: RegExpExecArray): void {
    const seq = Number(number);
    if (this.#first === null) {
      this.#first = seq;
      this.#chain = chain;
      this.#seq = seq - 1;
      this.#prev = seq === 1 ? NO_HASH : prev;
    }
    const expected = this.#next;
    if (seq !== expected)
      return this.#broken(seq < this.#first ? seq : expected, `entry ${seq} stands where ${expected} should`);
    if (this.#hash(head) !== hash) return this.#broken(seq, "it was changed");
    if (chain !== this.#chain) return this.#broken(seq, "it is of another chain");
    if (prev !== this.#prev) return this.#broken(seq, "it does not follow the one before it");
    if (!this.#isSigned(seq, hash, mac, key)) return;
    this.#seq = seq;
    this.#prev = hash;
  }

  #onSeal([, head = "", chain = "", first = "", last = "", hash = "", mac = "", key = ""]: RegExpExecArray): void {
    if (!this.#isSigned(this.#next, head, mac, key)) return;
    const [from, to] = [Number(first), Number(last)];
    if (this.#first === null) {
      // An export of nothing: the chain was at its end already.
      if (from <= to) return this.#broken(from, "it is missing");
    } else if (this.#first !== from) return this.#broken(from, `the entries before ${this.#first} are missing`);
    else if (chain !== this.#chain) return this.#broken(this.#next, "the seal is of another chain");
    else if (to !== this.#seq)
      return this.#broken(Math.min(to, this.#seq) + 1, `the seal says that ${to} entries were there`);
    else if (hash !== this.#prev) return this.#broken(this.#seq, "it is not the entry that was sealed");
    this.#sealed = true;
  }

  #lookForBegin(line: string): void {
    const [, head = "", , first = "", , , mac = "", key = ""] = SEAL.exec(line) ?? [];
    const from = Number(first);
    if (head === "" || this.#first === null || from >= this.#first || this.#macIs?.(key, head, mac) === false) return;
    this.#broken(from, `the entries before ${this.#first} are missing`);
  }

  #isSigned(seq: number, text: string, mac: string, key: string): boolean {
    const good = this.#macIs === null ? true : this.#macIs(key, text, mac);
    if (good === true) return true;
    this.#broken(
      seq,
      good === null ? `it is signed with the key ${key}, which was not given` : "its signature is wrong",
    );
    return false;
  }

  #broken(seq: number, why: string): void {
    this.#fault = { seq, why };
  }
}
