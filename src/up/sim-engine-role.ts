import type { Command } from "../cli/cli-io.ts";
import { SIM_ENGINE_USAGE, serveSimEngine } from "../sim-engine/serve.ts";
import type { ProcessPorts } from "./process-ports.ts";

export const simEngineRole = (ports: () => ProcessPorts): Command => ({
  words: ["sim-engine"],
  summary: "a simulated engine with the real ones' wire formats, for trying and testing without a GPU",
  help: SIM_ENGINE_USAGE,
  run: (args, io) =>
    serveSimEngine(args, {
      clock: io.clock,
      stdout: { write: (text) => io.out(text) },
      stderr: { write: (text) => io.err(text) },
      signal: ports().stop,
      version: ports().version,
      apiKey: io.env["YARDMASTER_SIM_KEY"],
    }),
});
