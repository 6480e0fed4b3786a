import { parseRoleArgs, ROLE_OPTIONS_HELP } from "../cli/args.ts";
import type { Command } from "../cli/cli-io.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { serveGateway } from "./serve-gateway.ts";

export const gatewayRole = (ports: () => ProcessPorts): Command => ({
  words: ["gateway"],
  summary: "the data plane: admission, routing, proxying",
  help: `usage: yardmaster gateway [options]\n\nServes the upstreams of the configuration file until SIGTERM; SIGHUP re-reads the file.\n\n${ROLE_OPTIONS_HELP}`,
  run: (args, io) =>
    serveGateway(
      {
        flags: parseRoleArgs(args),
        standIn: false,
        beside: () =>
          Promise.resolve({
            extend: (config) => config,
            sessionKeys: [],
            onReady: (gateway, config) =>
              io.out(
                `yardmaster gateway ready listen=${gateway.address} coordination=${config.coordination} version=${ports().version}\n`,
              ),
            onConfig: () => {},
            onReload: () => {},
            stop: () => Promise.resolve(),
          }),
      },
      ports(),
    ),
});
