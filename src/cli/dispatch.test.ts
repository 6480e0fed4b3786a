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
    assert.match(err, /usage: yardmaster/);
  }
  assert.match((await run(["config", "chek"])).err, /did you mean `check`/);
  assert.match((await run(["confg"])).err, /did you mean `config`/);
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

test("a reader that goes away ends the output quietly and aborts the work", () => {
  const stdout = Object.assign(new EventEmitter(), {
    written: [] as string[],
    write(text: string) {
      this.written.push(text);
    },
  });
  const { io, outputClosed } = processIo({ stdout, stderr: stdout }, {}, systemClock, new AbortController().signal);
  io.out("a");
  assert.equal(outputClosed(), false);
  stdout.emit("error", Object.assign(new Error("write EPIPE"), { code: "EPIPE" }));
  io.out("b");
  assert.deepEqual(stdout.written, ["a"]);
  assert.equal(outputClosed(), true);
  assert.equal(io.signal.aborted, true);
  assert.throws(() => stdout.emit("error", Object.assign(new Error("disk full"), { code: "ENOSPC" })), /disk full/);
});
