import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { aGpuPolicy, aGpuSample } from "../../testing/gpu-samples.ts";
import { GpuBook, keyOf } from "./gpu-book.ts";
import { parseGpuName } from "./gpu-name.ts";
import type { GpuSample } from "./gpu-sample.ts";

const POLICY = aGpuPolicy();
const at = (seconds: number) => asMono(seconds * 1000);
const pageAsRead = (...samples: GpuSample[]) => ({ kind: "page", samples, whole: true }) as const;
let power = 0;
/** A reading of its own: what the cards draw is never twice the same. */
const page = (...samples: GpuSample[]) => {
  power += 1;
  return pageAsRead(...samples.map((sample) => ({ ...sample, powerW: power })));
};
const card = (index: number, part: Partial<GpuSample> = {}): GpuSample =>
  aGpuSample({ index, uuid: `GPU-${index}`, ...part });
const found = (book: GpuBook, name: string): string[] =>
  book.find(parseGpuName(name)!).map(({ sample }) => keyOf(sample));
const verdicts = (book: GpuBook, seconds: number): string[] =>
  book.cards().map(([key, known]) => `${key} ${book.verdict(known, at(seconds), POLICY).kind}`);

const names: readonly { readonly text: string; readonly name: unknown }[] = [
  { text: "GPU-8ea1", name: { kind: "uuid", uuid: "GPU-8ea1", instance: null } },
  { text: "MIG-8ea1", name: { kind: "uuid", uuid: "MIG-8ea1", instance: null } },
  { text: "GPU-8ea1/gi7", name: { kind: "uuid", uuid: "GPU-8ea1", instance: "7" } },
  { text: "node-a/GPU-8ea1", name: { kind: "uuid", uuid: "GPU-8ea1", instance: null } },
  { text: "a01.lab.example/3", name: { kind: "place", host: "a01.lab.example", index: 3, instance: null } },
  { text: "a/3/gi1", name: { kind: "place", host: "a", index: 3, instance: "1" } },
  { text: "0", name: undefined },
  { text: "-1", name: undefined },
  { text: "host/", name: undefined },
  { text: "/0", name: undefined },
  { text: "host/-1", name: undefined },
  { text: "host/12345", name: undefined },
  { text: "a/b/c", name: undefined },
  { text: "", name: undefined },
];
for (const { text, name } of names)
  test(`the name of a card: ${JSON.stringify(text)} [30.G1]`, () => assert.deepEqual(parseGpuName(text), name));

test("a card is found by its UUID in any case, and by host and index, and nothing by another host's [30.G1]", () => {
  const book = new GpuBook();
  book.look("s", page(card(0, { host: "Old" }), card(1, { host: "Old" })), at(0), POLICY);
  for (const name of ["gpu-0", "GPU-0", "old/0", "Old/0", "any-node/GPU-0"])
    assert.deepEqual(found(book, name), ["GPU-0"]);
  for (const name of ["new/0", "GPU-9", "old/7"]) assert.deepEqual(found(book, name), []);
});

test("two hosts with the same indices are two sets of cards [30.G1]", () => {
  const book = new GpuBook();
  book.look("a", page(aGpuSample({ host: "a", uuid: null })), at(0), POLICY);
  book.look("b", page(aGpuSample({ host: "b", uuid: null, temperatureC: 95 })), at(0), POLICY);
  assert.deepEqual(verdicts(book, 0), ["a/0 good", "b/0 faulted"]);
});

test("a card that takes another's place takes the name of the place too [30.G1]", () => {
  const book = new GpuBook();
  book.look("s", page(card(0), card(1)), at(0), POLICY);
  book.look("s", page(card(1, { uuid: "GPU-0" }), card(0, { uuid: "GPU-1" })), at(15), POLICY);
  assert.deepEqual([found(book, "h/0"), found(book, "h/1")], [["GPU-1"], ["GPU-0"]]);
  book.look("s", page(card(0, { uuid: "GPU-new" }), card(1, { uuid: "GPU-0" })), at(30), POLICY);
  assert.deepEqual([found(book, "h/0"), found(book, "GPU-1")], [["GPU-new"], ["GPU-1"]]);
});

