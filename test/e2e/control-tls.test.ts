import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connect } from "node:tls";
import { stringify } from "yaml";
import type { NodeAnswer } from "../../src/contract/control-api.ts";
import { aSelfSignedCertificate } from "../../src/testing/self-signed-certificate.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { leadingControl } from "./support/fake-fleet.ts";
import { runProgram } from "./support/program.ts";
import { keyOf } from "./support/test-control.ts";

const PATIENCE_MS = 60_000;

/** The certificate that a server shows, as PEM without its line ends. */
const shownBy = (port: number): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().raw.toString("base64"));
      socket.destroy();
    });
    socket.on("error", reject);
  });
const bytesOf = (pem: string): string => pem.replaceAll(/-----[A-Z ]+-----|\s/g, "");

test("over TLS agents and gateways are asked for a certificate beside their credential, `ctl` for a key alone, and renewed certificates are used without a restart [40.N1]", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-tls-"));
  const path = (name: string): string => join(folder, name);
  const server = aSelfSignedCertificate("localhost");
  const client = aSelfSignedCertificate("node-a");
  await writeFile(path("cert.pem"), server.cert);
  await writeFile(path("key.pem"), server.key);
  await writeFile(path("clients.pem"), client.cert);
  await writeFile(path("client-cert.pem"), client.cert);
  await writeFile(path("client-key.pem"), client.key);
  const tls = { cert_file: path("cert.pem"), key_file: path("key.pem"), client_ca_file: path("clients.pem") };
  await using control = await leadingControl({ control: { tls } });
  const port = Number(control.plane.address.split(":").at(-1));
  const ctl = async (...words: string[]): Promise<string> => {
    const env = { HOME: folder, NODE_EXTRA_CA_CERTS: path("cert.pem"), YARDMASTER_KEY: keyOf("admin") };
    const ended = await runProgram(["ctl", ...words, "--url", `https://localhost:${port}`], { cwd: folder, env }).end();
    assert.equal(ended.code, 0, ended.err);
    return ended.out;
  };
  const nodes = async (): Promise<readonly NodeAnswer[]> =>
    (JSON.parse(await ctl("nodes", "-o", "json")) as { nodes: NodeAnswer[] }).nodes;
  const start = async (role: string, section: Record<string, unknown>, token: string): Promise<Program> => {
    const config = path(`${role}.yaml`);
    const links = { control: [`wss://localhost:${port}`], ca_file: path("cert.pem"), ...section };
    const more = role === "gateway" ? { listen: "127.0.0.1:0", upstreams: [] } : {};
    await writeFile(config, stringify({ data_dir: path(role), [role]: links, ...more }), { mode: 0o600 });
    const program = runProgram([role, "--config", config], {
      cwd: folder,
      env: { HOME: folder, YARDMASTER_TOKEN: token },
    });
    await program.said(new RegExp(`^yardmaster ${role} ready `, "m"));
    return program;
  };
  const certificate = { client_cert_file: path("client-cert.pem"), client_key_file: path("client-key.pem") };
  try {
    const token = (await control.plane.enrolmentToken("node-a"))?.reveal() ?? "";
    {
      await using bare = await start("agent", { name: "node-a" }, token);
      await bare.said(/refused with status 403/, "err");
      assert.deepEqual(await nodes(), []);
    }
    await using _agent = await start("agent", { name: "node-a", ...certificate }, token);
    await eventually("the node", nodes, ([node]) => node?.state === "ready", PATIENCE_MS);
    const credential = /^ {4}(ym\S+)$/m.exec(await ctl("gateways", "enrol", "gw"))?.[1] ?? "";
    await using gateway = await start("gateway", { name: "gw", ...certificate }, credential);
    await gateway.said(/link\.up/, "err");

    assert.equal(await shownBy(port), bytesOf(server.cert));
    await writeFile(path("cert.pem"), "what is no certificate");
    control.plane.reload();
    await eventually(
      "the refusal",
      () => control.logLines.join("\n"),
      (lines) => lines.includes("control.certificatesRefused"),
    );
    assert.equal(await shownBy(port), bytesOf(server.cert), "what serves stays");
    const renewed = aSelfSignedCertificate("localhost");
    await writeFile(path("cert.pem"), renewed.cert);
    await writeFile(path("key.pem"), renewed.key);
    control.plane.reload();
    await eventually(
      "the renewed one",
      () => shownBy(port),
      (shown) => shown === bytesOf(renewed.cert),
    );
    assert.equal((await nodes())[0]?.state, "ready", "links that stand go on");
    assert.ok(!control.logLines.join("\n").includes(bytesOf(server.key).slice(0, 40)));
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
});

type Program = ReturnType<typeof runProgram>;
