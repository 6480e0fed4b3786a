import assert from "node:assert/strict";
import { cliCommands } from "../../../src/cli/commands.ts";
import { dispatch } from "../../../src/cli/dispatch.ts";
import { captureIo } from "../../../src/testing/capture-io.ts";
import type { LiveWorld } from "./live-world.ts";
import { keyOf } from "./test-control.ts";

interface Told {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** `ctl` with an admin's key, in this process. */
export async function ctl({ control }: LiveWorld, ...args: readonly string[]): Promise<Told> {
  const { io, output } = captureIo({ YARDMASTER_URL: control.url, YARDMASTER_KEY: keyOf("admin") });
  const code = await dispatch(["ctl", ...args], cliCommands, "0", io);
  return { code, ...output() };
}

/** The same, while it runs; `stop` is Ctrl-C. */
export function ctlRunning({ control }: LiveWorld, ...args: readonly string[]) {
  const stop = new AbortController();
  const { io, output } = captureIo({ YARDMASTER_URL: control.url, YARDMASTER_KEY: keyOf("admin") }, stop.signal);
  const code = dispatch(["ctl", ...args], cliCommands, "0", io);
  return { code, output, stop: () => stop.abort(new Error("Ctrl-C")) };
}

/** The same where it is to succeed: what it wrote. */
export async function ctlDone(world: LiveWorld, ...args: readonly string[]): Promise<string> {
  const { code, out, err } = await ctl(world, ...args);
  assert.equal(code, 0, err);
  return out;
}
