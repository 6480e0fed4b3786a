import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { aGpuPolicy, aGpuSample } from "../../testing/gpu-samples.ts";
import { GpuBook } from "./gpu-book.ts";
import { parseGpuName } from "./gpu-name.ts";
import type { GpuPolicy } from "./gpu-policy.ts";
import type { GpuSample } from "./gpu-sample.ts";
import type { XidClass } from "./xid-policy.ts";

const POLL_S = 15;
const CARD = parseGpuName("GPU-0")!;
const OTHER = aGpuSample({ uuid: "GPU-other", index: 1 });

/** One source that is looked at every 15 s; its page always tells of another card too. */
class Watched {
  readonly book = new GpuBook();
  readonly policy: GpuPolicy;
  now = 0;

  constructor(policy: Partial<GpuPolicy> = {}) {
    this.policy = aGpuPolicy(policy);
  }

  /** One look for each of the parts; null: the card is missing. */
  looks(...parts: readonly (Partial<GpuSample> | null)[]): this {
    for (const part of parts) {
      this.now += POLL_S * 1000;
      const other = { ...OTHER, powerW: this.now / 1000 };
      const samples = part === null ? [other] : [aGpuSample(part), other];
      this.book.look("s", { kind: "page", samples, whole: true }, asMono(this.now), this.policy);
    }
    return this;
  }

  fails(times: number): this {
    for (let time = 0; time < times; time += 1) {
      this.now += POLL_S * 1000;
      this.book.look("s", { kind: "failed", state: "down", why: "refused" }, asMono(this.now), this.policy);
    }
    return this;
  }

  /** "good", "unknown: why" or "faulted: kinds". */
  get says(): string {
    const [card] = this.book.find(CARD);
    if (card === undefined) return "not known";
    const verdict = this.book.verdict(card, asMono(this.now), this.policy);
    if (verdict.kind === "good") return "good";
    if (verdict.kind === "unknown") return `unknown: ${verdict.why}`;
    return `faulted: ${verdict.faults.map(({ kind }) => kind).join(", ")}`;
  }

  get saturated(): boolean {
    return this.book.find(CARD).some((card) => card.saturated(asMono(this.now), this.policy));
  }

  clear(): this {
    this.book.clear(CARD, asMono(this.now), this.policy);
    return this;
  }
}

const times = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);
const hot = { temperatureC: 90 };
const cool = { temperatureC: 60 };
const xid = (...codes: number[]): Partial<GpuSample> => ({ xids: codes });

interface Row {
  readonly name: string;
  readonly says: string;
  readonly after: () => Watched;
}

