import { readFileSync } from "node:fs";
import { EXIT, processIo } from "./cli/cli-io.ts";
import { dispatch } from "./cli/dispatch.ts";
import { systemClock } from "./kernel/clock.ts";
import { commandsFor } from "./up/commands-for.ts";
import type { ProcessPorts } from "./up/process-ports.ts";

/** A second signal that does not end the process in this time is followed by the end all the same. */
const HURRY_MS = 1_000;

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
  version: string;
};
const stop = new AbortController();
const hurry = new AbortController();
const reloads: (() => void)[] = [];

function onStopSignal(): void {
  if (!stop.signal.aborted) {
    stop.abort(new Error("told to stop"));
    return;
  }
  hurry.abort(new Error("told to stop at once"));
  systemClock.after(HURRY_MS, () => process.exit(EXIT.failed));
}
process.on("SIGTERM", onStopSignal);
process.on("SIGINT", onStopSignal);
process.on("SIGHUP", () => reloads.forEach((reload) => reload()));
// A debugger port would open on this signal; nothing in production needs one.
process.on("SIGUSR1", () => {});

const { io, exitCode } = processIo(process, process.env, systemClock, stop.signal);
const ports = (): ProcessPorts => ({
  io,
  stop: stop.signal,
  hurry: hurry.signal,
  onReload: (listener) => reloads.push(listener),
  version,
  hasAgents: process.platform === "linux",
});

const argv = process.argv.slice(2);
const code = await dispatch(argv, await commandsFor(argv[0], ports), version, io);
// Sockets and workers that are still closing must not keep a stopped process.
process.exit(await exitCode(code));
