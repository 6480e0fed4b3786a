import { z } from "zod";
import { CONTROL_ROUTES, gatewayCredentialsView, gatewayCredentialView, gatewayView } from "../contract/control-api.ts";
import { escapeControls } from "../kernel/log.ts";
import { type Command, EXIT } from "./cli-io.ts";
import { reportFailure } from "./ctl-client.ts";
import { controlCommand, inPath, show, showBody, watch, WATCH_HELP, WATCH_OPTIONS } from "./ctl-control.ts";
import { formatTable, orDash } from "./table.ts";

const list = controlCommand({
  words: ["ctl", "gateways"],
  summary: "list the gateways that are connected",
  about: "Gateways that are connected to the control plane that answers, and how far they have been told what runs.",
  optionsHelp: WATCH_HELP,
  options: WATCH_OPTIONS,
  act: (call) =>
    watch(call, (again) =>
      show(again, CONTROL_ROUTES.gateways, z.object({ gateways: z.array(gatewayView) }), ({ gateways }) =>
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
  act: async ({ client, io, json, positionals }) => {
    const path = `${CONTROL_ROUTES.gateways}/credentials`;
    const answer = await client.request("POST", path, { name: positionals[0] });
    if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
    return showBody(
      io,
      json,
      gatewayCredentialView,
      answer.body,
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
    show(call, `${CONTROL_ROUTES.gateways}/credentials`, gatewayCredentialsView, (body) =>
      formatTable(
        ["GATEWAY", "MADE BY", "MADE"],
        body.credentials.map(({ name, author, created }) => [name, author, created]),
      ),
    ),
});

const revoke = controlCommand({
  words: ["ctl", "gateways", "revoke"],
  names: ["NAME"],
  summary: "take a gateway's credential back",
  about: "It ends at once. The gateway goes on with what it knows, and is told nothing more.",
  options: {},
  act: async ({ client, io, json, positionals }) => {
    const [name = ""] = positionals;
    const answer = await client.request("DELETE", `${CONTROL_ROUTES.gateways}/credentials/${inPath(name)}`);
    if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
    io.out(json ? `${JSON.stringify(answer.body)}\n` : `revoked ${escapeControls(name)}\n`);
    return EXIT.done;
  },
});

export const ctlGatewayCommands: readonly Command[] = [list, enrol, credentials, revoke];