const rows: readonly Row[] = [
  {
    name: "heat at the limit is a fault at once [30.U1]",
    says: "faulted: temperature",
    after: () => new Watched().looks(cool, hot),
  },
  {
    name: "heat just below it is none [30.U1]",
    says: "good",
    after: () => new Watched().looks(cool, { temperatureC: 89.9 }),
  },
  {
    name: "heat at the very first look is a fault [30.U1]",
    says: "faulted: temperature",
    after: () => new Watched().looks(hot),
  },
  {
    name: "45 s of cool samples are not enough [30.U1]",
    says: "faulted: temperature",
    after: () => new Watched().looks(hot, ...times(4, cool)),
  },
  {
    name: "60 s of cool samples end it [30.U1]",
    says: "good",
    after: () => new Watched().looks(hot, ...times(5, cool)),
  },
  {
    name: "one hot sample among the cool ones begins the wait anew [30.U1]",
    says: "faulted: temperature",
    after: () => new Watched().looks(hot, cool, cool, cool, hot, cool, cool, cool, cool),
  },
  {
    name: "cool samples on both sides of an outage do not add up [30.U1]",
    says: "faulted: temperature",
    after: () => new Watched().looks(hot, cool, cool).fails(6).looks(cool, cool),
  },
  {
    name: "a stale card is unknown, whatever it was [30.U3]",
    says: "unknown: stale",
    after: () => new Watched().looks(hot).fails(5),
  },
  {
    name: "a temperature that is told no more is no heat after a while [30.U3]",
    says: "good",
    after: () => new Watched().looks(hot, ...times(5, { temperatureC: null })),
  },
  {
    name: "an XID that stood there at the first look is no incident [30.T4]",
    says: "good",
    after: () => new Watched().looks(...times(10, xid(79))),
  },
  {
    name: "a severe XID that comes is one [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks(xid(), xid(79)),
  },
  {
    name: "also where no XID was told before [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks({}, xid(79)),
  },
  {
    name: "without couple_xid it is not acted upon [30.U1]",
    says: "good",
    after: () => new Watched({ coupleXid: false }).looks(xid(), xid(79)),
  },
  {
    name: "79 that goes over to 13 does not improve the card [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks(xid(), xid(79), ...times(20, xid(13))),
  },
  {
    name: "codes are not added up: 31 and 48 are 48 [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks(xid(), xid(31, 48)),
  },
  {
    name: "application faults never eject, one after the other [30.T4]",
    says: "good",
    after: () => new Watched().looks(xid(), xid(13), xid(31), xid(43), xid(45), xid(13), xid(31)),
  },
  {
    name: "an exporter that starts anew (0, then 31 again) is no incident [30.T4]",
    says: "good",
    after: () => new Watched().looks(xid(31), xid(), xid(31), xid(31)),
  },
  {
    name: "a reset is over when the gauge has read 0 for long enough [30.U1]",
    says: "good",
    after: () => new Watched().looks(xid(), xid(62), ...times(5, xid())),
  },
  {
    name: "a code to reset for that is merely no longer told has not gone, for however long: an exporter that starts anew tells none [30.U1]",
    says: "faulted: xid",
    after: () => new Watched().looks({}, xid(62), ...times(5, {})),
  },
  {
    name: "a card that is off the bus does not come back by its code's mere absence [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks({}, xid(79), ...times(20, {})),
  },
  {
    name: "it comes back when the gauge reads 0 [30.T4]",
    says: "good",
    after: () => new Watched().looks({}, xid(79), ...times(5, xid())),
  },
  {
    name: "the operator's word makes a standing code an old one [30.T4]",
    says: "good",
    after: () =>
      new Watched()
        .looks(xid(), xid(79))
        .clear()
        .looks(...times(4, xid(79))),
  },
  {
    name: "after it the code that comes again is an incident [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks(xid(), xid(79)).clear().looks(xid(79), xid(), xid(79)),
  },
  {
    name: "a code whose series was left out once has not come again [30.T4]",
    says: "good",
    after: () => new Watched().looks(xid(79), {}, xid(79)),
  },
  { name: "109 once is none [30.T4]", says: "good", after: () => new Watched().looks(xid(), xid(109)) },
  {
    name: "109 that comes twice is one [30.T4]",
    says: "faulted: xid",
    after: () => new Watched().looks(xid(), xid(109), xid(), xid(109)),
  },
  {
    name: "an unknown code is not acted upon [30.T4]",
    says: "good",
    after: () => new Watched().looks(xid(), xid(999)),
  },
  {
    name: "the operator's table counts [30.T4]",
    says: "faulted: xid",
    after: () => new Watched({ xidOverrides: new Map<number, XidClass>([[999, "isolate"]]) }).looks(xid(), xid(999)),
  },
  {
    name: "and can take a code out [30.T4]",
    says: "good",
    after: () => new Watched({ xidOverrides: new Map<number, XidClass>([[48, "ignore"]]) }).looks(xid(), xid(48)),
  },
  {
    name: "double-bit errors from before are none [30.U1]",
    says: "good",
    after: () => new Watched().looks({ eccDoubleBit: 3 }, { eccDoubleBit: 3 }),
  },
  {
    name: "a new one is a fault [30.U1]",
    says: "faulted: ecc",
    after: () => new Watched().looks({ eccDoubleBit: 3 }, { eccDoubleBit: 4 }),
  },
  {
    name: "until the driver is loaded anew and counts from 0 [30.U1]",
    says: "good",
    after: () => new Watched().looks({ eccDoubleBit: 0 }, { eccDoubleBit: 1 }, ...times(5, { eccDoubleBit: 0 })),
  },
  {
    name: "a row that could not be remapped is a fault, also at the first look [30.U1]",
    says: "faulted: rowRemap",
    after: () => new Watched().looks({ rowRemapFailed: true }),
  },
  {
    name: "which the operator can take for known [30.U1]",
    says: "good",
    after: () => new Watched().looks({ rowRemapFailed: true }).clear().looks({ rowRemapFailed: true }),
  },
  { name: "one page without the card is a slip [30.U1]", says: "good", after: () => new Watched().looks({}, null) },
  { name: "two are a lost card [30.U1]", says: "faulted: gone", after: () => new Watched().looks({}, null, null) },
  {
    name: "it stays lost for as long as its source tells of others [30.U1 30.U3]",
    says: "faulted: gone",
    after: () => new Watched().looks({}, ...times(40, null)),
  },
  {
    name: "and is unknown when that falls silent too [30.U3]",
    says: "unknown: stale",
    after: () => new Watched().looks({}, null, null).fails(5),
  },
  {
    name: "without couple_xid it is unknown [30.U1]",
    says: "unknown: stale",
    after: () => new Watched({ coupleXid: false }).looks({}, null, null),
  },
  {
    name: "a lost card that is back waits its 60 s [30.U1]",
    says: "faulted: gone",
    after: () => new Watched().looks({}, null, null, ...times(4, {})),
  },
  { name: "and is good then [30.U1]", says: "good", after: () => new Watched().looks({}, null, null, ...times(5, {})) },
  {
    name: "the operator's word ends the wait for a card that was taken away [30.U1]",
    says: "not known",
    after: () => new Watched().looks({}, null, null).clear(),
  },
  {
    name: "what an agent found is a fault [30.T1]",
    says: "faulted: reported",
    after: () => new Watched().looks({ sick: "ECC" }),
  },
  {
    name: "severe faults are named before heat [30.U2]",
    says: "faulted: xid, temperature",
    after: () => new Watched().looks(xid(), { ...hot, xids: [48] }),
  },
  {
    name: "a page whose times stand still is frozen, though it is there at each look [30.T2 80.A13]",
    says: "unknown: frozen",
    after: () => new Watched().looks({ stampMs: 1 }, { stampMs: 2 }, ...times(6, { stampMs: 2 })),
  },
  {
    name: "what it says of faults is then old too [80.A13]",
    says: "unknown: frozen",
    after: () => new Watched().looks({ ...hot, stampMs: 1 }, ...times(6, { ...hot, stampMs: 1 })),
  },
  {
    name: "an energy counter that stands still is that of a frozen page [80.A13]",
    says: "unknown: frozen",
    after: () => new Watched().looks(...times(15, { energyMj: 5_000 })),
  },
  {
    name: "for two of the exporter's own intervals it may [80.A13]",
    says: "good",
    after: () => new Watched().looks(...times(5, { energyMj: 5_000 })),
  },
  {
    name: "one that stands still beside values that move is broken alone: the page is heard [30.U1]",
    says: "faulted: temperature",
    after: () => new Watched().looks(...times(15, { energyMj: 5_000 }), { ...hot, energyMj: 5_000 }),
  },
];
for (const row of rows) test(`a card: ${row.name}`, () => assert.equal(row.after().says, row.says));

