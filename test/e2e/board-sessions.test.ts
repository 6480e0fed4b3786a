import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { BOARD_ACTIONS, BOARD_ROUTES, type Who } from "../../src/contract/board.ts";
import type { Role } from "../../src/contract/roles.ts";
import { API_ROUTES } from "../../src/control/api/routes.ts";
import { aNodeDoc } from "../../src/testing/fleet-docs.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { signIn, type SignedIn } from "./support/board-client.ts";
import { keyOf, startTestControl, type TestControl } from "./support/test-control.ts";

let control: TestControl;
before(async () => {
  control = await startTestControl();
  await eventually(
    "the lead",
    () => control.plane.leading,
    (leading) => leading,
  );
  await control.plane.commit([{ kind: "node", id: "node-1", doc: aNodeDoc("node-1", { name: "rack-1" }) }], []);
});
after(() => control[Symbol.asyncDispose]());

const drain = (by: SignedIn, headers: Record<string, string> = {}): Promise<Response> =>
  by.fetch("/v1/nodes/rack-1/cordon", { method: "POST", headers });

test("a board is signed in with a key of its people, keeps a cookie that no script reads, and does what ctl does by the same routes [60.K2 80.C49]", async () => {
  const by = await signIn(control.url, { key: keyOf("operator") });
  assert.match(by.setCookie, /^ym-board=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=\d+$/);
  const who = (await (await by.fetch(BOARD_ROUTES.session)).json()) as Who;
  assert.deepEqual([who.keyId, who.role, who.signedIn], ["key-operator", "operator", true]);
  assert.ok(who.may.includes("drain") && !who.may.includes("nodeRemove") && !who.may.includes("overflowApprove"));
  assert.equal((await drain(by)).status, 200);
  const { events } = (await (await by.fetch("/v1/events")).json()) as { events: { kind: string; by: string }[] };
  assert.ok(events.some(({ kind, by: who_ }) => kind === "nodeCordoned" && who_ === "key-operator"));
  const forbidden = await by.fetch("/v1/nodes/rack-1", { method: "DELETE" });
  assert.deepEqual([forbidden.status, await codeOf(forbidden)], [403, "FORBIDDEN"]);
  const unknown = await by.fetch("/v1/nodes/none/drain", { method: "POST" });
  assert.deepEqual([unknown.status, await codeOf(unknown)], [404, "NODE_UNKNOWN"]);
});

const codeOf = async (answer: Response): Promise<string> =>
  ((await answer.json()) as { error: { code: string } }).error.code;

test("keys of other roles, wrong keys and what is no JSON sign nobody in, and guessing is slowed down [60.K1 60.K2 80.D34]", async () => {
  await using own = await startTestControl();
  const tries = async (body: string, type = "application/json"): Promise<number> =>
    (await fetch(own.url + BOARD_ROUTES.session, { method: "POST", body, headers: { "content-type": type } })).status;
  for (const role of ["client", "agent", "gateway", "metrics"] satisfies Role[])
    assert.equal(await tries(JSON.stringify({ key: keyOf(role) })), 403, role);
  const good = JSON.stringify({ key: keyOf("admin") });
  assert.equal(await tries(good, "text/plain"), 415);
  assert.equal(await tries(good, "application/x-www-form-urlencoded"), 415);
  for (const body of ["", "[]", "{", "{}", '{"key":""}', '{"key":"a","once":"b"}', '{"once":1}'])
    assert.ok([400, 401].includes(await tries(body)), body);
  const wrong = await Promise.all(Array.from({ length: 40 }, (_, at) => tries(JSON.stringify({ key: `wrong-${at}` }))));
  assert.ok(wrong.includes(401) && wrong.includes(429), wrong.join());
  assert.ok(!wrong.includes(200));
  assert.equal(await tries(good), 200, "a good key is never held up");
});

