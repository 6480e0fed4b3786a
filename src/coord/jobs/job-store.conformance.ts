import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { JobRecord } from "../../contract/job.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import { eventually, within } from "../../testing/wait-for.ts";
import type { JobBlobs, JobStore, JobStoreLimits } from "./job-store.ts";

/** A store that is there, and may be opened again over what it held. */
export interface StoreUnderTest {
  open(limits?: Partial<JobStoreLimits>): Promise<JobStore>;
}

export const anAsk = (change: Partial<JobAsk> = {}): JobAsk => ({
  keyId: "k",
  weight: 1,
  allowExternal: false,
  class: "batch",
  model: "m",
  upstream: null,
  method: "POST",
  path: "/v1/chat/completions",
  contentType: "application/json",
  parts: null,
  allowPartial: false,
  onShed: "requeue",
  metadata: null,
  idempotency: null,
  keepMs: 60_000,
  attemptsMax: 3,
  bodyBytes: 2,
  callbackUrl: null,
  deadlineMs: 60_000,
  ...change,
});

const BODY = new Map([["body", Buffer.from("{}")]]);
const bodyOf = (bytes: number): JobBlobs => (bytes === 2 ? BODY : new Map([["body", Buffer.alloc(bytes, 0x20)]]));
const LEASE_MS = 20_000;
const error = { code: "UPSTREAM_ERROR", message: "broke" } as const;
const ANSWER = Buffer.from("an answer\u0000\xff", "latin1");
const done = (token: string) =>
  ({
    kind: "complete",
    token,
    result: { status: 200, contentType: "text/plain", bytes: ANSWER.length },
    why: "answered",
  }) as const;
const wish = (max: number, model = "m") => [{ class: "batch", lanes: [`m:${model}`], max }] as const;

async function accepted(store: JobStore, change: Partial<JobAsk> = {}): Promise<JobRecord> {
  const outcome = await store.submit(anAsk(change), bodyOf(change.bodyBytes ?? 2));
  assert.equal(outcome.kind, "accepted");
  return (outcome as { job: JobRecord }).job;
}

async function claimOne(store: JobStore, leaseMs = LEASE_MS): Promise<{ readonly id: string; readonly token: string }> {
  const [job] = await store.claim(wish(1), leaseMs);
  if (job?.claim === undefined || job.claim === null) throw new Error("nothing could be claimed");
  return { id: job.id, token: job.claim.token };
}

/** The same assertions for every store of jobs. */
export function jobStoreSuite(name: string, fresh: () => Promise<StoreUnderTest>): void {
  describe(`jobs in ${name}`, () => {
    keepingSuite(fresh);
    claimingSuite(fresh);
    idempotencySuite(fresh);
    boundsSuite(fresh);
  });
}

