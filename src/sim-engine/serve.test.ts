import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../kernel/clock.ts";
import { hasErrorCode } from "../kernel/errors.ts";
import { parseSimArguments, serveSimEngine } from "./serve.ts";

test("flags have defaults and every flag is taken", () => {
  assert.deepEqual(parseSimArguments([]), {
    kind: "ok",
    options: {
      host: "127.0.0.1",
      port: 8_100,
      dialect: "vllm",
      models: ["sim-model"],
      slots: 8,
      prefillTps: 5_000,
      decodeTps: 50,
      seed: 1,
    },
  });
  const all = parseSimArguments([
    "--listen",
    "[::1]:9",
    "--model",
    "a",
    "--model",
    "b",
    "--dialect",
    "llama.cpp",
    "--slots",
    "3",
    "--prefill-tps",
    "10",
    "--decode-tps=0",
    "--seed",
    "7",
  ]);
  assert.deepEqual(all, {
    kind: "ok",
    options: {
      host: "::1",
      port: 9,
      dialect: "llama.cpp",
      models: ["a", "b"],
      slots: 3,
      prefillTps: 10,
      decodeTps: 0,
      seed: 7,
    },
  });
});

const silent = { write: (): void => {} };

test("a wrong flag is a usage error", async () => {
  for (const argv of [
    ["--slots", "0"],
    ["--slots", "many"],
    ["--dialect", "tgi"],
    ["--listen", "8100"],
    ["--colour"],
    ["word"],
  ]) {
    assert.equal(parseSimArguments(argv).kind, "usage", argv.join(" "));
  }
  await assert.rejects(
    serveSimEngine(["--slots", "0"], {
      clock: systemClock,
      stdout: silent,
      stderr: silent,
      signal: AbortSignal.abort(),
    }),
    (error) => hasErrorCode(error, "USAGE"),
  );
});

test("one line says that it serves, and an aborted signal ends it with code 0", async () => {
  const stop = new AbortController();
  const ready = Promise.withResolvers<string>();
  const code = serveSimEngine(["--listen", "127.0.0.1:0", "--model", "a", "--model", "b"], {
    clock: systemClock,
    stdout: { write: ready.resolve },
    stderr: silent,
    signal: stop.signal,
    version: "1.2.3",
  });
  const line = await ready.promise;
  const port = /^yardmaster sim-engine ready listen=127\.0\.0\.1:(\d+) dialect=vllm models=a,b version=1\.2\.3\n$/.exec(
    line,
  )?.[1];
  assert.ok(port !== undefined, line);
  assert.equal((await fetch(`http://127.0.0.1:${port}/health`)).status, 200);
  stop.abort();
  assert.equal(await code, 0);
});

test("an address that is taken ends it with code 1", async () => {
  const stop = new AbortController();
  const ready = Promise.withResolvers<string>();
  const first = serveSimEngine(["--listen", "127.0.0.1:0"], {
    clock: systemClock,
    stdout: { write: ready.resolve },
    stderr: silent,
    signal: stop.signal,
  });
  const port = /:(\d+) /.exec(await ready.promise)?.[1] ?? "";
  const code = await serveSimEngine(["--listen", `127.0.0.1:${port}`], {
    clock: systemClock,
    stdout: silent,
    stderr: silent,
    signal: stop.signal,
  });
  assert.equal(code, 1);
  stop.abort();
  await first;
});