test("a session ends at sign-out, when its key is taken back and when the key's role changes; its open board is told within seconds [80.D12]", async () => {
  await using own = await startTestControl();
  const auth = { mode: "keys" as const, allowInsecure: false };
  const keys = (["operator", "admin"] as const).map((role) => own.apiKey(role));
  const [one, two] = [
    await signIn(own.url, { key: keyOf("operator") }),
    await signIn(own.url, { key: keyOf("operator") }),
  ];
  assert.equal((await one.fetch(BOARD_ROUTES.session, { method: "DELETE" })).status, 204);
  assert.equal((await one.fetch("/v1/status")).status, 401, "signed out");
  assert.equal((await two.fetch("/v1/status")).status, 200, "another browser is not concerned");
  const stream = await two.stream();
  await stream.until("a snapshot", () => stream.count("snapshot") > 0);
  own.plane.applyAuth({ ...auth, keys: keys.filter(({ role }) => role !== "operator") });
  assert.equal((await two.fetch("/v1/status")).status, 401, "its key was taken back");
  await stream.until("the end", () => stream.events.at(-1)?.event === "end");
  assert.deepEqual((stream.events.at(-1)?.data as { code?: string } | undefined)?.code, "UNAUTHORIZED");
  const third = await signIn(own.url, { key: keyOf("admin") });
  own.plane.applyAuth({ ...auth, keys: keys.map((key) => ({ ...key, role: "operator" as const })) });
  assert.equal((await third.fetch("/v1/status")).status, 401, "its role has changed");
});

test("a one-time link lets one browser in, once [60.K1]", async () => {
  const made = await control.ask<{ path: string }>("POST", "/v1/board-links", { role: "operator" });
  assert.equal(made.status, 201);
  const once = /^\/board\/#once=([\w-]{43})$/.exec(made.body.path)?.[1] ?? "";
  const by = await signIn(control.url, { once });
  const who = (await (await by.fetch(BOARD_ROUTES.session)).json()) as Who;
  assert.equal(who.keyId, "key-operator");
  await assert.rejects(signIn(control.url, { once }), /401/);
  assert.ok(!control.logLines.join().includes(once));
  for (const role of ["client", "agent", "gateway", "metrics"] satisfies Role[])
    assert.equal((await control.ask("POST", "/v1/board-links", { role })).status, 403, role);
});

test("another page can change nothing with a signed-in person's cookie, whatever method and form it uses [80.D34 80.C49]", async () => {
  const by = await signIn(control.url, { key: keyOf("admin") });
  const foreign: readonly Record<string, string>[] = [
    { origin: "https://evil.example" },
    { origin: "null" },
    { origin: `${control.url}.evil.example` },
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "none" },
    { origin: "https://evil.example", "sec-fetch-site": "cross-site", "content-type": "text/plain" },
    // No browser leaves both out, and a cookie alone proves no intent.
    {},
  ];
  for (const headers of foreign) {
    for (const route of API_ROUTES.filter(({ methods, access }) => !methods.includes("GET") && access !== "open")) {
      const [method = ""] = route.methods;
      const answer = await by.raw(route.pattern.replace("*", "none"), { method, headers });
      assert.equal(answer.status, 403, `${method} ${route.pattern} ${JSON.stringify(headers)}`);
      assert.equal(await codeOf(answer), "ORIGIN_REFUSED");
    }
    for (const method of ["PUT", "PATCH", "DELETE"]) {
      const answer = await by.raw("/board/", { method, headers });
      assert.ok([403, 405].includes(answer.status), `${method} /board/`);
    }
  }
  assert.equal((await drain(by)).status, 200, "its own page can");
});

test("a key that is shown is no cookie: ctl goes on as ever, and a page elsewhere that has stolen one still is refused", async () => {
  assert.equal((await control.ask("POST", "/v1/nodes/rack-1/cordon")).status, 200);
  const headers = { origin: "https://evil.example" };
  assert.equal((await control.ask("POST", "/v1/nodes/rack-1/cordon", { headers })).status, 403);
});

