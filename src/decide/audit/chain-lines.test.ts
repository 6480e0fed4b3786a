import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import type { ChainEntry } from "../../contract/audit-chain.ts";
import {
  ChainCheck,
  linkEntry,
  NO_HASH,
  readLink,
  sealLine,
  type ChainEnd,
  type ChainMaker,
  type ChainVerdict,
  type MacCheck,
} from "./chain-lines.ts";

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
const makerOf = (key: string): ChainMaker => ({
  keyId: hash(key).slice(0, 8),
  hash,
  mac: (text) => createHmac("sha256", key).update(text).digest("hex"),
});
const MAKER = makerOf("secret");
const OURS: MacCheck = (keyId, text, mac) => (keyId === MAKER.keyId ? MAKER.mac(text) === mac : null);

const anEntry = (index: number, change: Partial<ChainEntry> = {}): ChainEntry => ({
  time: 1_767_225_600_000 + index,
  request: `req-${index}`,
  who: "hmac:0123456789abcdef01234567",
  act: "POST /overflow/u/t",
  upstream: "u",
  status: 200,
  outcome: "money_committed",
  code: null,
  detail: 't: 0.50 EUR "\\ \u2028',
  ...change,
});

function aChain(count: number, maker = MAKER): { readonly lines: string[]; readonly end: ChainEnd } {
  let end: ChainEnd = { chain: "0123456789abcdef", seq: 0, hash: NO_HASH };
  const lines: string[] = [];
  for (let index = 1; index <= count; index += 1) {
    const link = linkEntry(anEntry(index), end, maker);
    lines.push(link.line);
    end = link;
  }
  return { lines, end };
}

const sealed = (count: number): string[] => {
  const { lines, end } = aChain(count);
  return [...lines, sealLine(1, end, 5, MAKER)];
};

function judge(lines: readonly string[], macIs: MacCheck | null = OURS): ChainVerdict {
  const check = new ChainCheck(hash, macIs);
  for (const line of lines) check.push(line);
  return check.end();
}
const badSeq = (verdict: ChainVerdict): number | null => (verdict.kind === "broken" ? verdict.seq : null);

test("a chain as it was written is whole, and each of its lines can be read back [80.C47 80.D33 80.I10]", () => {
  assert.deepEqual(judge(sealed(5)), { kind: "whole", chain: "0123456789abcdef", first: 1, last: 5, signed: true });
  assert.equal(judge(sealed(5), null).kind, "whole");
  const { lines, end } = aChain(3);
  assert.equal(readLink(lines[2] ?? "", hash, OURS)?.hash, end.hash);
  assert.equal(readLink((lines[2] ?? "").replace("0.50", "0.05"), hash, OURS), null);
});

test("an entry that is changed, dropped, moved, doubled or cut is named by the first number that is wrong [80.D33]", () => {
  const tamper = fc.constantFrom("change", "drop", "swap", "double", "half", "blank", "forge");
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 12 }), fc.nat(), tamper, fc.boolean(), (count, at, kind, isSigned) => {
      const lines = sealed(count);
      const place = kind === "swap" ? at % (count - 1) : at % count;
      const line = lines[place] ?? "";
      if (kind === "change") lines[place] = line.replace("0.50 EUR", "0.49 EUR");
      if (kind === "drop") lines.splice(place, 1);
      if (kind === "swap") lines.splice(place, 2, lines[place + 1] ?? "", line);
      if (kind === "double") lines.splice(place, 0, line);
      if (kind === "half") lines[place] = line.slice(0, line.length / 2);
      if (kind === "blank") lines[place] = "";
      // Who has no secret can still make the hash right.
      if (kind === "forge") lines[place] = rehashed(line.replace("0.50 EUR", "0.49 EUR"));
      // Without the secret the line that follows a forged one is the first that shows it; behind the last it is the seal.
      const unseen = kind === "forge" && !isSigned;
      const first = kind === "double" ? place + 2 : unseen ? Math.min(place + 2, count) : place + 1;
      assert.equal(badSeq(judge(lines, isSigned ? OURS : null)), first);
      // A first line that is gone is missed by what the seal says of the beginning.
      if (place > 0) assert.equal(badSeq(judge(lines.slice(1), isSigned ? OURS : null)), 1);
    }),
  );
});

function rehashed(line: string): string {
  const head = line.slice(0, line.lastIndexOf(',"hash":"'));
  return `${head},"hash":"${hash(head)}${line.slice(line.lastIndexOf(',"hash":"') + 9 + 64)}`;
}

test("entries that are missing at the end, with the seal or without it, are missed from the first one on [80.D33]", () => {
  const lines = sealed(6);
  const seal = lines.at(-1) ?? "";
  for (let kept = 1; kept < 6; kept += 1) {
    assert.equal(badSeq(judge([...lines.slice(0, kept), seal])), kept + 1);
    assert.equal(badSeq(judge(lines.slice(0, kept))), kept + 1);
  }
  assert.equal(badSeq(judge([seal])), 1);
  assert.equal(badSeq(judge([...lines, lines[0] ?? ""])), 7);
});

test("a chain that somebody made anew is not signed by who wrote it [80.D33 80.C47]", () => {
  const { lines, end } = aChain(4, makerOf("another"));
  assert.equal(badSeq(judge([...lines, sealLine(1, end, 5, makerOf("another"))])), 1);
  const stolen = { ...makerOf("another"), keyId: MAKER.keyId };
  const forged = aChain(4, stolen);
  assert.equal(badSeq(judge([...forged.lines, sealLine(1, forged.end, 5, stolen)])), 1);
});

test("a part of a chain is whole from where its seal says that it begins, and nothing at all is empty [80.C47]", () => {
  const { lines, end } = aChain(9);
  const part = [...lines.slice(4), sealLine(5, end, 5, MAKER)];
  assert.deepEqual(judge(part), { kind: "whole", chain: "0123456789abcdef", first: 5, last: 9, signed: true });
  assert.equal(badSeq(judge(part.slice(1))), 5);
  assert.equal(judge([sealLine(10, end, 5, MAKER)]).kind, "empty");
  assert.equal(judge([]).kind, "empty");
});

test("whatever the lines are, the check ends and never takes them for whole unless they are", () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.string(), fc.constantFrom(...sealed(4)))), (lines) => {
      const verdict = judge(lines);
      if (verdict.kind === "whole") assert.deepEqual(lines, sealed(4));
    }),
  );
});
