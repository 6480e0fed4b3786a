import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { JobSettings } from "../../contract/gateway-config.ts";
import type { JobRecord } from "../../contract/job.ts";
import { anAsk } from "../../coord/jobs/job-store.conformance.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import { openLocalJobStore } from "../../coord/local/local-job-store.ts";
import { systemClock } from "../../kernel/clock.ts";
import type { Resolve } from "../../kernel/judged-lookup.ts";
import { Secret } from "../../kernel/secret.ts";
import { createJobMetrics } from "../metrics/job-metrics.ts";
import { Registry } from "../../metrics/registry.ts";
import { CallbackSender } from "./callback-sender.ts";

const SECRET = "CANARY-callback-secret-0123456789";

interface Heard {
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** Somebody who is called back, and counts who connected. */
class Listener implements AsyncDisposable {
  readonly heard: Heard[] = [];
  connections = 0;
  readonly #server;
  private constructor(answer: (res: ServerResponse, heard: Heard) => void) {
    this.#server = createServer((req, res) => {
      let body = "";
      req.setEncoding("utf8").on("data", (text: string) => (body += text));
      req.on("end", () => {
        const heard = { url: req.url ?? "", headers: req.headers, body };
        this.heard.push(heard);
        answer(res, heard);
      });
    });
    this.#server.on("connection", () => (this.connections += 1));
  }
  static async start(answer: (res: ServerResponse, heard: Heard) => void = (res) => res.end()): Promise<Listener> {
    const listener = new Listener(answer);
    await new Promise<void>((resolve) => listener.#server.listen(0, "127.0.0.1", resolve));
    return listener;
  }
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

interface World extends AsyncDisposable {
  /** Ends a job that asked for this callback, sends it once, and tells what became of it. */
  send(url: string, options: { readonly allow: readonly string[]; readonly resolve?: Resolve }): Promise<JobRecord>;
}

async function world(): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-callbacks-"));
  const store: JobStore = await openLocalJobStore({
    path: join(folder, "jobs.db"),
    limits: { jobsMax: 100, bytesMax: 1_000_000 },
    clock: systemClock,
  });
  return {
    async send(url, { allow, resolve }) {
      const outcome = await store.submit(anAsk({ callbackUrl: url, metadata: { mine: 1 } }), new Map());
      assert.ok(outcome.kind === "accepted");
      const ended = await store.change(outcome.job.id, { kind: "cancel", by: "k" });
      assert.ok(ended.kind === "moved");
      const settings = { callbackAllow: allow, callbackSecret: new Secret(SECRET) } as unknown as JobSettings;
      const metrics = createJobMetrics(new Registry());
      const sender = new CallbackSender({
        clock: systemClock,
        store,
        settings: () => settings,
        metrics,
        ...(resolve === undefined ? {} : { resolve }),
      });
      await sender.send(ended.job);
      sender.close();
      return (await store.get(outcome.job.id))!.job;
    },
    async [Symbol.asyncDispose]() {
      await store.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

test("a callback is signed over its time and body, tells of the job, and carries nobody's credentials [20.J8]", async () => {
  await using here = await world();
  await using listener = await Listener.start();
  const at = `http://127.0.0.1:${listener.port}`;
  const job = await here.send(`${at}/hook?x=1`, { allow: [at] });
  assert.equal(job.callback?.state, "delivered");
  const [heard] = listener.heard;
  assert.equal(heard?.url, "/hook?x=1");
  const told = JSON.parse(heard?.body ?? "") as { type: string; job: { id: string; metadata: unknown } };
  assert.deepEqual([told.type, told.job.id, told.job.metadata], ["job.cancelled", job.id, { mine: 1 }]);
  const time = String(heard?.headers["x-yardmaster-timestamp"]);
  const expected = createHmac("sha256", SECRET).update(`${time}.${heard?.body}`).digest("hex");
  assert.equal(heard?.headers["x-yardmaster-signature"], `v1=${expected}`);
  assert.equal(JSON.stringify(heard?.headers).includes("CANARY"), false);
  assert.equal(heard?.headers.authorization, undefined);
  assert.equal(heard?.headers.cookie, undefined);
});

test("an answer that is no 2xx, too large, or none is tried again later [20.J8 80.C44]", async () => {
  await using here = await world();
  await using failing = await Listener.start((res) => res.writeHead(500).end());
  await using large = await Listener.start((res) => res.end(Buffer.alloc(200_000)));
  await using cut = await Listener.start((res) => res.destroy());
  for (const listener of [failing, large, cut]) {
    const at = `http://127.0.0.1:${listener.port}`;
    const job = await here.send(`${at}/`, { allow: [at] });
    assert.deepEqual([job.callback?.state, job.callback?.tries, listener.connections], ["waiting", 1, 1]);
    assert.ok((job.callback?.nextAt ?? 0) > (job.endedAt ?? 0));
  }
});

test("redirects are followed twice at most, each judged again: one that leads inside opens no connection [80.D22 80.C44]", async () => {
  await using here = await world();
  await using inside = await Listener.start();
  await using there = await Listener.start();
  await using hops = await Listener.start((res, { url }) => {
    const next = { "/once": `http://127.0.0.1:${there.port}/end`, "/loop": "/loop" }[url];
    res.writeHead(307, { location: next ?? `http://127.0.0.1:${inside.port}/` }).end();
  });
  const allow = [`http://127.0.0.1:${hops.port}`, `http://127.0.0.1:${there.port}`];
  const at = `http://127.0.0.1:${hops.port}`;
  assert.equal((await here.send(`${at}/once`, { allow })).callback?.state, "delivered");
  assert.equal(there.heard.length, 1);
  const loop = await here.send(`${at}/loop`, { allow });
  assert.match(loop.callback?.lastError ?? "", /redirects/);
  assert.equal(hops.heard.filter(({ url }) => url === "/loop").length, 3);
  const led = await here.send(`${at}/inside`, { allow });
  assert.equal(led.callback?.state, "given_up", "what is forbidden now is not tried again");
  assert.equal(inside.connections, 0);
});

test("a name that had a public address when it was judged and an inner one when it is called opens no connection [80.D22 80.D21]", async () => {
  await using here = await world();
  await using trap = await Listener.start();
  const allow = [`http://hooks.example.com:${trap.port}`];
  const lookups: string[] = [];
  for (const addresses of [
    ["127.0.0.1"],
    ["93.184.216.34", "127.0.0.1"],
    ["::1"],
    ["::ffff:127.0.0.1"],
    ["169.254.169.254"],
    [],
  ]) {
    const job = await here.send(`http://hooks.example.com:${trap.port}/`, {
      allow,
      resolve: (host, done) => {
        lookups.push(host);
        done(null, addresses);
      },
    });
    assert.equal(job.callback?.state, "waiting", addresses.join());
    assert.match(job.callback?.lastError ?? "", /address/);
  }
  assert.equal(lookups.length, 6);
  assert.equal(trap.connections, 0);
  // The same name with the same address is called once the list names the address.
  const job = await here.send(`http://hooks.example.com:${trap.port}/`, {
    allow: [...allow, "127.0.0.1"],
    resolve: (_host, done) => done(null, ["127.0.0.1"]),
  });
  assert.deepEqual([job.callback?.state, trap.connections], ["delivered", 1]);
});

test("a list that no longer names the host stops what was accepted under the old one [80.D21]", async () => {
  await using here = await world();
  await using listener = await Listener.start();
  const job = await here.send(`http://127.0.0.1:${listener.port}/`, { allow: ["hooks.example.com"] });
  assert.deepEqual([job.callback?.state, listener.connections], ["given_up", 0]);
});