test("MIG instances are cards of their own, and a card's own name means all of them [30.T3]", () => {
  const book = new GpuBook();
  const instance = (id: string, part: Partial<GpuSample> = {}) => card(6, { instance: id, ...part });
  book.look("s", page(card(0), instance("7", { xids: [] }), instance("8", { xids: [] })), at(0), POLICY);
  book.look("s", page(card(0), instance("7", { xids: [95] }), instance("8", { xids: [] })), at(15), POLICY);
  assert.deepEqual(found(book, "GPU-6"), ["GPU-6/gi7", "GPU-6/gi8"]);
  assert.deepEqual(found(book, "h/6/gi8"), ["GPU-6/gi8"]);
  assert.deepEqual(verdicts(book, 15), ["GPU-0 good", "GPU-6/gi7 faulted", "GPU-6/gi8 good"]);
});

test("a card that is split, split anew or made whole again lacks nothing [30.T3]", () => {
  const book = new GpuBook();
  const others = [card(0), card(1), card(2)];
  const looks = [
    [card(6)],
    [card(6, { instance: "7" }), card(6, { instance: "8" })],
    [card(6, { instance: "3" })],
    [card(6)],
  ];
  let seconds = 0;
  for (const cards of looks)
    for (let again = 0; again < 3; again += 1) book.look("s", page(...others, ...cards), at((seconds += 15)), POLICY);
  assert.deepEqual(verdicts(book, seconds), ["GPU-0 good", "GPU-1 good", "GPU-2 good", "GPU-6 good"]);
});

test("most cards missing at once is the source's fault: no card is lost by it [80.A13 80.A14]", () => {
  const book = new GpuBook();
  const all = Array.from({ length: 8 }, (_, index) => card(index));
  book.look("s", page(...all), at(0), POLICY);
  for (const seconds of [15, 30, 45]) book.look("s", page(...all.slice(0, 3)), at(seconds), POLICY);
  assert.equal(book.sources()[0]?.state, "partial");
  assert.ok(verdicts(book, 45).every((verdict) => verdict.endsWith("good")));
  for (const seconds of [60, 75]) book.look("s", page(...all.slice(0, 4)), at(seconds), POLICY);
  assert.equal(verdicts(book, 75).filter((verdict) => verdict.endsWith("faulted")).length, 4);
});

test("on a page of several hosts one that is missing as a whole loses no card, one card of it is lost [80.A13 80.A14]", () => {
  const book = new GpuBook();
  const of = (host: string, ...indices: number[]) =>
    indices.map((index) => card(index, { host, uuid: `GPU-${host}${index}` }));
  const other = of("b", 0, 1, 2, 3, 4, 5);
  book.look("s", page(...of("a", 0, 1), ...other), at(0), POLICY);
  for (const seconds of [15, 30, 45]) book.look("s", page(...other), at(seconds), POLICY);
  assert.deepEqual([book.sources()[0]?.state, book.sources()[0]?.why], ["partial", "2 of 8 cards are missing"]);
  assert.ok(verdicts(book, 45).every((verdict) => verdict.endsWith("good")));
  for (const seconds of [60, 75]) book.look("s", page(...of("a", 0), ...other), at(seconds), POLICY);
  assert.equal(book.sources()[0]?.state, "up");
  assert.deepEqual(
    verdicts(book, 75).filter((verdict) => !verdict.endsWith("good")),
    ["GPU-a1 faulted"],
  );
});

test("a card that one of two sources no longer tells of is not gone while the other does [80.A13]", () => {
  const book = new GpuBook();
  for (const seconds of [0, 15])
    for (const source of ["a", "b"]) book.look(source, page(card(0), card(1)), at(seconds), POLICY);
  for (const seconds of [30, 45, 60, 75]) {
    book.look("a", page(card(1)), at(seconds), POLICY);
    book.look("b", page(card(0), card(1)), at(seconds + 1), POLICY);
    assert.deepEqual(verdicts(book, seconds + 1), ["GPU-0 good", "GPU-1 good"]);
  }
  for (const source of ["a", "b", "a", "b"]) book.look(source, page(card(1)), at(90), POLICY);
  assert.deepEqual(verdicts(book, 90), ["GPU-0 faulted", "GPU-1 good"]);
});

test("an address behind which the exporters of two hosts answer in turn loses no card, and a lost one is seen all the same [80.A13 30.U1]", () => {
  const book = new GpuBook();
  const of = (host: string, ...indices: number[]) =>
    indices.map((index) => card(index, { uuid: `GPU-${host}${index}` }));
  const turns = [of("a", 0, 1, 2), of("b", 0, 1, 2), of("b", 0, 1, 2), of("b", 0, 1, 2), of("a", 0, 1, 2)];
  let seconds = 0;
  for (const turn of [...turns, ...turns]) book.look("s", page(...turn), at((seconds += 15)), POLICY);
  assert.equal(book.source("s")?.state, "partial");
  assert.equal(verdicts(book, seconds).filter((verdict) => verdict.endsWith("faulted")).length, 0);
  for (let again = 0; again < 2; again += 1) book.look("s", page(...of("b", 0, 2)), at((seconds += 15)), POLICY);
  assert.deepEqual(
    verdicts(book, seconds).filter((verdict) => verdict.endsWith("faulted")),
    ["GPU-b1 faulted"],
  );
});

