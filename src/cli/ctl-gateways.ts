import { z } from "zod";
import {
  CONTROL_ROUTES,
  gatewayCredentialsView,
  gatewayCredentialView,
  gatewayRevokedView,
  gatewayView,
} from "../contract/control-api.ts";
import { escapeControls } from "../kernel/log.ts";
import type { Command } from "./cli-io.ts";
import { controlCommand, inPath, show, showAnswer, watch, WATCH_HELP, WATCH_OPTIONS } from "./ctl-control.ts";
import { formatTable, orDash } from "./table.ts";

const list = controlCommand({
  words: ["ctl", "gateways"],
  summary: "list the gateways that are connected",
  about: "Gateways that are connected to the control plane that answers, and how far they have been told what runs.",
  optionsHelp: WATCH_HELP,
  options: WATCH_OPTIONS,
  act: (call) =>
    watch(call, (again) =>
      show(again, CONTROL_ROUTES.gateways, z.object({ gateways: z.array(gatewayView) }), ({ gateways }, shape) =>
        formatTable(
          ["GATEWAY", "VERSION", "SILENT", "FEED", "WAITING", "IN FLIGHT"],
          gateways.map((gateway) => [
            gateway.name,
            gateway.version,
            gateway.silent_s === null ? "-" : `${gateway.silent_s} s`,
            gateway.behind ? `${orDash(gateway.at)}, behind` : orDash(gateway.at),
            String(gateway.waiting),
            String(gateway.in_flight),
          ]),
          shape,
        ),
      ),
    ),
});

const enrol = controlCommand({
  words: ["ctl", "gateways", "enrol"],
  names: ["NAME"],
  summary: "make the credential that lets a gateway follow the cluster",
  about: "Prints a credential for `gateway.token_env`. One that the name had before ends.",
  options: {},
  act: async (call) => {
    const path = `${CONTROL_ROUTES.gateways}/credentials`;
    const answer = await call.client.request("POST", path, { name: call.positionals[0] });
    return showAnswer(
      call,
      answer,
      gatewayCredentialView,
      ({ name, credential }) =>
        `credential for gateway ${escapeControls(name)} (shown this once):\n\n    ${escapeControls(credential)}\n`,
    );
  },
});

const credentials = controlCommand({
  words: ["ctl", "gateways", "credentials"],
  summary: "list the credentials that were made for gateways",
  about: "Names, who made them and when; never the credentials.",
  options: {},
  act: (call) =>
    show(call, `${CONTROL_ROUTES.gateways}/credentials`, gatewayCredentialsView, (body, shape) =>
      formatTable(
        ["GATEWAY", "MADE BY", "MADE"],
        body.credentials.map(({ name, author, created }) => [name, author, created]),
        shape,
      ),
    ),
});

const revoke = controlCommand({
  words: ["ctl", "gateways", "revoke"],
  names: ["NAME"],
  summary: "take a gateway's credential back",
  about: "It ends at once. The gateway goes on with what it knows, and is told nothing more.",
  options: {},
  act: async (call) => {
    const [name = ""] = call.positionals;
    const answer = await call.client.request("DELETE", `${CONTROL_ROUTES.gateways}/credentials/${inPath(name)}`);
    return showAnswer(call, answer, gatewayRevokedView, () => `revoked ${escapeControls(name)}\n`);
  },
});

export const ctlGatewayCommands: readonly Command[] = [list, enrol, credentials, revoke];