test("a name that was pointed here is refused for the board and for whoever comes by cookie, and listed names are not [80.D34]", async () => {
  await using own = await startTestControl({ control: { board: { hosts: ["board.example.org"] } } });
  const { port } = new URL(own.url);
  const by = await signIn(own.url, { key: keyOf("admin") });
  const ask = (host: string | null, path: string, cookie = ""): Promise<number> =>
    new Promise((resolve, reject) => {
      const headers: Record<string, string> = {
        ...(host === null ? {} : { host }),
        ...(cookie === "" ? {} : { cookie }),
      };
      const req = request({ host: "127.0.0.1", port, path, headers, setHost: false }, (res) => {
        res.resume();
        resolve(res.statusCode ?? 0);
      });
      req.on("error", reject);
      req.end();
    });
  for (const host of [
    "evil.example",
    `evil.example:${port}`,
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "",
    "a b",
  ]) {
    assert.ok([400, 403].includes(await ask(host, "/board/")), `page as ${host}`);
    assert.ok([400, 403].includes(await ask(host, BOARD_ROUTES.session, by.cookie)), `session as ${host}`);
    assert.ok([400, 403].includes(await ask(host, "/v1/status", by.cookie)), `status as ${host}`);
  }
  for (const host of [
    `127.0.0.1:${port}`,
    `localhost:${port}`,
    "LOCALHOST",
    "[::1]:1",
    "board.example.org",
    "BOARD.example.org:443",
  ]) {
    assert.equal(await ask(host, "/v1/status", by.cookie), 200, host);
    assert.ok([200, 503].includes(await ask(host, "/board/")), host);
  }
});

test("no page of a browser may open a connection that leaves HTTP, whoever is signed in [80.D34]", async () => {
  const by = await signIn(control.url, { key: keyOf("admin") });
  for (const path of ["/gateway/v1", "/agent/v1", "/board/api/stream", "/v1/status"]) {
    for (const origin of ["https://evil.example", control.url, "null"]) {
      const status = await new Promise<number>((resolve) => {
        const socket = new WebSocket(`${control.url.replace("http", "ws")}${path}`, {
          headers: { cookie: by.cookie, origin },
        });
        socket.on("unexpected-response", (req, res) => {
          req.destroy();
          resolve(res.statusCode ?? 0);
        });
        socket.on("open", () => resolve(101));
        socket.on("error", () => {});
      });
      assert.equal(status, 403, `${path} from ${origin}`);
    }
  }
});

test("every answer of the board forbids what is inline, from elsewhere, framed or guessed [80.C49]", async () => {
  for (const path of ["/board/", BOARD_ROUTES.session, "/"]) {
    const answer = await fetch(control.url + path, { redirect: "manual" });
    await answer.arrayBuffer();
    if (path === BOARD_ROUTES.session) continue;
    const policy = answer.headers.get("content-security-policy") ?? "";
    for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"])
      assert.ok(policy.includes(part), `${path}: ${part}`);
    assert.ok(policy.includes("require-trusted-types-for 'script'") && !policy.includes("unsafe"));
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    assert.equal(answer.headers.get("referrer-policy"), "no-referrer");
    assert.equal(answer.headers.get("cross-origin-opener-policy"), "same-origin");
  }
  for (const path of [
    "/board/../../etc/passwd",
    "/board/%2e%2e/%2e%2e/etc/passwd",
    "/board/assets/..%2f..%2fx",
    "/board/package.json",
  ]) {
    const answer = await fetch(control.url + path);
    assert.ok([400, 404, 503].includes(answer.status), path);
    assert.ok(!(await answer.text()).includes("root:"));
  }
});

test("each action of the board is a route of the API, and is offered to the roles that its row names [60.K2]", async () => {
  for (const role of ["operator", "admin", "approver"] as const) {
    const by = await signIn(control.url, { key: keyOf(role) });
    const { may } = (await (await by.fetch(BOARD_ROUTES.session)).json()) as Who;
    for (const [name, { method, path }] of Object.entries(BOARD_ACTIONS)) {
      const answer = await by.fetch(path.replaceAll(/:[a-z]+/g, "none"), { method });
      await answer.arrayBuffer();
      assert.notEqual(answer.status, 405, name);
      assert.equal(
        answer.status !== 403,
        may.some((each) => each === name),
        `${role} ${name}: ${answer.status}`,
      );
    }
  }
});
