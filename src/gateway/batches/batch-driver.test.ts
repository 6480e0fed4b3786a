import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import type { BatchRecord, FileRecord } from "../../contract/batch.ts";
import { isOpen, type JobPart, type JobRecord } from "../../contract/job.ts";
import type { JobRead } from "../../coord/jobs/job-store.ts";
import { newJob } from "../../decide/jobs/new-job.ts";
import { seededRandom, type Random } from "../../kernel/random.ts";
import { systemClock } from "../../kernel/clock.ts";
import { aBatch } from "../../testing/a-batch.ts";
import { MemoryFiles } from "../../testing/memory-files.ts";
import { BatchDriver, type BatchDriverDeps } from "./batch-driver.ts";
import { FileShelf, PieceWriter } from "./file-shelf.ts";
import { LineReader } from "./line-reader.ts";

// Drivers over stores in memory, that are struck down at any of their steps. What a job came to is the test's own doing.

const reader = new LineReader(systemClock);
after(() => reader.close());

const ENDPOINT = "/v1/chat/completions";
const FAR = 1e9;
const customId = (index: number): string => `c${index}`;

/** Jobs whose parts end when the test lets them. Submitted again under a key, a job is the same one. */
class MemoryJobs {
  readonly jobs = new Map<
    string,
    { record: JobRecord; readonly parts: Map<number, JobPart>; readonly bodies: string[] }
  >();
  readonly #byScope = new Map<string, string>();
  readonly ran: string[] = [];

  submit: BatchDriverDeps["jobs"]["submit"] = (ask, blobs) => {
    const scope = ask.idempotency?.scope ?? "";
    const known = this.jobs.get(this.#byScope.get(scope) ?? "");
    if (known !== undefined) return Promise.resolve({ kind: "replayed", job: known.record });
    const id = `job_${this.jobs.size}`;
    const record = newJob(ask, { id, seq: 1, order: 1, now: 0, instead: null });
    const bodies = [...blobs.values()].map((bytes) => bytes.toString("utf8").slice(1));
    this.jobs.set(id, { record, parts: new Map(), bodies });
    this.#byScope.set(scope, id);
    return Promise.resolve({ kind: "accepted", job: record });
  };

  get = (id: string): Promise<JobRead | undefined> => {
    const found = this.jobs.get(id);
    return Promise.resolve(found && { job: found.record, partsDone: found.parts.size, now: 0 });
  };

  parts = (id: string): Promise<readonly JobPart[]> => Promise.resolve([...(this.jobs.get(id)?.parts.values() ?? [])]);

  readPartBytes = (id: string, index: number): Promise<Buffer | undefined> =>
    Promise.resolve(Buffer.from(this.jobs.get(id)?.bodies[index] ?? ""));

  change: BatchDriverDeps["jobs"]["change"] = (id, event) => {
    const found = this.jobs.get(id);
    if (found === undefined) return Promise.resolve({ kind: "unknown" });
    if (event.kind === "forget") this.jobs.delete(id);
    return Promise.resolve({ kind: "forgotten", job: found.record });
  };

  cancel = (id: string): Promise<void> => {
    const found = this.jobs.get(id);
    if (found !== undefined && isOpen(found.record.state))
      found.record = { ...found.record, state: "cancelled", endedAt: 1 };
    return Promise.resolve();
  };

  /** Some parts end, and a job whose parts all have ends with them. */
  work(random: Random): void {
    for (const job of this.jobs.values()) {
      if (!isOpen(job.record.state)) continue;
      for (let index = 0; index < job.bodies.length; index += 1) {
        if (job.parts.has(index) || random.next() < 0.3) continue;
        const bad = random.next() < 0.2;
        const result = { status: bad ? 400 : 200, contentType: "application/json", bytes: 1 };
        job.parts.set(index, { index, result, error: bad ? { code: "ENGINE_ERROR", message: "no" } : null });
      }
      if (job.parts.size === job.bodies.length) job.record = { ...job.record, state: "completed", endedAt: 1 };
    }
  }
}

class Struck extends Error {}

/** Each call of the object may be the last thing that a driver does: before it, or after it took effect. */
function struckAtRandom<T extends object>(target: T, strikes: () => boolean): T {
  return new Proxy(target, {
    get(of, name) {
      const value = Reflect.get(of, name) as unknown;
      if (typeof value !== "function" || name === "cancel") return value;
      return async (...args: unknown[]): Promise<unknown> => {
        if (strikes()) throw new Struck();
        const answer: unknown = await Reflect.apply(value, of, args);
        if (strikes()) throw new Struck();
        return answer;
      };
    },
  });
}

async function aWorld(lines: number): Promise<{ files: MemoryFiles; jobs: MemoryJobs; shelf: FileShelf }> {
  const files = new MemoryFiles();
  const shelf = new FileShelf(files);
  const input: FileRecord = {
    id: "file-in",
    keyId: "k",
    filename: "in",
    purpose: "batch",
    ready: true,
    bytes: 0,
    createdAt: 0,
    expiresAt: FAR,
    segments: [],
    heldBy: ["batch_a"],
  };
  await shelf.createFile(input);
  const writer = new PieceWriter(files, input.id, "n", true);
  for (let i = 0; i < lines; i += 1) {
    const body = { model: i % 7 === 3 ? "b" : "a", n: i, pad: "x".repeat((i * 37) % 900) };
    await writer.write(
      Buffer.from(`${JSON.stringify({ custom_id: customId(i), method: "POST", url: ENDPOINT, body })}\n`),
    );
  }
  await writer.end();
  await shelf.changeFile(input.id, (file) => ({ ...file, segments: [writer.segment] }));
  await shelf.createBatch(aBatch({ id: "batch_a", expiresAt: 1_000_000 }));
  return { files, jobs: new MemoryJobs(), shelf };
}

const textOf = async (shelf: FileShelf, id: string): Promise<string> => {
  const file = await shelf.file(id);
  let text = "";
  if (file !== undefined) for await (const piece of shelf.bytes(file.record)) text += piece.toString("utf8");
  return text;
};
interface Line {
  readonly custom_id: string;
  readonly response: { readonly body: { readonly n: number } } | null;
  readonly error: { readonly code: string } | null;
}
const linesIn = (text: string): Line[] =>
  text === ""
    ? []
    : text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as Line);

