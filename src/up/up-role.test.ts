import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { captureIo } from "../testing/capture-io.ts";
import { eventually } from "../testing/wait-for.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { upRole } from "./up-role.ts";

/** `up` in this process, without an agent, until the work is done. */
async function withUp(work: (welcome: string, folder: string) => Promise<void>): Promise<void> {
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
    await work(text, folder);
  } finally {
    stop.abort(new Error("the test is over"));
    assert.equal(await ended, 0);
    await rm(folder, { recursive: true, force: true });
  }
}

test("where no agent can run a simulated engine in the same process answers, and says so", async () => {
  await withUp(async (text) => {
    assert.match(text, /engine +agents need Linux, so sim-model is SIMULATED in this process/);
    const [, url, key, body] = /curl -N (\S+) -H "Authorization: (Bearer \S+)" .* -d '(.*)'/.exec(text) ?? [];
    assert.ok(url !== undefined && key !== undefined && body !== undefined);
    const headers = { authorization: key, "content-type": "application/json" };
    const answer = await fetch(url, { method: "POST", headers, body });
    assert.equal(answer.status, 200);
    assert.match(await answer.text(), /\[DONE\]/);
  });
});

test("a key that is made at the gateway of `up` signs in to the board beside it, and with its end the session is over [60.K1]", async () => {
  await withUp(async (text, folder) => {
    const [, gateway] = /gateway +(http:\S+)\/v1/.exec(text) ?? [];
    const [, control] = /control +(http:\S+) /.exec(text) ?? [];
    assert.ok(gateway !== undefined && control !== undefined);
    const operator = (await readFile(join(folder, "data", "operator.key"), "utf8")).trim();
    const headers = { authorization: `Bearer ${operator}`, "content-type": "application/json" };
    const body = JSON.stringify({ id: "night", role: "operator" });
    const made = await fetch(`${gateway}/admin/keys`, { method: "POST", headers, body });
    assert.equal(made.status, 201);
    const { key } = (await made.json()) as { readonly key: string };
    const signIn = await fetch(`${control}/board/api/session`, {
      method: "POST",
      headers: { "content-type": "application/json", origin: control },
      body: JSON.stringify({ key }),
    });
    assert.equal(signIn.status, 200, await signIn.text());
    const cookie = signIn.headers.getSetCookie()[0]?.split(";")[0] ?? "";
    const look = async (by: Record<string, string>): Promise<number> =>
      (await fetch(`${control}/v1/nodes`, { headers: by })).status;
    assert.deepEqual([await look({ cookie }), await look({ authorization: `Bearer ${key}` })], [200, 200]);
    assert.equal((await fetch(`${gateway}/admin/keys/night`, { method: "DELETE", headers })).status, 200);
    assert.deepEqual([await look({ cookie }), await look({ authorization: `Bearer ${key}` })], [401, 401]);
  });
});