test("a card in seven instances that falls off the bus is one card that is gone, not most of its host [30.U1]", () => {
  const book = new GpuBook();
  const split = Array.from({ length: 7 }, (_, at) => card(0, { instance: String(at + 1) }));
  book.look("s", page(...split, card(1)), at(0), POLICY);
  for (const seconds of [15, 30]) book.look("s", page(card(1)), at(seconds), POLICY);
  assert.equal(verdicts(book, 30).filter((verdict) => verdict.endsWith("faulted")).length, 7);
});

test("a page that an exporter gives out twice is one reading: a card that one slow collection left out is not gone [80.A13 30.U1]", () => {
  const book = new GpuBook();
  book.look("s", page(card(0), card(1)), at(0), POLICY);
  const slip = page(card(1));
  for (const seconds of [15, 30]) book.look("s", slip, at(seconds), POLICY);
  assert.deepEqual(verdicts(book, 30), ["GPU-0 good", "GPU-1 good"]);
  book.look("s", page(card(1)), at(45), POLICY);
  assert.deepEqual(verdicts(book, 45), ["GPU-0 faulted", "GPU-1 good"]);
});

test("a third page without the card is another reading, though nothing on it has changed: the card is gone [30.U1]", () => {
  const book = new GpuBook();
  book.look("s", page(card(0), card(1)), at(0), POLICY);
  const idle = page(card(1));
  for (const seconds of [15, 30]) book.look("s", idle, at(seconds), POLICY);
  assert.equal(verdicts(book, 30)[0], "GPU-0 good");
  book.look("s", idle, at(45), POLICY);
  assert.deepEqual(verdicts(book, 45), ["GPU-0 faulted", "GPU-1 good"]);
});

test("whose readings carry a name of their own, as agents' do, is believed at the second of them, however alike they are [30.U1]", () => {
  const book = new GpuBook();
  const same = pageAsRead(card(1));
  book.look("s", page(card(0), card(1)), at(0), POLICY);
  for (const seconds of [2, 4]) book.look("s", { ...same, reading: String(seconds) }, at(seconds), POLICY);
  assert.deepEqual(verdicts(book, 4), ["GPU-0 faulted", "GPU-1 good"]);
});

test("bad lines hide only the cards that they mention: another one's absence is seen [30.T2 30.U1]", () => {
  const book = new GpuBook();
  book.look("s", page(card(0), card(1), card(2), card(3), card(4)), at(0), POLICY);
  const mentions = ({ uuid }: GpuSample): boolean => uuid === "GPU-1";
  for (const seconds of [15, 30]) book.look("s", { ...page(card(0), card(3), card(4)), mentions }, at(seconds), POLICY);
  assert.deepEqual(
    verdicts(book, 30).filter((verdict) => !verdict.endsWith("good")),
    ["GPU-2 faulted"],
  );
});

test("a page with lines missing makes no card missing [30.T2]", () => {
  const book = new GpuBook();
  book.look("s", page(card(0), card(1)), at(0), POLICY);
  for (const seconds of [15, 30, 45]) book.look("s", { ...page(card(0)), whole: false }, at(seconds), POLICY);
  assert.deepEqual(verdicts(book, 45), ["GPU-0 good", "GPU-1 good"]);
});

test("a source that is down, one that tells of no card and one that is half there are told apart [30.U3]", () => {
  const book = new GpuBook();
  const state = (): string | undefined => book.sources()[0]?.state;
  book.addSource("s");
  assert.equal(state(), "waiting");
  book.look("s", page(card(0)), at(0), POLICY);
  assert.equal(state(), "up");
  book.look("s", page(), at(15), POLICY);
  assert.equal(state(), "empty");
  book.look("s", { kind: "failed", state: "down", why: "refused" }, at(30), POLICY);
  assert.equal(state(), "down");
  book.look("s", { kind: "failed", state: "unreadable", why: "no metrics page" }, at(45), POLICY);
  assert.equal(state(), "unreadable");
  assert.deepEqual(verdicts(book, 45), ["GPU-0 good"]);
  assert.deepEqual(verdicts(book, 61), ["GPU-0 unknown"]);
});

