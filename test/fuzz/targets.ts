import assert from "node:assert/strict";
import { isIP } from "node:net";
import { parseCatalogText } from "../../src/config/load-catalog.ts";
import { resolveCatalog } from "../../src/contract/resolve-catalog.ts";
import { judgeAddress, judgeCallbackUrl, parseCallbackAllow } from "../../src/decide/jobs/judge-callback.ts";
import { isGpuSignal, readGpuPage } from "../../src/decide/gpu/gpu-sample.ts";
import { forwardRequestHeaders } from "../../src/decide/http/forward-headers.ts";
import { checkRequestHeaders } from "../../src/decide/http/header-rules.ts";
import { JsonTopScan } from "../../src/decide/http/json-scan.ts";
import { canonicalPath } from "../../src/decide/http/request-line.ts";
import { prefixBlocks } from "../../src/decide/routing/prefix-blocks.ts";
import { StreamWatcher, type StreamVerdict } from "../../src/decide/sse/stream-watcher.ts";
import { parseMetricsText } from "../../src/decide/telemetry/prometheus-text.ts";

/** Code that reads bytes from outside, and what must be true of it for every input. */
export interface FuzzTarget {
  readonly name: string;
  /** Throws where a promise does not hold. */
  readonly run: (input: Buffer) => void;
  readonly seeds: readonly Buffer[];
  readonly words: readonly Buffer[];
}

const target = (
  name: string,
  run: (input: Buffer) => void,
  seeds: readonly string[],
  words: readonly string[],
): FuzzTarget => ({
  name,
  run,
  seeds: seeds.map((seed) => Buffer.from(seed, "latin1")),
  words: words.map((word) => Buffer.from(word, "latin1")),
});

function watched(input: Buffer, cuts: readonly number[]): StreamVerdict {
  const watcher = new StreamWatcher({ eventBytesMax: 512 });
  let from = 0;
  for (const cut of [...cuts, input.length]) {
    // Bytes of another buffer each time, since the watcher may keep none.
    const piece = Buffer.from(input.subarray(from, cut));
    watcher.feed(piece, 0, piece.length);
    piece.fill(0x78);
    from = cut;
  }
  return watcher.finish();
}

/** What a stream was does not depend on how its bytes were cut, but for an event that is too long: only one that is cut has to be held. */
function watchStream(input: Buffer): void {
  const step = 1 + ((input[0] ?? 0) % 7);
  const cuts = Array.from({ length: Math.floor(Math.max(0, input.length - 1) / step) }, (_, at) => (at + 1) * step);
  const [cut, whole] = [watched(input, cuts), watched(input, [])];
  if (!cut.overflow && !whole.overflow) assert.deepEqual(cut, whole);
}

/** Names and values by lines; what is let through has one length at most and goes on without what must stay. */
function filterHeaders(input: Buffer): void {
  const raw = input
    .toString("latin1")
    .split("\n")
    .slice(0, 130)
    .flatMap((line) => {
      const colon = line.indexOf(":");
      // What is no name at all has been refused by the reader of heads.
      return /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:/.test(line) ? [line.slice(0, colon), line.slice(colon + 1).trim()] : [];
    });
  const checked = checkRequestHeaders(raw, "1.1");
  if (checked.kind !== "ok") return;
  const out = forwardRequestHeaders(raw, {
    mode: "http",
    extra: new Set(["authorization", "cookie"]),
    host: "engine:1",
    requestId: "r",
    engineAuth: undefined,
    via: "1.1 yardmaster",
    forwarded: null,
    traceparent: undefined,
  });
  const names = out.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase());
  for (const name of [
    "authorization",
    "connection",
    "transfer-encoding",
    "te",
    "upgrade",
    "proxy-authorization",
    "x-api-key",
  ])
    assert.ok(!names.includes(name), `${name} went on`);
  assert.equal(names.filter((name) => name === "host").length, 1);
  assert.ok(out.every((text) => !/[\r\n\0]/.test(text)));
}

