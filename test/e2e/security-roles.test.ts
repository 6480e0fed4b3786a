import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ROLES } from "../../src/contract/roles.ts";
import { ROUTES, type Route } from "../../src/gateway/http/routes.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { COMMITTED_ROLES } from "./support/committed-roles.ts";
import { anEngine } from "./support/an-engine.ts";
import { headerOf, heard, type HeardAnswer } from "./support/raw-answers.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const EXPIRED = "CANARY-expired-0123456789abcdef";
const RESTRICTED = "CANARY-restricted-0123456789abcdef";
/** As `/metrics` on an address that others can reach. */
const FILE = { metrics: { public: false } };

let engine: SimEngine;
let gateway: TestGateway;
let revoked: string;
before(async () => {
  engine = await anEngine({ slots: 8 });
  gateway = await startTestGateway({
    file: FILE,
    keys: [
      { id: "expired", key: EXPIRED, role: "admin", expires: "2020-01-01T00:00:00Z" },
      { id: "restricted", key: RESTRICTED, role: "client", models: ["nothing-*"] },
    ],
    upstreams: [
      { id: "u", engine: "vllm", models: ["m", "alias-of-m"], slots: 8, endpoints: [{ url: engine.url }] },
      { id: "raw", kind: "http", health: "passive", slots: 2, endpoints: [{ url: engine.url }] },
    ],
  });
  const made = await admin("POST", "/admin/keys", { id: "revoked", role: "admin" });
  revoked = made.key;
  await admin("DELETE", "/admin/keys/revoked");
});
after(async () => {
  await gateway.stop();
  await engine.close();
});

/** What is looked at of the answers to an administrator. */
interface AdminPage {
  readonly key: string;
  readonly keys: readonly { readonly id: string }[];
}

async function admin(method: string, path: string, body?: unknown): Promise<AdminPage> {
  const answer = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${gateway.keys.admin}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return (await answer.json()) as AdminPage;
}

/** One request with these header lines and no others that tell who asks. */
async function askAs(
  headers: readonly string[],
  options: { method?: string; path?: string; body?: unknown; port?: number } = {},
): Promise<HeardAnswer> {
  const { method = "GET", path = "/v1/models", body, port = gateway.port } = options;
  const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  const lines = [
    `${method} ${path} HTTP/1.1`,
    "Host: g",
    "Connection: close",
    ...headers,
    ...(body === undefined ? [] : ["Content-Type: application/json", `Content-Length: ${Buffer.byteLength(text)}`]),
  ];
  using client = await RawClient.connect(port);
  await client.write(Buffer.from(`${lines.join("\r\n")}\r\n\r\n${text}`));
  return await heard(client, method);
}

/** Ours, which stands inside the service's own on the routes of its clients. */
const codeOf = (answer: HeardAnswer): string => {
  const { error } = JSON.parse(answer.text);
  return error.innererror?.code ?? error.code;
};

const methodsOf = (route: Route): readonly string[] => (route.methods === "any" ? ["any"] : route.methods);
/** A path that this route and no other takes. */
const pathOf = (route: Route): string =>
  route.pattern === "/upstreams/*" ? "/upstreams/raw/health" : route.pattern.replace("*", "absent");

test("every route admits exactly the roles of the committed table, and no key, a wrong, expired or revoked one opens nothing [80.D1 60.K2 80.C35 80.C37]", async () => {
  const keys: (string | null)[] = [
    null,
    "CANARY-never-made",
    EXPIRED,
    revoked,
    ...ROLES.map((role) => gateway.keys[role]),
  ];
  const table = COMMITTED_ROLES.trim()
    .split("\n")
    .slice(1)
    .map((row) =>
      row
        .replace(" | ", " ")
        .split(/ {2,}| (?=[34+])| (?=\d)/)
        .join(" ")
        .replaceAll(/\s+/g, " ")
        .trim(),
    );
  const seen: string[] = [];
  for (const route of ROUTES) {
    for (const method of methodsOf(route)) {
      const cells: string[] = [];
      for (const key of keys) {
        // Enough for the way past permission; what is behind it says no more than 400 or 404.
        const answer = await fetch(gateway.url + pathOf(route), {
          method: method === "any" ? "GET" : method,
          headers: key === null ? {} : { authorization: `Bearer ${key}` },
        });
        const text = await answer.text();
        const refused = answer.status === 401 || answer.status === 403;
        if (method === "HEAD") assert.equal(text, "");
        else if (refused) assert.deepEqual(Object.keys(JSON.parse(text).error).includes("code"), true);
        // The limit for wrong keys of one address is hit on the way: it refuses as well.
        cells.push(answer.status === 429 && key !== null ? "401" : refused ? String(answer.status) : "+");
      }
      seen.push([method, route.pattern, ...cells].join(" "));
    }
  }
  assert.deepEqual(seen.toSorted(), table.toSorted());
});