test("of two sources that tell of one card one is heard, and the other when that falls silent [30.T1]", () => {
  const book = new GpuBook();
  const sees = (source: string, temperatureC: number, seconds: number) =>
    book.look(source, page(card(0, { temperatureC })), at(seconds), POLICY);
  sees("exporter", 60, 0);
  sees("agent", 95, 1);
  assert.deepEqual(verdicts(book, 1), ["GPU-0 good"]);
  sees("agent", 95, 62);
  assert.deepEqual(verdicts(book, 62), ["GPU-0 faulted"]);
});

/** What the exporter and the agent of one host tell of one card, each under its own name of the host. */
const ofExporter = (part: Partial<GpuSample> = {}) => page(card(0, { host: "dns-name", xids: [], ...part }));
const ofAgent = (part: Partial<GpuSample> = {}) =>
  page(card(0, { teller: "agent", host: "node", sick: false, temperatureC: 50, ...part }));

test("an exporter is heard before an agent that told first, for it alone reads codes; what the agent finds counts too [30.T1 30.U1]", () => {
  const book = new GpuBook();
  const says = (seconds: number): string => {
    const [known] = book.find(parseGpuName("GPU-0")!);
    const verdict = book.verdict(known!, at(seconds), POLICY);
    return verdict.kind === "faulted" ? verdict.faults.map(({ kind }) => kind).join() : verdict.kind;
  };
  book.look("agent", ofAgent(), at(0), POLICY);
  book.look("exporter", ofExporter(), at(1), POLICY);
  book.look("agent", ofAgent(), at(5), POLICY);
  book.look("exporter", ofExporter({ xids: [79] }), at(16), POLICY);
  assert.equal(says(16), "xid");
  book.look("exporter", ofExporter(), at(31), POLICY);
  book.look("exporter", ofExporter(), at(91), POLICY);
  assert.equal(says(91), "good");
  book.look("agent", ofAgent({ sick: "GPU requires reset" }), at(92), POLICY);
  book.look("exporter", ofExporter(), at(106), POLICY);
  assert.equal(says(106), "reported");
  book.look("agent", ofAgent(), at(107), POLICY);
  book.look("exporter", ofExporter(), at(160), POLICY);
  book.look("agent", ofAgent(), at(167), POLICY);
  assert.equal(says(167), "good");
});

test("an exporter whose page stands still is not heard before an agent that reads on [30.T1 80.A13]", () => {
  const book = new GpuBook();
  const still = (seconds: number) =>
    book.look("exporter", pageAsRead(card(0, { energyMj: 5, temperatureC: 40 })), at(seconds), POLICY);
  for (let seconds = 0; seconds <= 400; seconds += 5) {
    if (seconds % 15 === 0) still(seconds);
    book.look("agent", ofAgent({ temperatureC: seconds === 400 ? 95 : 50 }), at(seconds), POLICY);
  }
  assert.deepEqual(verdicts(book, 400), ["GPU-0 faulted"]);
});

test("a code that an exporter has held for long is no incident when an agent was heard in between, or first [30.T4 80.A13]", () => {
  for (const first of ["exporter", "agent"]) {
    const book = new GpuBook();
    if (first === "exporter") book.look("exporter", ofExporter({ xids: [79] }), at(0), POLICY);
    for (let seconds = 70; seconds <= 400; seconds += 10) book.look("agent", ofAgent(), at(seconds), POLICY);
    for (const seconds of [500, 515]) book.look("exporter", ofExporter({ xids: [79] }), at(seconds), POLICY);
    assert.deepEqual(verdicts(book, 515), ["GPU-0 good"], `${first} first`);
  }
});

test("a card answers to each place where a source sees it, whichever source is heard [30.G1]", () => {
  const book = new GpuBook();
  book.look("exporter", ofExporter(), at(0), POLICY);
  for (let seconds = 0; seconds <= 300; seconds += 10) book.look("agent", ofAgent(), at(seconds), POLICY);
  for (const name of ["dns-name/0", "node/0", "GPU-0"]) assert.deepEqual(found(book, name), ["GPU-0"], name);
  book.removeSource("exporter");
  assert.deepEqual([found(book, "dns-name/0"), found(book, "node/0")], [[], ["GPU-0"]]);
});