/** A path that is let through is read in one way only. */
function canonise(input: Buffer): void {
  const outcome = canonicalPath(input.toString("latin1"));
  if (outcome.kind !== "ok") return;
  const { path } = outcome;
  assert.ok(path.startsWith("/") && !/[\\;?#\s]|%5c|%00/i.test(path), path);
  assert.ok(
    path.split(/\/|%2f/i).every((segment) => segment !== "." && segment !== ".."),
    path,
  );
  assert.deepEqual(canonicalPath(path), { kind: "ok", path, query: "" });
}

/** A catalog is taken as a whole, or refused with mistakes that say where. */
function readCatalog(input: Buffer): void {
  const read = parseCatalogText(input.toString("utf8"), "fuzz.yaml");
  if (read.kind === "invalid") assert.ok(read.problems.length > 0);
  else resolveCatalog(read.data, 1);
}

/** No reading is made up: what is told of a card lies within what its field can hold. */
function readCards(input: Buffer): void {
  const page = parseMetricsText(input, { want: isGpuSignal, maxSeries: 1_000 });
  if (page.kind === "rejected") return;
  for (const { utilization, temperatureC, uuid, host } of readGpuPage(page.samples, null, "host")) {
    assert.ok(utilization === null || (utilization >= 0 && utilization <= 100), String(utilization));
    assert.ok(temperatureC === null || Number.isFinite(temperatureC));
    assert.ok(host.length > 0 && uuid !== "");
  }
}

const allowed = parseCallbackAllow(["hooks.example", "*.hooks.example", "10.1.0.0/16", "http://plain.example:8080"]);

/** Only listed hosts, and no address that the list does not hold, in whatever spelling. */
function guardUrl(input: Buffer): void {
  assert.ok(allowed.kind === "ok");
  const verdict = judgeCallbackUrl(input.toString("latin1"), allowed.rules);
  if (verdict.kind === "refused") return;
  const { host, url } = verdict;
  assert.equal(new URL(url).hostname.replace(/^\[|\]$/g, ""), host);
  if (isIP(host) === 0) assert.match(host, /^(?:(?:[^/@]+\.)?hooks\.example|plain\.example)$/);
  else assert.ok(/^(?:10\.1\.\d+\.\d+|::ffff:a01:[0-9a-f]+)$/.test(host) && judgeAddress(host, allowed.rules), host);
}

/** The scan takes what JSON.parse takes, and prefixes are found in all of it. */
function scanBody(input: Buffer): void {
  const scan = new JsonTopScan(["model", "stream"]);
  scan.push(input);
  const result = scan.end();
  prefixBlocks([input], "m");
  if (result.kind !== "object") return;
  const parsed = JSON.parse(input.toString("utf8")) as unknown;
  assert.ok(typeof parsed === "object" && parsed !== null && !Array.isArray(parsed));
}

const CHUNK =
  'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n';

export const TARGETS: readonly FuzzTarget[] = [
  target(
    "sse",
    watchStream,
    [
      `${CHUNK}data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\r\n\r\ndata: [DONE]\n\n`,
      'event: message_stop\ndata: {"type":"message_stop"}\n\n: ping\n\ndata: {"type":"response.completed","sequence_number":4}\n\n',
      `${CHUNK}data: {"error":{"message":"no","code":500}}\n\ndata: [DONE]\n\n`,
    ],
    [
      "data:",
      "data: ",
      "event: error\n",
      "\r\n\r\n",
      "\n\n",
      "\r\r",
      "[DONE]",
      '"finish_reason":"stop"',
      '"usage":{',
      "\xef\xbb\xbf",
      '"error":',
      ": c\n",
      "id: 1\n",
      '"sequence_number":',
    ],
  ),
  target(
    "headers",
    filterHeaders,
    [
      "Host: a\nContent-Length: 5\nAuthorization: Bearer x\nConnection: keep-alive, x-internal\nX-Internal: 1",
      "Transfer-Encoding: chunked\nTE: trailers\nUpgrade: h2c\nCookie: a=b\nAccept-Encoding: gzip",
    ],
    [
      "Content-Length:",
      "Transfer-Encoding:",
      "chunked",
      "identity",
      "Connection:",
      "close",
      "Host:",
      "X-Forwarded-For:",
      "Proxy-Authorization:",
      "_",
      ", ",
      "x-api-key:",
    ],
  ),
  target(
    "path",
    canonise,
    [
      "/v1/chat/completions",
      "/v1/models/org%2Fmodel?x=1",
      "/upstreams/a/b/../c",
      "/a//b",
      "/%2e%2e/x",
      "/v1/models/a%20b",
    ],
    ["/../", "/./", "//", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";", "%00", "%25", "/v1/models/", "?", "#"],
  ),
  target(
    "catalog",
    readCatalog,
    [
      "models:\n  - name: m\n    replicas: {min: 1, max: 2}\n    profiles:\n      - {engine: sim, args: {slots: 4}}\n",
      "models:\n  - name: q\n    aliases: [a]\n    multi_node: {nodes: 2, fabric: same}\n    profiles:\n      - engine: vllm\n        source: hf://o/m@main\n        gpu: {class: [h200], count: 2, memory_gb: 70}\n        disk_gb: 75\n        env: {A: b}\n",
    ],
    [
      "models:",
      "- name: ",
      "profiles:",
      "engine: ",
      "source: ",
      "gpu: {",
      "&a ",
      "*a",
      "<<: ",
      "!!binary ",
      "|\n",
      ">-\n",
      "__proto__: ",
      "null",
      "1e999",
      "-1",
      "? ",
      "---\n",
    ],
  ),
  target(
    "dcgm",
    readCards,
    [
      'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="h"} 97\nDCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 61 1700000000000\n# HELP x y\n',
      'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1",err_code="79",GPU_I_ID="7"} 79\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1"} 0.5 # {trace="a"} 1\r\n# EOF\n',
    ],
    [
      "NaN",
      "+Inf",
      "1e400",
      "9223372036854775794",
      'gpu="',
      'UUID="',
      "\\n",
      '\\"',
      "\r\n",
      "# TYPE ",
      "# EOF",
      "DCGM_FI_DEV_GPU_UTIL",
      "GPU_I_ID",
      "}",
      " 1 2",
    ],
  ),
  target(
    "url",
    guardUrl,
    [
      "https://hooks.example/a?b=c#d",
      "https://10.1.2.3/x",
      "http://plain.example:8080/",
      "https://[::ffff:10.1.0.1]/",
      "https://a.hooks.example.:443/",
      "https://2130706433/",
    ],
    [
      "https://",
      "http://",
      "@",
      "\\",
      "hooks.example",
      "127.0.0.1",
      "0x7f.1",
      "[::1]",
      "[::ffff:7f00:1]",
      "localhost.",
      "%2e",
      ":443",
      "169.254.169.254",
      "\t",
      "..",
      "//",
      "0",
      ".",
    ],
  ),
  target(
    "body",
    scanBody,
    [
      '{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a\\u00e9\\n"}],"stream":true}',
      '{"prompt":"x","model":"m","n":1e5,"a":[1,{"b":null}]}',
    ],
    [
      '"model"',
      '"messages":[',
      '"role":"system"',
      "\\u",
      '\\"',
      "{",
      "}",
      "[",
      "]",
      "null",
      "true",
      "1e9",
      "-0",
      '"__proto__":',
      ",",
      ":",
    ],
  ),
];
