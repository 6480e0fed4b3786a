import assert from "node:assert/strict";
import { test } from "node:test";
import type { GatewayConfig } from "../contract/gateway-config.ts";
import { parseConfigText } from "./load-config.ts";
import { settleReload } from "./settle-reload.ts";

const KEY = `auth: {keys: [{id: k, hash: "sha256:${"ab".repeat(32)}"}]}\n`;

function config(text: string): GatewayConfig {
  const loaded = parseConfigText(`${text}upstreams: []\n`, "y.yaml", {});
  return loaded.kind === "valid" ? loaded.config : assert.fail(JSON.stringify(loaded.problems));
}

test("a file that is safe for the address it names does not open the one that is open [80.C48]", () => {
  const open = config(`listen: 0.0.0.0:1\n${KEY}`);
  assert.equal(settleReload(open, config("listen: 127.0.0.1:1\nauth: {mode: none}\n")).kind, "refused");
  const settled = settleReload(open, config(`listen: 127.0.0.1:1\n${KEY}`));
  assert.ok(settled.kind === "apply" && !settled.config.metricsPublic && settled.config.listen.host === "0.0.0.0");
  assert.equal(settleReload(config(""), config("auth: {mode: none}\n")).kind, "apply");
  assert.equal(
    settleReload(open, config("listen: 0.0.0.0:1\nauth: {mode: none, allow_insecure: true}\n")).kind,
    "apply",
  );
});

test("what is opened once keeps its value and is named, each time the file says otherwise", () => {
  const current = config("");
  const next = config(
    "listen: 127.0.0.1:9\ndata_dir: other\naudit: {max: 5}\nhttp: {keep_alive_s: 5, request_timeout_s: 5}\nmax_body_bytes: 5\n",
  );
  const settled = settleReload(current, next);
  assert.ok(settled.kind === "apply");
  assert.deepEqual(settled.waiting, ["listen", "data_dir", "audit.max", "http.keep_alive_s"]);
  assert.equal(settled.config.dataDir, "data");
  assert.deepEqual(
    [settled.config.maxBodyBytes, settled.config.http.bodyIdleMs, settled.config.http.keepAliveMs],
    [5, 5000, 75_000],
  );
  const again = settleReload(settled.config, next);
  assert.deepEqual(again.kind === "apply" && again.waiting, settled.waiting);
  const back = settleReload(settled.config, current);
  assert.deepEqual(back.kind === "apply" && back.waiting, []);
});