const busy = { utilization: 95 };
const sheds: readonly { readonly name: string; readonly saturated: boolean; readonly after: () => Watched }[] = [
  { name: "three samples are not enough", saturated: false, after: () => new Watched().looks(...times(3, busy)) },
  { name: "four are", saturated: true, after: () => new Watched().looks(...times(4, busy)) },
  {
    name: "one of four just below the limit is enough to be none",
    saturated: false,
    after: () => new Watched().looks(busy, busy, { utilization: 94.9 }, busy),
  },
  {
    name: "it ends with the first sample below",
    saturated: false,
    after: () => new Watched().looks(...times(9, busy), { utilization: 10 }),
  },
  {
    name: "a single missed look does not begin anew",
    saturated: true,
    after: () => new Watched().looks(busy, busy).fails(1).looks(busy, busy),
  },
  {
    name: "nor does a sample that does not tell",
    saturated: true,
    after: () => new Watched().looks(busy, busy, { utilization: null }, busy, busy),
  },
  {
    name: "staleness does",
    saturated: false,
    after: () =>
      new Watched()
        .looks(...times(4, busy))
        .fails(5)
        .looks(busy),
  },
  {
    name: "and what is stale is not saturated",
    saturated: false,
    after: () => new Watched().looks(...times(4, busy)).fails(5),
  },
  {
    name: "load that comes and goes faster than the window never is",
    saturated: false,
    after: () =>
      new Watched().looks(...Array.from({ length: 30 }, (_, at) => ({ utilization: at % 4 === 3 ? 20 : 100 }))),
  },
  {
    name: "a utilisation that is told no more is one of the past, however fresh the rest",
    saturated: false,
    after: () => new Watched().looks(...times(4, busy), ...times(5, { utilization: null })),
  },
  {
    name: "and when it is told again, the count begins anew",
    saturated: false,
    after: () => new Watched().looks(...times(4, busy), ...times(5, { utilization: null }), busy),
  },
  {
    name: "a card that tells no utilisation never is",
    saturated: false,
    after: () => new Watched().looks(...times(9, { utilization: null })),
  },
];
for (const row of sheds)
  test(`saturation: ${row.name} [30.H1]`, () => assert.equal(row.after().saturated, row.saturated));

test("a card that no longer tells its XID or temperature is shown as blind for that [30.T3]", () => {
  const watched = new Watched().looks(xid(31), { temperatureC: null });
  assert.deepEqual([...watched.book.find(CARD)[0]!.lost].toSorted(), ["temperature", "xid"]);
  watched.looks(xid());
  assert.equal(watched.book.find(CARD)[0]!.lost.size, 0);
});