function keepingSuite(fresh: () => Promise<StoreUnderTest>): void {
  test("what was accepted is there with its bytes, also after the store was opened anew [20.J4]", async () => {
    const under = await fresh();
    const first = await under.open();
    const job = await accepted(first, { metadata: { a: "ü" } });
    assert.match(job.id, new RegExp(`^job_${first.epoch}_[A-Za-z0-9_-]{22}$`));
    await first.close();
    const store = await under.open();
    assert.equal(store.epoch, first.epoch);
    const read = await store.get(job.id);
    assert.deepEqual(read?.job, job);
    assert.deepEqual(await store.readBlob(job.id, "body"), BODY.get("body"));
    assert.equal(await store.get(`job_${store.epoch}_nobody`), undefined);
    await store.close();
  });

  test("a result's bytes are those of the engine, and one outcome is kept [20.J3]", async () => {
    const store = await (await fresh()).open();
    await accepted(store);
    const { id, token } = await claimOne(store);
    const outcome = await store.change(id, done(token), ANSWER);
    assert.ok(outcome.kind === "moved" && outcome.ended && outcome.job.state === "completed");
    assert.deepEqual(await store.readBlob(id, "result"), ANSWER);
    const again = await store.change(id, done(token), Buffer.from("other"));
    assert.equal(again.kind, "same");
    assert.deepEqual(await store.readBlob(id, "result"), ANSWER, "an outcome that is told twice is not written twice");
    assert.equal((await store.change(id, { kind: "cancel", by: "k" })).kind, "refused");
    assert.equal((await store.change("job_x_y", { kind: "cancel", by: "k" })).kind, "unknown");
    await store.close();
  });

  test("lists are of one key, newest first, by state, page by page [20.J1]", async () => {
    const store = await (await fresh()).open();
    const ids: string[] = [];
    for (let i = 0; i < 7; i += 1) ids.push((await accepted(store, { keyId: i === 3 ? "other" : "k" })).id);
    await store.change(ids[5]!, { kind: "cancel", by: "k" });
    const own = ids.filter((_, i) => i !== 3).reverse();
    const seen: string[] = [];
    for (let cursor: number | null = null; ;) {
      const page = await store.list({ keyId: "k", state: null, limit: 2, cursor });
      seen.push(...page.jobs.map(({ job }) => job.id));
      cursor = page.cursor;
      if (cursor === null) break;
    }
    assert.deepEqual(seen, own);
    const cancelled = await store.list({ keyId: "k", state: "cancelled", limit: 10, cursor: null });
    assert.deepEqual(
      cancelled.jobs.map(({ job }) => job.id),
      [ids[5]],
    );
    assert.equal((await store.list({ keyId: null, state: null, limit: 10, cursor: null })).jobs.length, 7);
    await store.close();
  });

  test("parts are kept one by one, only for who holds the claim, and counted [20.J6]", async () => {
    const store = await (await fresh()).open();
    await accepted(store, { parts: 3 });
    const { id, token } = await claimOne(store);
    const part = { index: 1, result: { status: 200, contentType: "text/plain", bytes: ANSWER.length }, error: null };
    assert.equal(await store.writePart(id, token, part, ANSWER), true);
    assert.equal(await store.writePart(id, token, part, ANSWER), true, "told twice");
    assert.equal(await store.writePart(id, token, { index: 2, result: null, error }, null), true);
    assert.equal(await store.writePart(id, "another", { ...part, index: 0 }, ANSWER), false);
    assert.deepEqual(
      (await store.parts(id)).map(({ index }) => index),
      [1, 2],
    );
    assert.deepEqual(await store.readPartBytes(id, 1), ANSWER);
    assert.equal(await store.readPartBytes(id, 2), undefined);
    assert.equal((await store.get(id))?.partsDone, 2);
    await store.close();
  });

  test("a job is forgotten when its time after the end has passed, with all that belongs to it [20.J4 80.I9]", async () => {
    const store = await (await fresh()).open();
    const job = await accepted(store, { keepMs: 50 });
    await store.change(job.id, { kind: "cancel", by: "k" });
    const gone = async (): Promise<boolean> => {
      await store.sweep();
      return (await store.get(job.id)) === undefined;
    };
    await eventually("the end of its time", gone, (is) => is);
    assert.equal(await store.readBlob(job.id, "body"), undefined);
    const counts = await store.counts();
    assert.deepEqual([counts.kept, counts.bytes], [0, 0]);
    await store.close();
  });
}