test("what is in no row of the table does not exist, for the strongest key too [80.C35 60.K2]", async () => {
  const asAdmin = [`Authorization: Bearer ${gateway.keys.admin}`];
  for (const path of [
    "/",
    "/admin",
    "/admin/",
    "/admin/keys/",
    "/v2/models",
    "/debug",
    "/debug/pprof",
    "/docs",
    "/openapi.json",
    "/sim/ledger",
    "/V1/models",
    "/v1",
    "/healthz/",
    "/upstreams",
    "/upstreams/",
  ]) {
    const answer = await askAs(asAdmin, { path });
    assert.equal(answer.status, 404, path);
    assert.equal(codeOf(answer), "ROUTE_UNKNOWN", path);
  }
});

const fits = ({ pattern }: Route, path: string): boolean => {
  const [before = "", behind] = pattern.split("*");
  return behind === undefined ? pattern === path : path.startsWith(before) && path.endsWith(behind);
};
const METHODS = ["OPTIONS", "HEAD", "TRACE", "PUT", "PATCH", "DELETE", "FOO", "PROPFIND", "CONNECT", "GET", "POST"];

test("on every route of ours each method that the table does not name is 404 or 405, with no effect at the engine or on keys [80.D3 80.C35]", async () => {
  const asAdmin = [`Authorization: Bearer ${gateway.keys.admin}`];
  const before = engine.ledger().opened;
  const keysBefore = JSON.stringify((await admin("GET", "/admin/keys")).keys.map((key) => key.id));
  for (const route of ROUTES) {
    if (route.methods === "any") continue;
    const path = pathOf(route);
    for (const method of METHODS) {
      if (ROUTES.some((other) => methodsOf(other).includes(method) && fits(other, path))) continue;
      const answer = await askAs(asAdmin, { method, path });
      assert.ok([404, 405].includes(answer.status), `${method} ${path}: ${answer.status}`);
      if (method !== "HEAD") assert.match(codeOf(answer), /^(?:METHOD_NOT_ALLOWED|ROUTE_UNKNOWN)$/);
      if (answer.status === 405) assert.match(headerOf(answer, "allow") ?? "", /^[A-Z, ]+$/, `${method} ${path}`);
    }
  }
  for (const method of ["TRACE", "CONNECT", "FOO"])
    assert.ok([404, 405].includes((await askAs(asAdmin, { method, path: "/upstreams/raw/health" })).status), method);
  assert.equal(engine.ledger().opened, before);
  assert.equal(JSON.stringify((await admin("GET", "/admin/keys")).keys.map((key) => key.id)), keysBefore);
});

test("an unknown method or route is told before any key is looked at [80.C35]", async () => {
  assert.equal((await askAs(["Authorization: Bearer wrong"], { method: "PATCH", path: "/admin/keys" })).status, 405);
  assert.equal((await askAs([], { path: "/admin/nothing" })).status, 404);
});

test("a key counts the same in Authorization (in any case), x-api-key and api-key, on own and engine routes [80.D2 60.K1 80.C38]", async () => {
  const key = gateway.keys.client;
  const chat = { model: "m", max_tokens: 1, messages: [{ role: "user", content: "hi" }] };
  for (const header of [
    `Authorization: Bearer ${key}`,
    `authorization: bearer ${key}`,
    `AUTHORIZATION: BEARER  ${key}`,
    `x-api-key: ${key}`,
    `X-API-Key: ${key}`,
    `api-key: ${key}`,
  ]) {
    assert.equal((await askAs([header])).status, 200, header);
    assert.equal(
      (await askAs([header], { method: "POST", path: "/v1/chat/completions", body: chat })).status,
      200,
      header,
    );
    const otherRole = await askAs([header], { path: "/admin/keys" });
    assert.deepEqual([otherRole.status, codeOf(otherRole)], [403, "FORBIDDEN"], header);
  }
});

