import assert from "node:assert/strict";
import { spawn, type ChildProcess, type ChildProcessByStdio } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { test } from "node:test";
import { notRun } from "../../src/testing/real-llama.ts";
import { Watched } from "../../src/testing/wait-for.ts";

const PROGRAM = join(import.meta.dirname, "../../bin/yardmaster");
/** With the download of the engine, where it is not there yet. */
const START_MS = 240_000;
const ANSWER_MS = 60_000;
const END_MS = 30_000;

/** Where the only replica runs, as its gateway shows it to an operator; "" before there is one. */
async function engineOf(gateway: string, home: string): Promise<string> {
  const key = await readFile(join(home, "data/operator.key"), "utf8");
  const page = await fetch(`${gateway}/health`, { headers: { authorization: `Bearer ${key.trim()}` } });
  const { upstreams } = (await page.json()) as { upstreams: { endpoints: { url: string }[] }[] };
  return upstreams[0]?.endpoints[0]?.url ?? "";
}

const isOpen = (url: string): Promise<boolean> =>
  fetch(`${url}/health`).then(
    (answer) => answer.text().then(() => true),
    () => false,
  );

test("a newcomer's first run with a real engine: the catalog that it writes has it started, the printed command gets a streamed answer, and one Ctrl-C ends it all", async (t) => {
  const home = await mkdtemp(join(tmpdir(), "yardmaster-up-"));
  const up = watch(
    spawn(PROGRAM, ["up", "--real-engine", "--listen", "127.0.0.1:0"], {
      cwd: home,
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );
  try {
    await up.state.until("the welcome", () => up.out.includes("Ctrl-C") || up.exited, START_MS);
    const missing = /the real engine can't be had here: (.*)/.exec(up.err)?.[1];
    if (missing !== undefined) {
      notRun(t, missing);
      return;
    }
    const address = /^yardmaster up ready listen=(127\.0\.0\.1:\d+) board=\S+ version=\S+\n/.exec(up.out)?.[1];
    assert.ok(address !== undefined, up.err);
    assert.match(up.out, /llama\.cpp, serving smollm2-135m/);
    const line = up.out.split("\n").find((text) => text.startsWith("curl "));
    assert.ok(line !== undefined, up.out);
    const curl = watch(spawn("/bin/sh", ["-c", `exec ${line}`], { stdio: ["ignore", "pipe", "pipe"] }));
    await curl.state.until(
      "words of the engine",
      () => /^data: .*"content":"[^"]/m.test(curl.out) || curl.exited,
      ANSWER_MS,
    );
    curl.child.kill("SIGINT");
    assert.match(curl.out, /^data: .*"content":"[^"]/m, curl.err);
    const engine = await engineOf(`http://${address}`, home);
    assert.equal(await isOpen(engine), true);

    up.child.kill("SIGINT");
    await up.state.until("the end", () => up.exited, END_MS);
    assert.equal(up.child.exitCode, 0, up.err);
    assert.equal(await isOpen(engine), false);
  } finally {
    up.child.kill("SIGKILL");
    await rm(home, { recursive: true, force: true });
  }
});

interface Program {
  readonly child: ChildProcess;
  readonly state: Watched;
  readonly out: string;
  readonly err: string;
  readonly exited: boolean;
}

function watch(child: ChildProcessByStdio<null, Readable, Readable>): Program {
  const program = { child, state: new Watched(), out: "", err: "", exited: false };
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    program.out += text;
    program.state.changed();
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => (program.err += text));
  child.on("close", () => {
    program.exited = true;
    program.state.changed();
  });
  return program;
}