function claimingSuite(fresh: () => Promise<StoreUnderTest>): void {
  test("of many that claim at once each job goes to one, with a token of its own [80.I2 20.J3 80.C26]", async () => {
    const under = await fresh();
    const store = await under.open();
    for (let i = 0; i < 20; i += 1) await accepted(store);
    const claimed: JobRecord[] = [];
    for (let round = 0; round < 20 && claimed.length < 20; round += 1)
      claimed.push(...(await Promise.all(Array.from({ length: 12 }, () => store.claim(wish(5), LEASE_MS)))).flat());
    assert.equal(claimed.length, 20);
    assert.equal(new Set(claimed.map((job) => job.id)).size, 20);
    assert.equal(new Set(claimed.map((job) => job.claim?.token)).size, 20);
    await store.close();
  });

  test("only the wished class and lanes, in order, up to the number [20.J6]", async () => {
    const store = await (await fresh()).open();
    const first = await accepted(store);
    await accepted(store, { model: "n" });
    await accepted(store, { class: "interactive" });
    const second = await accepted(store);
    await accepted(store);
    const claimed = await store.claim(wish(2), LEASE_MS);
    assert.deepEqual(
      claimed.map((job) => job.id),
      [first.id, second.id],
    );
    await store.close();
  });

  test("from the end the last ones come first, and nobody's turn is counted by it [20.J9]", async () => {
    const store = await (await fresh()).open();
    const jobs: JobRecord[] = [];
    for (let i = 0; i < 10; i += 1) jobs.push(await accepted(store, { keyId: "many" }));
    const ended = await store.claim([{ class: "batch", lanes: ["m:m", "m:none"], max: 2, fromEnd: true }], LEASE_MS);
    assert.deepEqual(
      ended.map(({ id }) => id),
      [jobs[9]!.id, jobs[8]!.id],
    );
    const one = await accepted(store, { keyId: "one" });
    const next = await store.claim(wish(2), LEASE_MS);
    assert.deepEqual(next.map(({ id }) => id).toSorted(), [jobs[0]!.id, one.id].toSorted());
    await store.close();
  });

  test("keys take turns: one key's backlog is one turn for another's job", async () => {
    const store = await (await fresh()).open();
    for (let i = 0; i < 10; i += 1) await accepted(store, { keyId: "many" });
    await store.claim(wish(3), LEASE_MS);
    const one = await accepted(store, { keyId: "one" });
    const next = await store.claim(wish(2), LEASE_MS);
    assert.ok(
      next.some((job) => job.id === one.id),
      next.map((job) => job.keyId).join(),
    );
    await store.close();
  });

  test("a claim that is not renewed runs out, the job is driven again, and the late worker is refused [20.J3 80.G4 80.C26]", async () => {
    const store = await (await fresh()).open();
    const job = await accepted(store);
    const late = await claimOne(store, 60);
    const requeued = async (): Promise<string | undefined> => {
      await store.sweep();
      return (await store.get(job.id))?.job.state;
    };
    await eventually("the end of its lease", requeued, (state) => state === "queued");
    let second: readonly JobRecord[] = [];
    const claimable = async (): Promise<number> => {
      await store.sweep();
      return (second = second.length > 0 ? second : await store.claim(wish(1), LEASE_MS)).length;
    };
    await eventually("the delay before the second attempt", claimable, (count) => count === 1);
    assert.equal(second[0]?.attempts, 2);
    const refused = await store.change(job.id, done(late.token), ANSWER);
    assert.deepEqual([refused.kind, refused.kind === "refused" && refused.why], ["refused", "stale"]);
    assert.equal(await store.readBlob(job.id, "result"), undefined);
    assert.equal(await store.writePart(job.id, late.token, { index: 0, result: null, error }, null), false);
    assert.equal((await store.change(job.id, done(second[0]?.claim?.token ?? ""), ANSWER)).kind, "moved");
    await store.close();
  });

  test("a claim that is renewed lasts [20.J3]", async () => {
    const store = await (await fresh()).open();
    await accepted(store);
    const { id, token } = await claimOne(store, 300);
    let until = 0;
    for (let i = 0; i < 6; i += 1) {
      const renewed = await store.change(id, { kind: "renew", token, leaseMs: 300 });
      assert.equal(renewed.kind, "moved");
      const now = renewed.kind === "moved" ? (renewed.job.claim?.until ?? 0) : 0;
      assert.ok(now >= until);
      until = now;
      assert.deepEqual(await store.sweep(), []);
    }
    await store.close();
  });

  test("a claim that runs out after parts were done costs no attempt, and one with nothing new does [20.J3 20.J6]", async () => {
    const store = await (await fresh()).open();
    const { id } = await accepted(store, { parts: 2 });
    const lose = async (before?: (token: string) => Promise<unknown>): Promise<number | undefined> => {
      let token: string | undefined;
      await eventually(
        "the claim",
        async () => {
          await store.sweep();
          token = (await store.claim(wish(1), 1))[0]?.claim?.token;
        },
        () => token !== undefined,
      );
      await before?.(token ?? "");
      await eventually(
        "the loss",
        async () => {
          await store.sweep();
          return (await store.get(id))?.job.state;
        },
        (state) => state === "queued",
      );
      return (await store.get(id))?.job.attempts;
    };
    const part = { index: 0, result: { status: 200, contentType: "text/plain", bytes: ANSWER.length }, error: null };
    assert.equal(await lose((token) => store.writePart(id, token, part, ANSWER)), 0);
    assert.equal(await lose(), 1, "the same part is not counted once more");
    await store.close();
  });

  test("a job past its deadline fails, whatever its claim [20.J3]", async () => {
    const store = await (await fresh()).open();
    const job = await accepted(store, { deadlineMs: 60 });
    await claimOne(store);
    const swept: JobRecord[] = [];
    await eventually(
      "its deadline",
      async () => swept.push(...(await store.sweep())),
      () => swept.length > 0,
    );
    assert.deepEqual(
      swept.map(({ id, state, error: why }) => [id, state, why?.code]),
      [[job.id, "failed", "JOB_DEADLINE"]],
    );
    await store.close();
  });

  test("a change is told to who listens [20.J1]", async () => {
    const store = await (await fresh()).open();
    const told: (string | null)[] = [];
    let wake = (): void => {};
    using _listening = store.onChange((id) => {
      told.push(id);
      wake();
    });
    const job = await accepted(store);
    const heard = new Promise<void>((resolve) => {
      wake = () => told.includes(job.id) && resolve();
      wake();
    });
    await within("word of a new job", heard);
    await store.close();
  });

  test("the word of an end is due once, and for one sender at a time [20.J8]", async () => {
    const store = await (await fresh()).open();
    const job = await accepted(store, { callbackUrl: "https://h.example/" });
    assert.deepEqual(await store.dueCallbacks(10), []);
    await store.change(job.id, { kind: "cancel", by: "k" });
    assert.deepEqual(
      (await store.dueCallbacks(10)).map(({ id }) => id),
      [job.id],
    );
    assert.equal((await store.change(job.id, { kind: "takeCallback", token: "a", leaseMs: 10_000 })).kind, "moved");
    assert.equal((await store.change(job.id, { kind: "takeCallback", token: "b", leaseMs: 10_000 })).kind, "refused");
    assert.deepEqual(await store.dueCallbacks(10), []);
    assert.equal((await store.change(job.id, { kind: "callbackSent", token: "a" })).kind, "moved");
    assert.equal((await store.counts()).callbacks, 0);
    await store.close();
  });
}