test("a card that comes back to its place has the name of the place back [30.G1]", () => {
  const book = new GpuBook();
  const both = [card(0), card(1)];
  book.look("s", page(...both), at(0), POLICY);
  book.look("s", page(card(0, { uuid: "GPU-1" })), at(15), POLICY);
  assert.deepEqual([found(book, "h/0"), found(book, "h/1")], [["GPU-1"], []]);
  book.look("s", page(...both), at(30), POLICY);
  assert.deepEqual([found(book, "h/0"), found(book, "h/1")], [["GPU-0"], ["GPU-1"]]);
});

test("an exporter that leaves out UUIDs for a while tells of the same cards, and none is gone then or afterwards [30.G1 80.A13]", () => {
  const bare = [0, 1].map((index) => aGpuSample({ index, uuid: null }));
  for (const pages of [
    ["full", "bare", "full"],
    ["bare", "full", "bare", "full"],
  ]) {
    const book = new GpuBook();
    let seconds = 0;
    for (const kind of pages)
      for (let again = 0; again < 4; again += 1)
        book.look("s", page(...(kind === "full" ? [card(0), card(1)] : bare)), at((seconds += 15)), POLICY);
    assert.deepEqual(verdicts(book, seconds), ["GPU-0 good", "GPU-1 good"], pages.join());
    assert.deepEqual([found(book, "h/0"), found(book, "h/1")], [["GPU-0"], ["GPU-1"]]);
  }
});

test("cards of a host whose cards were replaced are no longer waited for at the operator's word, and the host's missing ones are seen again [30.U1 80.A14]", () => {
  const book = new GpuBook();
  const old = Array.from({ length: 8 }, (_, index) => card(index, { uuid: `GPU-old${index}` }));
  const fresh = [0, 1, 2, 3].map((index) => card(index));
  book.look("s", page(...old), at(0), POLICY);
  for (const seconds of [15, 30, 75, 90]) book.look("s", page(...fresh), at(seconds), POLICY);
  assert.equal(book.source("s")?.state, "partial");
  for (const { uuid } of old) book.clear(parseGpuName(uuid!)!, at(90), POLICY);
  book.look("s", page(...fresh), at(105), POLICY);
  assert.deepEqual([book.source("s")?.state, book.cards().length], ["up", 4]);
  for (const seconds of [120, 135]) book.look("s", page(...fresh.slice(1)), at(seconds), POLICY);
  assert.deepEqual(verdicts(book, 135), ["GPU-0 faulted", "GPU-1 good", "GPU-2 good", "GPU-3 good"]);
});

test("an agent that has said nothing for a day while others did has left, with its cards; an exporter is waited for [80.I9 30.T1]", () => {
  const book = new GpuBook();
  const left = card(1, { teller: "agent", host: "node" });
  book.look("agent node", page(left), at(0), POLICY);
  book.look("exporter", page(card(2)), at(0), POLICY);
  const other = (seconds: number) => book.look("agent other", page({ ...left, uuid: "GPU-3" }), at(seconds), POLICY);
  other(86_000);
  assert.deepEqual([book.sources().length, found(book, "GPU-1")], [3, ["GPU-1"]]);
  other(86_500);
  assert.deepEqual(
    book.sources().map(({ name }) => name),
    ["exporter", "agent other"],
  );
  assert.deepEqual([found(book, "GPU-1"), found(book, "node/1"), found(book, "GPU-2")], [[], ["GPU-3"], ["GPU-2"]]);
});

test("what a source told is forgotten with it [30.T1]", () => {
  const book = new GpuBook();
  book.look("a", page(card(0)), at(0), POLICY);
  book.look("b", page(card(1)), at(0), POLICY);
  book.removeSource("a");
  assert.deepEqual([verdicts(book, 0), found(book, "GPU-0")], [["GPU-1 good"], []]);
});

test("cards are bounded in number: fresh ones stay, the longest silent one makes room [80.I9]", () => {
  const book = new GpuBook();
  const many = (from: number, count: number): GpuSample[] =>
    Array.from({ length: count }, (_, step) => card(from + step));
  book.look("s", page(...many(0, 16_384)), at(0), POLICY);
  book.look("t", page(...many(20_000, 10)), at(1), POLICY);
  assert.equal(book.cards().length, 16_384);
  assert.deepEqual(found(book, "GPU-20000"), []);
  for (const seconds of [59, 61]) book.look("t", page(...many(20_000, 10)), at(seconds), POLICY);
  assert.deepEqual(found(book, "GPU-20000"), [], "a full book is not searched at each look");
  book.look("t", page(...many(20_000, 10)), at(65), POLICY);
  assert.equal(book.cards().length, 16_384);
  assert.deepEqual(found(book, "GPU-20000"), ["GPU-20000"]);
});
