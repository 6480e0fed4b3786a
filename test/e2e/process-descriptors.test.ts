import assert from "node:assert/strict";
import { test } from "node:test";
import { anEngine } from "./support/an-engine.ts";
import { aTask, startCall } from "./support/calls.ts";
import { OPERATOR_KEY, PROGRAM, programFolder, reach, RunningProgram } from "./support/program.ts";
import type { HealthPage } from "./support/health.ts";
import { eventually } from "../../src/testing/wait-for.ts";

const FILES = 110;

test("a gateway that runs out of file descriptors takes no engine out of rotation for it, and serves all again as soon as it has some [10.R5 80.C23]", async () => {
  await using engine = await anEngine({ seed: 1, slots: 200 });
  const upstream = { id: "u", models: ["m"], engine: "vllm", slots: 200, endpoints: [{ url: engine.url }] };
  await using folder = await programFolder({ upstreams: [upstream] });
  const started = `ulimit -n ${FILES}; exec "$0" "$@"`;
  await using program = new RunningProgram("bash", ["-c", started, PROGRAM, "gateway", "--config", folder.config]);
  const to = reach(await program.ready());
  const task = aTask({ delayFirstMs: 1_500 });
  // So many that clients and engine connections together can't be had: some are answered that it can't be done now.
  const calls = Array.from({ length: FILES * 0.7 }, () => startCall(to, { body: task }));
  const statuses = (await Promise.all(calls.map(({ answer }) => answer))).map(({ status }) => status);
  assert.ok(statuses.includes(200), statuses.join());
  assert.ok(
    statuses.some((status) => status !== 200),
    "it had enough of them after all, and the test shows nothing",
  );
  const [endpoint] = await eventually(
    "its page",
    async () => {
      const page = await fetch(`http://127.0.0.1:${to.port}/health`, {
        headers: { authorization: `Bearer ${OPERATOR_KEY}` },
      }).catch(() => null);
      return page === null ? [] : (((await page.json()) as HealthPage).upstreams[0]?.endpoints ?? []);
    },
    (endpoints) => endpoints.length === 1,
  );
  assert.deepEqual([endpoint?.breaker, endpoint?.health], ["closed", "healthy"]);
  assert.equal((await startCall(to, { body: aTask() }).answer).status, 200);
  assert.doesNotMatch(program.err + program.out, /endpoint\.breaker|health=unhealthy/);
});
