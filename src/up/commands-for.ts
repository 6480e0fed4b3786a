import type { Command } from "../cli/cli-io.ts";
import type { ProcessPorts } from "./process-ports.ts";

const ROLE_WORDS = ["up", "gateway", "control", "agent", "sim-engine"] as const;

/**
 * The commands among which the first word chooses. A role's word brings that role alone: its code takes longer to load than a gateway
 * takes to start. Any other word, or none, brings all there are.
 */
export async function commandsFor(word: string | undefined, ports: () => ProcessPorts): Promise<readonly Command[]> {
  switch (word) {
    case "gateway":
      return [(await import("./gateway-role.ts")).gatewayRole(ports)];
    case "control":
      return [(await import("./control-role.ts")).controlRole(ports)];
    case "agent":
      return [(await import("./agent-role.ts")).agentRole(ports)];
    case "sim-engine":
      return [(await import("./sim-engine-role.ts")).simEngineRole(ports)];
    case "up":
      return [(await import("./up-role.ts")).upRole(ports)];
    default: {
      const [roles, cli, audit, verify] = await Promise.all([
        Promise.all(ROLE_WORDS.map((role) => commandsFor(role, ports))),
        import("../cli/commands.ts"),
        import("../cli/ctl-audit.ts"),
        import("../cli/ctl-verify.ts"),
      ]);
      return [...roles.flat(), ...cli.cliCommands, ...audit.CTL_AUDIT_COMMANDS, verify.ctlVerify];
    }
  }
}
