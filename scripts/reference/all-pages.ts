import { readFileSync } from "node:fs";
import { type ReferencePage, referencePages, renderCliPage } from "../../src/cli/reference-docs.ts";
import { commandsFor } from "../../src/up/commands-for.ts";
import { renderControlApi } from "./openapi/control.ts";
import { renderGatewayApi } from "./openapi/gateway.ts";

/** Of the package; documents name the version that they were made for. */
const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
};

/** Every page of docs/reference that is made from the code. */
export async function allPages(): Promise<readonly ReferencePage[]> {
  const commands = await commandsFor(undefined, () => {
    throw new Error("a command is shown here, and not run");
  });
  return [
    ...referencePages(),
    { file: "cli.md", text: renderCliPage(commands) },
    { file: "openapi-control.json", text: renderControlApi(version) },
    { file: "openapi-gateway.json", text: renderGatewayApi(version) },
  ];
}
