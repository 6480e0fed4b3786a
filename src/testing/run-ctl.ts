import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { cliCommands } from "../cli/commands.ts";
import { dispatch } from "../cli/dispatch.ts";
import { captureIo } from "./capture-io.ts";

export interface RanCtl {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** What the gateway was asked; a body is null where there was none. */
  readonly asked: readonly (readonly [request: string, body: unknown])[];
}

/** Runs a command against a gateway that answers everything in one way. */
export async function runCtl(argv: readonly string[], status: number, body: unknown): Promise<RanCtl> {
  const asked: [string, unknown][] = [];
  const server = createServer((req, res) => {
    let text = "";
    req.on("data", (chunk: Buffer) => (text += chunk.toString()));
    req.on("end", () => {
      asked.push([`${req.method} ${req.url}`, text === "" ? null : JSON.parse(text)]);
      res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { io, output } = captureIo({ YARDMASTER_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  try {
    const code = await dispatch([...argv, "--data-dir", "no-such-folder"], cliCommands, "0", io);
    return { code, ...output(), asked };
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
