import { fileURLToPath } from "node:url";
import type { CliIo } from "../cli/cli-io.ts";

/** This program, for what is started as a process of its own. */
export const PROGRAM = fileURLToPath(new URL("../../bin/yardmaster", import.meta.url));

/** What a role that runs until it is told to stop needs of its process, beyond what a command needs. */
export interface ProcessPorts {
  readonly io: CliIo;
  /** The first SIGTERM or SIGINT: stop gracefully. */
  readonly stop: AbortSignal;
  /** The second one: end at once. */
  readonly hurry: AbortSignal;
  /** SIGHUP. */
  onReload(listener: () => void): void;
  readonly version: string;
  /** Whether this system is one that agents run on. */
  readonly hasAgents: boolean;
}
