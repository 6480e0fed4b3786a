import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingHttpHeaders } from "node:http";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BOARD_ROUTES, type Who } from "../../src/contract/board.ts";
import { aSelfSignedCertificate } from "../../src/testing/self-signed-certificate.ts";
import { keyOf, startTestControl, type TestControl } from "./support/test-control.ts";

// The board over TLS, with a certificate that is made for the test.

const { cert, key } = aSelfSignedCertificate("localhost");
let folder: string;
let control: TestControl;
let port: number;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "yardmaster-board-tls-"));
  const [certFile, keyFile] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  await writeFile(certFile, cert);
  await writeFile(keyFile, key);
  control = await startTestControl({ control: { tls: { cert_file: certFile, key_file: keyFile } } });
  port = Number(control.plane.address.split(":").at(-1));
});
after(async () => {
  await control[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** As the board's own page, by a client that trusts the certificate and nothing else. */
function ask(
  method: string,
  path: string,
  { body, headers = {} }: { readonly body?: unknown; readonly headers?: Record<string, string> } = {},
): Promise<Answer> {
  const own = { origin: `https://localhost:${port}`, "sec-fetch-site": "same-origin" };
  const text = body === undefined ? undefined : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const req = request({
      host: "localhost",
      port,
      family: 4,
      ca: cert,
      agent: false,
      method,
      path,
      headers: { ...own, ...(text === undefined ? {} : { "content-type": "application/json" }), ...headers },
    });
    req.on("error", reject);
    req.on("response", (res) => {
      const parts: Buffer[] = [];
      res.on("data", (part: Buffer) => parts.push(part));
      res.on("end", () =>
        resolve({ status: res.statusCode ?? 0, headers: res.headers, text: Buffer.concat(parts).toString() }),
      );
    });
    req.end(text);
  });
}

const YEAR_S = 31_536_000;
const mustBindToTls = ({ headers }: Answer, what: string): void => {
  const told = /^max-age=(\d+)/.exec(headers["strict-transport-security"] ?? "")?.[1];
  assert.ok(Number(told) >= YEAR_S, `${what}: ${headers["strict-transport-security"]}`);
};

test("over TLS a session's cookie is one that no plain page and no other name can set, and it alone signs in [80.C49 80.D35]", async () => {
  const signedIn = await ask("POST", BOARD_ROUTES.session, { body: { key: keyOf("operator") } });
  assert.equal(signedIn.status, 200, signedIn.text);
  const [setCookie = ""] = signedIn.headers["set-cookie"] ?? [];
  assert.match(
    setCookie,
    /^__Host-ym-board=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=\d+; Secure$/,
    "a browser takes this prefix with Secure and Path=/ and without a Domain alone",
  );
  const [cookie = ""] = setCookie.split(";");
  const who = await ask("GET", BOARD_ROUTES.session, { headers: { cookie } });
  assert.deepEqual([who.status, (JSON.parse(who.text) as Who).keyId], [200, "key-operator"]);
  assert.equal((await ask("GET", "/v1/status", { headers: { cookie } })).status, 200);
  // The same secret under the name that it has without TLS: whoever can set that one can't make it count.
  const plain = cookie.replace("__Host-", "");
  assert.equal((await ask("GET", "/v1/status", { headers: { cookie: plain } })).status, 401);
  const from = { cookie, origin: "https://evil.example", "sec-fetch-site": "cross-site" };
  assert.equal((await ask("DELETE", BOARD_ROUTES.session, { headers: from })).status, 403);

  const out = await ask("DELETE", BOARD_ROUTES.session, { headers: { cookie } });
  assert.equal(out.status, 204);
  assert.deepEqual(out.headers["set-cookie"], [
    "__Host-ym-board=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure",
  ]);
  assert.equal((await ask("GET", "/v1/status", { headers: { cookie } })).status, 401);
});

test("over TLS every answer that a browser can get binds it to TLS for a year, refusals too; without TLS none does [80.D35]", async () => {
  const signedIn = await ask("POST", BOARD_ROUTES.session, { body: { key: keyOf("operator") } });
  const cookie = (signedIn.headers["set-cookie"]?.[0] ?? "").split(";")[0] ?? "";
  const asked: readonly (readonly [path: string, status: number, headers?: Record<string, string>])[] = [
    ["/", 302],
    [BOARD_ROUTES.session, 401],
    ["/v1/status", 401],
    ["/v1/status", 200, { cookie }],
    ["/healthz", 200],
    ["/none", 404],
    ["/v1/status?key=x", 400],
  ];
  for (const [path, status, headers = {}] of asked) {
    const answer = await ask("GET", path, { headers });
    assert.equal(answer.status, status, path);
    mustBindToTls(answer, path);
  }
  // It says so itself where it is not built.
  const page = await ask("GET", BOARD_ROUTES.page);
  assert.ok(page.status === 200 || page.status === 503);
  mustBindToTls(page, "the page");
  await using plain = await startTestControl();
  for (const [path] of asked) {
    const answer = await fetch(plain.url + path, { redirect: "manual" });
    await answer.arrayBuffer();
    assert.equal(answer.headers.get("strict-transport-security"), null, path);
  }
});