function idempotencySuite(fresh: () => Promise<StoreUnderTest>): void {
  const keyed = (fingerprint: string, scope = "s"): JobAsk => anAsk({ idempotency: { scope, fingerprint } });

  test("of 50 submits at once under one key one makes the job, and the others get it [20.J5 80.G16]", async () => {
    const store = await (await fresh()).open();
    for (let round = 0; round < 5; round += 1) {
      const outcomes = await Promise.all(Array.from({ length: 50 }, () => store.submit(keyed("f", `s${round}`), BODY)));
      assert.equal(outcomes.filter(({ kind }) => kind === "accepted").length, 1);
      assert.equal(outcomes.filter(({ kind }) => kind === "replayed").length, 49);
      assert.equal(new Set(outcomes.map((outcome) => ("job" in outcome ? outcome.job.id : ""))).size, 1);
    }
    await store.close();
  });

  test("another request under the key is a mismatch, another scope another job [20.J5 80.G16]", async () => {
    const store = await (await fresh()).open();
    assert.equal((await store.submit(keyed("f"), BODY)).kind, "accepted");
    assert.equal((await store.submit(keyed("g"), BODY)).kind, "mismatch");
    assert.equal((await store.submit(keyed("g", "t"), BODY)).kind, "accepted");
    await store.close();
  });

  test("a job that failed for a passing reason is driven afresh under its key, and both can be read [20.J5]", async () => {
    const store = await (await fresh()).open();
    const first = await store.submit(keyed("f"), BODY);
    assert.ok(first.kind === "accepted");
    const { id, token } = await claimOne(store);
    await store.change(id, { kind: "fail", token, error: { code: "GPU_SATURATED", message: "" }, result: null });
    const second = await store.submit(keyed("f"), BODY);
    assert.ok(second.kind === "accepted" && second.job.id !== id);
    assert.match(second.job.plan[0]?.why ?? "", new RegExp(id));
    assert.equal((await store.get(id))?.job.state, "failed");
    assert.equal((await store.submit(keyed("f"), BODY)).kind, "replayed");
    await store.close();
  });

  test("a key lives as long as its job, and no longer [20.J5]", async () => {
    const store = await (await fresh()).open();
    const first = await store.submit({ ...keyed("f"), keepMs: 50 }, BODY);
    assert.ok(first.kind === "accepted");
    await store.change(first.job.id, { kind: "cancel", by: "k" });
    assert.equal((await store.submit(keyed("f"), BODY)).kind, "replayed");
    const gone = async (): Promise<boolean> => {
      await store.sweep();
      return (await store.get(first.job.id)) === undefined;
    };
    await eventually("the end of its time", gone, (is) => is);
    const again = await store.submit(keyed("f"), BODY);
    assert.ok(again.kind === "accepted" && again.job.id !== first.job.id);
    await store.close();
  });
}

