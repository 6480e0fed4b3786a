import type { Command } from "./cli-io.ts";
import { configCommands } from "./config-commands.ts";
import { configConvert } from "./config-convert.ts";
import { ctlBoardCommands } from "./ctl-board.ts";
import { ctlJobCommands } from "./ctl-jobs.ts";
import { ctlCatalogCommands } from "./ctl-catalog.ts";
import { ctlClusterCommands } from "./ctl-cluster.ts";
import { ctlEventCommands } from "./ctl-events.ts";
import { ctlGatewayCommands } from "./ctl-gateways.ts";
import { ctlGpuCommands } from "./ctl-gpu.ts";
import { ctlKeyCommands } from "./ctl-key.ts";
import { ctlOverflowCommands } from "./ctl-overflow.ts";
import { ctlRestartCommands } from "./ctl-restart.ts";
import { ctlStatusCommands } from "./ctl-status.ts";
import { ctlUsage } from "./ctl-usage.ts";
import { ctlWeightsCommands } from "./ctl-weights.ts";
import { keyCommands } from "./key-commands.ts";

/** Commands that end by themselves. The roles, which run until they are told to stop, are added by `main.ts`. */
export const cliCommands: readonly Command[] = [
  ...configCommands,
  configConvert,
  ...keyCommands,
  ...ctlKeyCommands,
  ...ctlJobCommands,
  ...ctlStatusCommands,
  ...ctlClusterCommands,
  ...ctlEventCommands,
  ...ctlRestartCommands,
  ...ctlGatewayCommands,
  ...ctlBoardCommands,
  ...ctlCatalogCommands,
  ...ctlGpuCommands,
  ...ctlOverflowCommands,
  ctlUsage,
  ...ctlWeightsCommands,
];
