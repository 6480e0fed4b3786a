import type { CliIo } from "../cli/cli-io.ts";

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
}
