import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { YardmasterError } from "../kernel/errors.ts";
import { systemClock } from "../kernel/clock.ts";
import { parseRoleArgs, splitList } from "./args.ts";
import { processIo } from "./cli-io.ts";
import type { Command } from "./cli-io.ts";
import { cliCommands } from "./commands.ts";
import { dispatch } from "./dispatch.ts";
import { captureIo } from "../testing/capture-io.ts";

const run = async (
  argv: readonly string[],
  commands: readonly Command[] = cliCommands,
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> => {
  const { io, output } = captureIo();
  const code = await dispatch(argv, commands, "1.2.3", io);
  return { code, ...output() };
};

test("nothing, half a command and a wrong word are usage errors on stderr, with a hint", async () => {
  for (const argv of [
    [],
    ["ctl"],
    ["ctl", "key"],
    ["confg", "check"],
    ["config", "chek"],
    ["ctl", "key", "lst"],
    ["--bogus"],
    ["ctl", "--bogus"],
  ]) {
    const { code, out, err } = await run(argv);
    assert.deepEqual([code, out], [2, ""], argv.join(" "));
    assert.match(err, /^usage: yardmaster|^see: yardmaster/m);
  }
  assert.equal(
    (await run(["config", "chek"])).err,
    "yardmaster: unknown command `config chek`; did you mean `check`?\nsee: yardmaster config --help\n",
  );
  assert.match((await run(["confg"])).err, /did you mean `config`\?\nsee: yardmaster --help\n$/);
});

test("help and version go to stdout with exit code 0", async () => {
  for (const argv of [["--help"], ["ctl", "--help"], ...cliCommands.map((command) => [...command.words, "--help"])]) {
    const { code, out, err } = await run(argv);
    assert.deepEqual([code, err], [0, ""], argv.join(" "));
    assert.match(out, /usage: yardmaster/);
  }
  assert.deepEqual(await run(["--version"]), { code: 0, out: "1.2.3\n", err: "" });
});

test("every command refuses an unknown option, with a hint, and names itself", async () => {
  for (const command of cliCommands) {
    const { code, out, err } = await run([...command.words, "--jsn"]);
    assert.deepEqual([code, out], [2, ""], command.words.join(" "));
    assert.match(err, new RegExp(`^yardmaster ${command.words.join(" ")}: unknown option --jsn`));
  }
});

test("an error that is not the user's is not swallowed", async () => {
  const broken: Command = {
    words: ["x"],
    summary: "",
    help: "",
    run: () => Promise.reject(new YardmasterError("INTERNAL", "broken")),
  };
  await assert.rejects(run(["x"], [broken]), /broken/);
});

test("the flags of a role have defaults and are checked", () => {
  assert.deepEqual(parseRoleArgs([]), {
    configPath: "yardmaster.yaml",
    configGiven: false,
    listen: undefined,
    dataDir: undefined,
    logLevel: "info",
    logFormat: "pretty",
  });
  assert.deepEqual(
    parseRoleArgs([
      "--config",
      "a.yaml",
      "--listen=[::1]:0",
      "--data-dir",
      "d",
      "--log-level",
      "debug",
      "--log-format",
      "json",
    ]),
    {
      configPath: "a.yaml",
      configGiven: true,
      listen: "[::1]:0",
      dataDir: "d",
      logLevel: "debug",
      logFormat: "json",
    },
  );
  for (const args of [
    ["--listen", "8200"],
    ["--log-level", "loud"],
    ["--log-format", "xml"],
    ["extra"],
    ["--config"],
    ["--config="],
    ["--confg", "x"],
    ["--config", "a", "--config", "b"],
    ["--data-dir", ""],
    ["-x"],
  ]) {
    assert.throws(() => parseRoleArgs(args), { code: "USAGE" }, args.join(" "));
  }
  assert.throws(() => splitList("classes", "a,,b"), { code: "USAGE" });
});

const codedError = (code: string, message: string): Error => Object.assign(new Error(message), { code });

/** A process's output that calls back, or not, as a stream does. */
function anOutput(): {
  readonly streams: Parameters<typeof processIo>[0];
  readonly stdout: FakeOutput;
  told: string[];
} {
  const told: string[] = [];
  const stderr = Object.assign(new EventEmitter(), { write: (text: string) => told.push(text) });
  const stdout = new FakeOutput();
  return { streams: { stdout, stderr }, stdout, told };
}

class FakeOutput extends EventEmitter {
  readonly written: string[] = [];
  /** What the next write fails with, told later as streams do. */
  fault: Error | null = null;

  write(text: string, done?: () => void): void {
    const { fault } = this;
    if (fault !== null) {
      queueMicrotask(() => this.emit("error", fault));
      return;
    }
    if (text !== "") this.written.push(text);
    if (done !== undefined) queueMicrotask(done);
  }
}

test("a reader that goes away ends the output quietly and aborts the work", async () => {
  const { streams, stdout, told } = anOutput();
  const { io, exitCode } = processIo(streams, {}, systemClock, new AbortController().signal);
  io.out("a");
  assert.equal(await exitCode(3), 3);
  stdout.emit("error", codedError("EPIPE", "write EPIPE"));
  io.out("b");
  assert.deepEqual([stdout.written, told], [["a"], []]);
  assert.equal(await exitCode(3), 0);
  assert.equal(io.signal.aborted, true);
});

test("output that can't be written, as on a full disk, is a failure that is told, also when the stream tells of it at the very end", async () => {
  for (const [code, expected] of [
    [0, 1],
    [3, 3],
  ] as const) {
    const { streams, stdout, told } = anOutput();
    const { io, exitCode } = processIo(streams, {}, systemClock, new AbortController().signal);
    stdout.fault = codedError("ENOSPC", "no space left on device");
    io.out("the whole answer");
    assert.equal(await exitCode(code), expected);
    assert.deepEqual(told, ["yardmaster: the output could not be written: no space left on device\n"]);
  }
});

test("a command that has written nothing does not ask its output how it is", async () => {
  const { streams, stdout, told } = anOutput();
  stdout.fault = codedError("ENOSPC", "no space left on device");
  const { exitCode } = processIo(streams, {}, systemClock, new AbortController().signal);
  assert.deepEqual([await exitCode(2), told], [2, []]);
});
