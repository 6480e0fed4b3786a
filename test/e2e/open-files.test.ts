import assert from "node:assert/strict";
import { test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { anEngine } from "./support/an-engine.ts";
import { parseAnswer } from "./support/raw-answers.ts";
import { CLIENT_KEY, PROGRAM, programFolder, RunningProgram } from "./support/program.ts";

const FILES = 160;
const CLIENTS = 200;

for (const server of ["net", "http"])
  test(`more clients than the process may open files leave room for the engine, and whoever is turned away is counted and told of, with ${server} [80.G12 80.C48]`, async () => {
    const engine = await anEngine({ slots: 8 });
    await using folder = await programFolder({
      client_server: server,
      upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 8, endpoints: [{ url: engine.url }] }],
    });
    const command = ["gateway", "--config", folder.config, "--log-format", "json"];
    await using program = new RunningProgram("sh", ["-c", `ulimit -n ${FILES} && exec "$0" "$@"`, PROGRAM, ...command]);
    const port = await program.ready();
    await program.said(/"op":"connections\.limited","max":80,"configured":16000,"files":160/, "err");
    const clients = await Promise.all(Array.from({ length: CLIENTS }, () => RawClient.connect(port)));
    try {
      await program.said(/"op":"connections\.full"/, "err");
      const body = JSON.stringify({ model: "m", max_tokens: 1, messages: [{ role: "user", content: "hi" }] });
      const head = `Host: g\r\nAuthorization: Bearer ${CLIENT_KEY}\r\nContent-Type: application/json\r\nConnection: close\r\n`;
      const ask = async (request: string): Promise<string | null> => {
        for (let client = clients.pop(); client !== undefined; client = clients.pop()) {
          await client.write(request).catch(() => {}); // It may be one that was turned away.
          const bytes = await client.readToEnd();
          if (bytes.length > 0) return `${parseAnswer(bytes).status} ${bytes.toString()}`;
        }
        return null;
      };
      const answer = await ask(
        `POST /v1/chat/completions HTTP/1.1\r\n${head}Content-Length: ${body.length}\r\n\r\n${body}`,
      );
      assert.match(answer ?? "", /^200 /);
      const page = await ask(`GET /metrics HTTP/1.1\r\n${head}\r\n`);
      const turnedAway = Number(/^yardmaster_clients_turned_away_total (\d+)/m.exec(page ?? "")?.[1]);
      assert.equal(turnedAway, CLIENTS - FILES / 2);
      assert.equal(program.err.split('"connections.full"').length - 1, 1);
    } finally {
      for (const client of clients) client.close();
      await engine.close();
    }
  });
