import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { captureIo } from "../testing/capture-io.ts";
import { eventually } from "../testing/wait-for.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { upRole } from "./up-role.ts";

test("where no agent can run a simulated engine in the same process answers, and says so", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-up-"));
  const stop = new AbortController();
  const { io, output } = captureIo({}, stop.signal);
  const ports: ProcessPorts = {
    io,
    stop: stop.signal,
    hurry: new AbortController().signal,
    onReload: () => {},
    version: "0.0.0-test",
    hasAgents: false,
  };
  const args = ["--config", join(folder, "yardmaster.yaml"), "--data-dir", join(folder, "data")];
  await writeFile(join(folder, "yardmaster.yaml"), "upstreams: []\n", { mode: 0o600 });
  const ended = upRole(() => ports).run([...args, "--listen", "127.0.0.1:0"], io);
  try {
    const text = await eventually(
      "the welcome",
      () => output().out,
      (out) => out.includes("Ctrl-C"),
    );
    assert.match(text, /engine +agents need Linux, so sim-model is SIMULATED in this process/);
    const [, url, key, body] = /curl -N (\S+) -H "Authorization: (Bearer \S+)" .* -d '(.*)'/.exec(text) ?? [];
    assert.ok(url !== undefined && key !== undefined && body !== undefined);
    const headers = { authorization: key, "content-type": "application/json" };
    const answer = await fetch(url, { method: "POST", headers, body });
    assert.equal(answer.status, 200);
    assert.match(await answer.text(), /\[DONE\]/);
  } finally {
    stop.abort(new Error("the test is over"));
    assert.equal(await ended, 0);
    await rm(folder, { recursive: true, force: true });
  }
});
