import assert from "node:assert/strict";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { stringify } from "yaml";
import { newKey } from "../../src/contract/key-hash.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "../e2e/support/an-engine.ts";
import { runProgram } from "../e2e/support/program.ts";
import { ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

const home = temporaryFolder("permission");
after(() => rmSync(home, { recursive: true, force: true }));

/** What the gateway's unit gives Node, with its folders elsewhere. */
const options = (
  /^Environment="NODE_OPTIONS=(.*)"$/m.exec(read("deploy/systemd/yardmaster-gateway.service"))?.[1] ?? ""
)
  .replaceAll("/opt/yardmaster", ROOT)
  .replaceAll("/etc/", `${home}/etc/`)
  .replaceAll("/var/lib/yardmaster/gateway", join(home, "state"))
  .replaceAll("/var/cache/yardmaster/gateway", join(home, "cache"));

test("under Node's permission model, as the unit sets it, a gateway answers, streams, runs jobs, takes a changed file, keeps its audit and is refused nothing [80.C50]", async () => {
  for (const folder of ["etc", "state", "cache"]) mkdirSync(join(home, folder));
  await using engine = await anEngine({ models: ["m"], slots: 4 });
  const { key, hash } = newKey();
  const config = join(home, "etc/yardmaster.yaml");
  const file = {
    listen: "127.0.0.1:0",
    auth: { mode: "keys", keys: [{ id: "root", hash: `sha256:${hash}`, role: "admin" }] },
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 4, endpoints: [{ url: engine.url }] }],
  };
  writeFileSync(config, stringify(file));
  await using gateway = runProgram(["gateway", "--config", config, "--data-dir", join(home, "state")], {
    cwd: join(home, "state"),
    env: { NODE_OPTIONS: options, NODE_COMPILE_CACHE: join(home, "cache"), HOME: join(home, "state") },
  });
  const base = `http://127.0.0.1:${await gateway.ready()}`;
  const send = (path: string, body?: object, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(base + path, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${key.reveal()}`, "content-type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const chat = { model: "m", max_tokens: 4, messages: [{ role: "user", content: "Hello." }] };
  assert.equal((await send("/v1/chat/completions", chat)).status, 200);
  assert.match(await (await send("/v1/chat/completions", { ...chat, stream: true })).text(), /\[DONE\]/);
  assert.equal((await send("/v1/chat/completions", chat, { "idempotency-key": "once" })).status, 200);
  const { id } = await eventually(
    "the job to be taken",
    async () =>
      (await (await send("/v1/jobs", { model: "m", path: "/v1/chat/completions", body: chat })).json()) as {
        id?: string;
      },
    (taken) => taken.id !== undefined,
  );
  await eventually(
    "the end of the job",
    async () => ((await (await send(`/v1/jobs/${id}`)).json()) as { state: string }).state,
    (state) => state === "completed",
  );
  writeFileSync(config, stringify({ ...file, drain_s: 5 }));
  await gateway.said(/config\.applied/, "err");
  assert.equal((await send("/metrics")).status, 200);
  gateway.kill("SIGTERM");
  const { code, err } = await gateway.end();
  assert.equal(code, 0, err);
  assert.doesNotMatch(err, /ERROR|ERR_ACCESS_DENIED|Warning/);
  assert.ok(existsSync(join(home, "state")));
});

test("what the unit does not name can neither be read nor written, and no program can be started [80.C50]", () => {
  const outside = join(home, "outside");
  writeFileSync(outside, "x");
  const tries = [
    `require("node:fs").readFileSync(${JSON.stringify(outside)})`,
    `require("node:fs").writeFileSync(${JSON.stringify(join(home, "etc/new"))}, "")`,
    `require("node:child_process").execFileSync("/bin/true")`,
  ];
  for (const code of tries) {
    const { text } = ran(process.execPath, ["-e", code], {
      cwd: join(home, "state"),
      env: { ...process.env, NODE_OPTIONS: options },
    });
    assert.match(text, /ERR_ACCESS_DENIED/, code);
  }
});