function boundsSuite(fresh: () => Promise<StoreUnderTest>): void {
  test("over the number of jobs or bytes nothing is accepted, and nothing half written [80.I9 80.C17]", async () => {
    const under = await fresh();
    const store = await under.open({ jobsMax: 3, bytesMax: 1_000 });
    await accepted(store);
    await accepted(store, { bodyBytes: 600 });
    assert.deepEqual(await store.submit(anAsk({ bodyBytes: 500 }), bodyOf(500)), { kind: "full", what: "bytes" });
    await accepted(store);
    assert.deepEqual(await store.submit(anAsk(), BODY), { kind: "full", what: "jobs" });
    const counts = await store.counts();
    assert.deepEqual([counts.kept, counts.bytes, counts.queued.batch], [3, 604, 3]);
    await store.close();
  });

  test("a job that has ended is forgotten with its bytes, its place in lists and its key; an open one is not [20.F2 80.I9]", async () => {
    const store = await (await fresh()).open();
    const submitted = await store.submit(anAsk({ idempotency: { scope: "s", fingerprint: "f" } }), BODY);
    assert.ok(submitted.kind === "accepted");
    const { id, token } = await claimOne(store);
    const open = await store.change(id, { kind: "forget" });
    assert.deepEqual([open.kind, "why" in open ? open.why : ""], ["refused", "open"]);
    await store.change(id, done(token), ANSWER);
    assert.equal((await store.change(id, { kind: "forget" })).kind, "forgotten");
    assert.equal(await store.get(id), undefined);
    assert.equal(await store.readBlob(id, "result"), undefined);
    assert.equal(await store.readBlob(id, "body"), undefined);
    assert.deepEqual((await store.list({ keyId: null, state: null, limit: 10, cursor: null })).jobs, []);
    const { kept, bytes } = await store.counts();
    assert.deepEqual([kept, bytes], [0, 0]);
    assert.equal((await store.change(id, { kind: "forget" })).kind, "unknown");
    const again = await store.submit(anAsk({ idempotency: { scope: "s", fingerprint: "other" } }), BODY);
    assert.ok(again.kind === "accepted" && again.job.id !== id);
    await store.close();
  });

  test("what a result takes counts too", async () => {
    const store = await (await fresh()).open();
    await accepted(store);
    const { id, token } = await claimOne(store);
    await store.change(id, done(token), ANSWER);
    assert.equal((await store.counts()).bytes, 2 + ANSWER.length);
    await store.close();
  });

  test("what could be claimed is counted by lane, whatever its class [50.V1]", async () => {
    const store = await (await fresh()).open();
    await accepted(store);
    await accepted(store, { class: "interactive" });
    await accepted(store, { model: "other" });
    assert.deepEqual([await store.waiting(["m:m"]), await store.waiting(["m:m", "m:other", "u:x"])], [2, 3]);
    const claim = await claimOne(store);
    assert.equal(await store.waiting(["m:m"]), 1);
    await store.change(claim.id, { kind: "postpone", token: claim.token, error, afterMs: 60_000 });
    assert.equal(await store.waiting(["m:m"]), 1);
    await store.close();
  });

  test("counts tell what waits and runs by class", async () => {
    const store = await (await fresh()).open();
    await accepted(store);
    await accepted(store, { class: "interactive" });
    await accepted(store);
    await claimOne(store);
    const { queued, running, kept } = await store.counts();
    assert.deepEqual(
      [queued, running, kept],
      [{ interactive: 1, system: 0, batch: 1 }, { interactive: 0, system: 0, batch: 1 }, 3],
    );
    await store.close();
  });
}
