import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { startPostgres } from "../../src/testing/servers/postgres-server.ts";
import { startRedis } from "../../src/testing/servers/redis-server.ts";
import { freePort } from "../../src/testing/servers/server-process.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { PROGRAM, RunningProgram } from "./support/program.ts";

// docs/operating/cluster.md, followed as it is written: only ports, the addresses of the two servers and what the commands print
// are put in.

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/operating/cluster.md"), "utf8");
const FIRST_PART = PAGE.slice(0, PAGE.indexOf("\n## Between machines"));
const STARTED_MS = 60_000;

const blocks = (language: string): string[] =>
  [...FIRST_PART.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, text]) => text ?? "");

/** The port of the page and a free one in its place. */
type Ports = ReadonlyMap<string, number>;
const withPorts = (text: string, ports: Ports): string =>
  text.replaceAll(/127\.0\.0\.1:(\d{4})/g, (all, port: string) => {
    const free = ports.get(port);
    return free === undefined ? all : `127.0.0.1:${free}`;
  });

test("the page on a cluster, followed as it is written, gives one: what the catalog wants is served by either gateway, also after the leader, a gateway and the agent were killed [40.C3 40.N1 80.I8]", async () => {
  await using redis = await startRedis();
  await using postgres = await startPostgres();
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-page-"));
  const ports: Ports = new Map(
    await Promise.all(
      ["8200", "8201", "8300", "8301"].map(async (port): Promise<[string, number]> => [port, await freePort()]),
    ),
  );
  const env: Record<string, string> = {
    PATH: process.env["PATH"] ?? "",
    HOME: folder,
    YARDMASTER_DATABASE_URL: postgres.url,
    YARDMASTER_URL: `http://127.0.0.1:${ports.get("8300")}`,
  };
  const programs = new Map<string, RunningProgram>();
  /** One line of the page. What a command prints to be kept stands alone and indented. */
  const run = async (line: string, token: string): Promise<string> => {
    const command = withPorts(line, ports)
      .replace("…", token)
      .replace(/\byardmaster /g, `"${PROGRAM}" `);
    const role = /yardmaster (control|agent|gateway) .*--data-dir (\S+)/.exec(line);
    if (role === null) {
      const { stdout } = await promisify(execFile)("/bin/sh", ["-c", command], {
        cwd: folder,
        env,
        timeout: STARTED_MS,
      });
      return stdout;
    }
    const program = new RunningProgram("/bin/sh", ["-c", command.replace(/("\S*yardmaster" \w+ )/, "exec $1")], {
      cwd: folder,
      env,
    });
    programs.set(role[2] ?? "", program);
    await program.said(/^yardmaster \w+ ready /m);
    return "";
  };
  const printed = (out: string): string => /^ {4}(ym\w*_\S+)$/m.exec(out)?.[1] ?? "";
  const [first = "", controls = "", node = "", gateways = "", look = ""] = blocks("sh");
  const [file = "", catalog = ""] = blocks("yaml");
  const lines = (block: string): string[] => block.split("\n").filter((line) => /yardmaster/.test(line));
  try {
    const keyOut = await run(lines(first).at(-1)?.replace(/ +#.*/, "") ?? "", "");
    env["YARDMASTER_KEY"] = printed(keyOut);
    const hash = /hash: (sha256:\w+)/.exec(keyOut)?.[1] ?? assert.fail(keyOut);
    const settings = withPorts(file, ports)
      .replace(/^redis_url: .*$/m, `redis_url: ${redis.url}`)
      .replace("sha256:…", hash);
    await writeFile(join(folder, "yardmaster.yaml"), settings, { mode: 0o600 });
    await writeFile(join(folder, "catalog.yaml"), catalog);

    for (const line of lines(controls)) await run(line, "");
    let token = "";
    for (const line of [...lines(node).filter((one) => !one.startsWith("export")), ...lines(gateways)])
      token = printed(await run(line, token)) || token;

    const [status = "", ...curl] = look.split("\n");
    const ready = async (): Promise<string> => run(status, "");
    await eventually("two replicas", ready, (out) => [...out.matchAll(/^r-.* ready /gm)].length === 2, STARTED_MS);
    const answer = async (port: string): Promise<string> =>
      run(curl.join("\n").replace("127.0.0.1:8201", `127.0.0.1:${port}`).replace("curl", "curl -s"), "");
    const served = (out: string): boolean => out.includes('"chat.completion"');
    for (const port of ["8200", "8201"])
      await eventually(`an answer at ${port}`, () => answer(port), served, STARTED_MS);

    for (const name of ["data/control-a", "data/gw-1", "data/node-a"]) {
      programs.get(name)?.kill("SIGKILL");
      assert.match(await answer("8201"), /"chat\.completion"/, `after the end of ${name}`);
    }
    env["YARDMASTER_URL"] = `http://127.0.0.1:${ports.get("8301")}`;
    const leader = async (): Promise<string> => run("yardmaster ctl leader", "").catch(String);
    await eventually("another leads", leader, (out) => /leading/.test(out), STARTED_MS);
    assert.match(await answer("8201"), /"chat\.completion"/);
  } finally {
    // Engines outlive their agent: one more is there to end them.
    programs.get("data/node-a")?.kill("SIGKILL");
    await programs.get("data/node-a")?.end();
    await run("yardmaster agent --stop-engines --data-dir data/node-a", "");
    programs.get("data/node-a")?.kill("SIGTERM");
    await programs.get("data/node-a")?.end();
    for (const program of programs.values()) await program[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
});