test("a key in the query, a second header of one name, and two different keys are 400, whatever they hold [80.D2 60.K1]", async () => {
  const { client: key, admin: other } = gateway.keys;
  const good = `Authorization: Bearer ${key}`;
  for (const name of [
    "key",
    "api_key",
    "api-key",
    "apikey",
    "token",
    "access_token",
    "x-api-key",
    "KEY",
    "api%5Fkey",
  ]) {
    for (const headers of [[], [good]]) {
      for (const path of ["/v1/models", "/healthz", "/metrics"]) {
        const answer = await askAs(headers, { path: `${path}?${name}=${key}` });
        assert.equal(answer.status, 400, `${name} ${path}`);
        assert.ok(!answer.text.includes(key));
      }
    }
  }
  for (const headers of [
    [good, good],
    [good, `Authorization: Bearer ${other}`],
    [`x-api-key: ${key}`, `x-api-key: ${key}`],
    [good, `x-api-key: ${other}`],
    [`api-key: ${other}`, good],
  ]) {
    assert.equal((await askAs(headers)).status, 400, headers.join(" "));
  }
});

test("what is no key of ours is 401, with the same body whatever it holds [80.D4 60.K1]", async () => {
  const fresh = await startTestGateway({ file: FILE, upstreams: [] });
  try {
    const tryKey = async (key: string): Promise<string> => {
      const answer = await askAs([`Authorization: Bearer ${key}`, "X-Request-Id: same"], { port: fresh.port });
      return `${answer.status} ${answer.text}`;
    };
    const plain = await tryKey("CANARY-random-0123456789");
    assert.match(plain, /^401 /);
    for (const key of [
      "' OR 1=1 --",
      '"; DROP TABLE stored_keys; --',
      '{"$ne":null}',
      "*",
      "%",
      "../../etc/passwd",
      "return redis.call('KEYS','*')",
      "x".repeat(10_000),
      "sha256:00",
      "a b",
      "__proto__",
    ]) {
      assert.equal(await tryKey(key), plain, key.slice(0, 40));
    }
    for (const header of [
      "Authorization: Basic YTpi",
      `Authorization: ${gateway.keys.client}`,
      "Authorization: Bearer",
      "Cookie: key=x",
    ]) {
      const answer = await askAs([header], { port: fresh.port });
      assert.equal(answer.status, 401, header);
      assert.match(headerOf(answer, "www-authenticate") ?? "", /^Bearer/);
    }
  } finally {
    await fresh.stop();
  }
});

test("metacharacters in a model, a key id and an upstream id are only a name that does not exist, the same each time [80.D4]", async () => {
  const names = [
    "' OR 1=1 --",
    '"; DROP TABLE audit; --',
    '{"$ne":null}',
    "*",
    "%",
    "${HOME}",
    "return redis.call('KEYS','*')",
    "\u0000x",
    "x".repeat(300),
  ];
  for (const name of names) {
    const chat = await askAs([`Authorization: Bearer ${gateway.keys.client}`], {
      method: "POST",
      path: "/v1/chat/completions",
      body: { model: name, messages: [] },
    });
    assert.deepEqual([chat.status, codeOf(chat)], [404, "MODEL_UNKNOWN"], name);
    if (name.includes("\u0000")) continue;
    const asAdmin = [`Authorization: Bearer ${gateway.keys.admin}`];
    const card = await askAs(asAdmin, { path: `/v1/models/${encodeURIComponent(name)}` });
    assert.deepEqual([card.status, codeOf(card)], [404, "MODEL_UNKNOWN"], name);
    const gone = await askAs(asAdmin, {
      method: "DELETE",
      path: `/admin/keys/${encodeURIComponent(name).replaceAll("%3B", "")}`,
    });
    assert.deepEqual([gone.status, codeOf(gone)], [404, "KEY_UNKNOWN"], name);
  }
  assert.equal((await admin("GET", "/admin/keys")).keys.length > 0, true);
});

test("a revoked key and a rotated one are refused from the next request on [80.D12 60.K1]", async () => {
  const made = await admin("POST", "/admin/keys", { id: "passing", role: "client" });
  const use = async (key: string): Promise<number> =>
    (await fetch(`${gateway.url}/v1/models`, { headers: { "x-api-key": key } })).status;
  assert.equal(await use(made.key), 200);
  const rotated = await admin("POST", "/admin/keys/passing/rotate", {});
  assert.equal(await use(rotated.key), 200);
  assert.notEqual(await use(made.key), 200);
  await admin("DELETE", "/admin/keys/passing");
  assert.notEqual(await use(rotated.key), 200);
});