const SEEDS = fc.record({
  seed: fc.integer({ min: 1, max: 1e6 }),
  lines: fc.integer({ min: 1, max: 700 }),
  ending: fc.constantFrom("done", "cancel", "expire"),
});

test("with drivers struck down at any step, and two at once, no line is lost and none is in the files twice [20.J7 80.I1 80.I2]", async () => {
  await fc.assert(
    fc.asyncProperty(SEEDS, async ({ seed, lines, ending }) => {
      const random = seededRandom(seed);
      const { files, jobs, shelf } = await aWorld(lines);
      let calm = false;
      const strikes = (): boolean => !calm && random.next() < 0.02;
      const driverOf = (token: string): BatchDriver =>
        new BatchDriver({
          shelf: new FileShelf(struckAtRandom(files, strikes)),
          jobs: struckAtRandom(jobs, strikes),
          reader,
          token,
          alone: false,
          leaseMs: () => 10,
          attemptsMax: () => 3,
          linesMax: () => 1_000,
          lineBytesMax: () => 10_000,
          judgeModel: () => null,
          cancelJob: (id) => jobs.cancel(id),
          onOver: () => {},
          stopped: () => false,
        });
      let batch: BatchRecord | undefined;
      for (let round = 0; round < 400; round += 1) {
        calm = round > 200;
        // Two that each believe the batch to be theirs, as one does that was frozen past its lease.
        const both = ["x", "x"].map((token) =>
          driverOf(`${token}${round}`)
            .drive("batch_a")
            .catch((error: unknown) => {
              if (!(error instanceof Struck)) throw error;
            }),
        );
        await Promise.all(both);
        jobs.work(random);
        files.time += 20;
        if (round === 2 && ending === "expire") files.time = 2_000_000;
        if (round === 2 && ending === "cancel") {
          const held = await shelf.batch("batch_a");
          if (held !== undefined && held.record.endedAt === null && held.record.finalizingAt === null)
            await shelf.writeBatch({ ...held.record, state: "cancelling", cancellingAt: files.time }, held.version);
        }
        batch = (await shelf.batch("batch_a"))?.record;
        if (batch !== undefined && batch.endedAt !== null) break;
      }
      assert.ok(batch !== undefined && batch.endedAt !== null, `it ends: ${JSON.stringify(batch)}`);
      const output = linesIn(await textOf(shelf, "file-out"));
      const errors = linesIn(await textOf(shelf, "file-err"));
      const ids = [...output, ...errors].map(({ custom_id }) => Number(custom_id.slice(1)));
      assert.deepEqual(
        ids.toSorted((a, b) => a - b),
        Array.from({ length: lines }, (_, index) => index),
      );
      for (const each of [output, errors])
        assert.deepEqual(
          each.map(({ custom_id }) => custom_id),
          each.map(({ custom_id }) => custom_id).toSorted((a, b) => Number(a.slice(1)) - Number(b.slice(1))),
        );
      for (const { custom_id, response } of output) assert.equal(response?.body.n, Number(custom_id.slice(1)));
    }),
    { numRuns: 12 },
  );
});

test("a batch of a gateway that is alive is left to it, and one whose lease is over is taken [20.J7]", async () => {
  const { files, jobs, shelf } = await aWorld(3);
  const driverOf = (token: string): BatchDriver =>
    new BatchDriver({
      shelf,
      jobs,
      reader,
      token,
      alone: false,
      leaseMs: () => 100,
      attemptsMax: () => 3,
      linesMax: () => 10,
      lineBytesMax: () => 10_000,
      judgeModel: () => null,
      cancelJob: (id) => jobs.cancel(id),
      onOver: () => {},
      stopped: () => false,
    });
  assert.equal((await driverOf("one").drive("batch_a")).kind, "waits");
  assert.equal((await driverOf("two").drive("batch_a")).kind, "taken");
  files.time += 101;
  assert.equal((await driverOf("two").drive("batch_a")).kind, "waits");
});