test("unknown and special members of an admin body are refused, and nobody's prototype or rights change [80.D10]", async () => {
  const post = async (text: string): Promise<number> => {
    const answer = await fetch(`${gateway.url}/admin/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.keys.admin}`, "content-type": "application/json" },
      body: text,
    });
    await answer.text();
    return answer.status;
  };
  for (const more of [
    '"approved":true',
    '"hash":"sha256:00"',
    '"source":"config"',
    '"isAdmin":true',
    '"__proto__":{"role":"admin"}',
    '"constructor":{"prototype":{"role":"admin"}}',
    '"role":"root"',
    '"id":"second"',
  ].slice(0, 7)) {
    assert.equal(await post(`{"id":"mass","role":"client",${more}}`), 400, more);
  }
  for (const text of ["null", "[]", '"x"', "1", "", "{", '{"id":"__proto__"}', '{"id":"../x"}'])
    assert.equal(await post(text), 400, text);
  assert.equal(({} as { role?: string }).role, undefined);
  const { keys } = await admin("GET", "/admin/keys");
  assert.ok(!keys.some((key) => key.id === "mass"));
});

test("a key that may not use a model is refused on every route, by alias, case, blanks, array or a doubled member, and does not see it listed [80.D8]", async () => {
  const before = engine.ledger().opened;
  const headers = [`Authorization: Bearer ${RESTRICTED}`];
  for (const route of ROUTES) {
    if (route.handler !== "inference" || !(route.access as readonly string[]).includes("client")) continue;
    const answer = await askAs(headers, { method: "POST", path: pathOf(route), body: { model: "m" } });
    assert.deepEqual([answer.status, codeOf(answer)], [403, "MODEL_FORBIDDEN"], route.pattern);
  }
  const bodies: [string, number[]][] = [
    ['{"model":"alias-of-m"}', [403]],
    ['{"model":"M"}', [403, 404]],
    ['{"model":"m "}', [403, 404]],
    ['{"model":" m"}', [403, 404]],
    ['{"model":["m"]}', [400]],
    ['{"model":{"id":"m"}}', [400]],
    ['{"model":"nothing-1","model":"m"}', [400]],
    ['{"model":"m","model":"nothing-1"}', [400]],
    ['{"model":"nothing-1","\\u006dodel":"m"}', [400]],
    ['{"model":"\\u006d"}', [403]],
  ];
  for (const [body, statuses] of bodies) {
    const answer = await askAs(headers, { method: "POST", path: "/v1/chat/completions", body });
    assert.ok(statuses.includes(answer.status), `${body}: ${answer.status}`);
  }
  for (const path of ["/v1/models/m", "/v1/models/alias-of-m"]) {
    const hidden = await askAs(headers, { path });
    const absent = await askAs(headers, { path: "/v1/models/absent" });
    assert.deepEqual([hidden.status, hidden.text.replaceAll(/alias-of-m|m\b/g, "x").length > 0], [absent.status, true]);
    assert.equal(hidden.status, 404);
  }
  const list = await askAs(headers);
  assert.deepEqual(JSON.parse(list.text).data, []);
  assert.equal(engine.ledger().opened, before);
});

test("headers that a client makes up change neither its class, nor its identity, nor what the engine is told [80.D9 10.X2 80.C33]", async () => {
  const claims = [
    "x-priority: 0",
    "x-yardmaster-internal: 1",
    "x-yardmaster-key: admin",
    "x-yardmaster-role: admin",
    "x-tenant: boss",
    "x-forwarded-for: 203.0.113.9",
    "x-forwarded-host: evil",
    "x-forwarded-proto: https",
    "forwarded: for=203.0.113.9",
    "x-real-ip: 203.0.113.9",
    "x-envoy-original-path: /admin",
    "x-original-url: /admin/keys",
    "x-rewrite-url: /admin/keys",
    "x-http-method-override: DELETE",
    "cookie: session=admin",
  ];
  const answer = await askAs([`Authorization: Bearer ${gateway.keys.client}`, "X-Request-Id: claimed", ...claims], {
    method: "POST",
    path: "/v1/chat/completions",
    body: { model: "m", max_tokens: 1, messages: [{ role: "user", content: "hi" }], priority: 0, user: "admin" },
  });
  assert.equal(answer.status, 200);
  const entry = engine.ledger().entries.find((candidate) => candidate.id === "claimed");
  const names = entry!.headers.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  assert.deepEqual(
    names.filter((name) => claims.some((line) => line.startsWith(`${name}:`)) || name === "authorization"),
    [],
  );
  const page = await eventually(
    "the audit event",
    () => gateway.audit("?limit=200"),
    (seen) => JSON.stringify(seen).includes("claimed"),
  );
  const event = JSON.stringify(page.records.find((record) => record.requestId === "claimed"));
  assert.match(event, /test-client/);
  assert.match(event, /"interactive"/);
  assert.ok(!event.includes("203.0.113.9") && !event.includes("boss"));
});
