import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { AuditPage, AuditRecord } from "../contract/audit-event.ts";
import { systemClock } from "../kernel/clock.ts";
import { anAuditEvent } from "../testing/an-audit-event.ts";
import type { CliIo } from "./cli-io.ts";
import { CTL_AUDIT_COMMANDS } from "./ctl-audit.ts";
import { dispatch } from "./dispatch.ts";

const record = (seq: number, over: Partial<AuditRecord> = {}): AuditRecord => ({
  ...anAuditEvent({ requestId: `req-${seq}` }),
  seq,
  ...over,
});
const page = (records: AuditRecord[], over: Partial<AuditPage> = {}): AuditPage => ({
  records,
  lastSeq: records.at(-1)?.seq ?? 0,
  gaps: [],
  dropped: 0,
  ...over,
});

/** A gateway that answers the audit route with one page after another, the last one for ever. */
async function withGateway(
  answers: (AuditPage | { status: number; body: string })[],
  act: (url: string, asked: URL[]) => Promise<void>,
): Promise<void> {
  const asked: URL[] = [];
  const server = createServer((req, res) => {
    const answer = answers[Math.min(asked.length, answers.length - 1)] ?? page([]);
    asked.push(new URL(req.url ?? "", "http://x"));
    res.writeHead("status" in answer ? answer.status : 200, {
      "content-type": "application/json",
      connection: "close",
    });
    res.end("status" in answer ? answer.body : JSON.stringify(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await act(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

interface Run {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function ctl(
  args: readonly string[],
  url: string,
  onOut: (text: string, stop: AbortController) => void = () => {},
): Promise<Run> {
  const stop = new AbortController();
  let out = "";
  let err = "";
  const io: CliIo = {
    out: (text) => {
      out += text;
      onOut(out, stop);
    },
    err: (text) => (err += text),
    columns: null,
    env: { YARDMASTER_URL: url, YARDMASTER_KEY: "CANARY-key" },
    // Following polls each second; a test has no second to spare.
    clock: { ...systemClock, sleep: (_ms, signal) => systemClock.sleep(1, signal) },
    signal: stop.signal,
  };
  const code = await dispatch(["ctl", "audit", ...args], CTL_AUDIT_COMMANDS, "1.2.3", io);
  return { code, out, err };
}

test("a query sends its filters and prints a table in which unknown is a dash", async () => {
  await withGateway([page([record(1, { model: null, keyId: "-", queueMs: null }), record(2)])], async (url, asked) => {
    const { code, out, err } = await ctl(
      ["query", "--since", "1h", "--key", "team a", "--model", "m&x", "--outcome", "ok", "--limit", "7"],
      url,
    );
    assert.equal(code, 0, err);
    assert.deepEqual(Object.fromEntries(asked[0]?.searchParams ?? []), {
      since: "1h",
      key_id: "team a",
      model: "m&x",
      outcome: "ok",
      limit: "8",
    });
    const [head = "", first = "", second = ""] = out.split("\n");
    assert.equal(head.indexOf("OUTCOME"), second.indexOf("ok "));
    assert.match(first, / "-" +interactive +\/v1\/chat\/completions +- +chat /);
    assert.match(second, /team-a +interactive/);
  });
});

test("control characters and formulas in values are harmless in every output", async () => {
  const model = '=cmd|"x"\u001b[2J\r\n\u009b\u202e,';
  await withGateway([page([record(1, { model, keyId: "@sum", requestId: "-1+1", upstream: "+a" })])], async (url) => {
    for (const format of ["table", "csv", "json"]) {
      const { out } = await ctl(["query", "-o", format], url);
      // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
      assert.doesNotMatch(out, /[\u0000-\u0009\u000b\u000c\u000e-\u001f\u007f-\u009f\u202e]/, format);
      if (format === "json") assert.equal((JSON.parse(out) as AuditPage).records[0]?.model, model);
    }
    const { out } = await ctl(["query", "-o", "csv"], url);
    assert.equal(out.split("\r\n").length, 3);
    assert.match(out, /'@sum/);
    assert.match(out, /,'\+a,/);
    assert.match(out, /,'-1\+1,/);
    assert.match(out, /,"'=cmd\|""x""/);
  });
});

test("gaps and drops are told on standard error, and nothing else is on standard output", async () => {
  const gaps = [
    { afterSeq: 1, missing: 5, why: "dropped", time: 0 },
    { afterSeq: 7, missing: null, why: "run_not_closed", time: 0 },
  ] as const;
  await withGateway([page([record(1), record(7)], { gaps, dropped: 5 })], async (url) => {
    const { out, err } = await ctl(["query", "-o", "csv"], url);
    assert.match(err, /after event 1: 5 events were dropped/);
    assert.match(err, /after event 7: a gateway .* did not close/);
    assert.match(err, /dropped 5 events/);
    assert.equal(out.trimEnd().split("\r\n").length, 3);
  });
});

test("a query that shows fewer events than match says so on standard error, in every format", async () => {
  await withGateway([page([record(1), record(2), record(3)])], async (url) => {
    for (const args of [["-o", "table"], ["-o", "csv"], ["-o", "json"], ["--json"]]) {
      const some = await ctl(["query", "-n", "2", ...args], url);
      assert.match(some.err, /^only the newest 2 of the events that match are shown; --limit/, args.join(" "));
      assert.doesNotMatch(some.out, /req-1|only the/);
      assert.equal(some.out.match(/req-[23]/g)?.length, 2);
      assert.equal((await ctl(["query", "-n", "3", ...args], url)).err, "", args.join(" "));
    }
  });
  const full = page(Array.from({ length: 10_000 }, (_, index) => record(index + 1)));
  await withGateway([full], async (url, asked) => {
    const { err } = await ctl(["query", "-n", "10000", "--json"], url);
    assert.match(err, /there may be more/);
    assert.equal(asked[0]?.searchParams.get("limit"), "10000");
  });
});

test("following prints each event once, a gap at its place, and goes on over a gateway that is away for a moment", async () => {
  const gap = { afterSeq: 3, missing: 2, why: "dropped", time: 0 } as const;
  const pages = [
    page([record(2)]),
    page([record(3)]),
    { status: 503, body: '{"error":{"code":"DRAINING","message":"m"}}' },
    page([record(6)], { gaps: [gap] }),
    page([], { lastSeq: 6, gaps: [] }),
  ];
  await withGateway(pages, async (url, asked) => {
    const { code, out, err } = await ctl(
      ["tail", "--follow", "-o", "json"],
      url,
      (text, stop) => text.includes("req-6") && stop.abort(new Error("Ctrl-C")),
    );
    assert.equal(code, 0);
    const lines = out
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Partial<AuditRecord> & { gap?: object });
    assert.deepEqual(
      lines.map((line) => line.seq ?? "gap"),
      [2, 3, "gap", 6],
    );
    assert.deepEqual(
      asked.slice(0, 4).map((target) => target.searchParams.get("after_seq")),
      [null, "2", "3", "3"],
    );
    assert.match(err, /DRAINING/);
  });
});

test("tail without --follow prints what is there and ends", async () => {
  await withGateway([page([record(1), record(2)])], async (url, asked) => {
    const { code, out } = await ctl(["tail", "-n", "2"], url);
    assert.equal(code, 0);
    assert.equal(out.trimEnd().split("\n").length, 3);
    assert.equal(asked[0]?.searchParams.get("limit"), "2");
  });
});

for (const args of [
  ["query", "--since", "soon"],
  ["query", "--limit", "0"],
  ["query", "-o", "xml"],
  ["query", "--key", ""],
  ["tail", "-o", "csv"],
  ["tail", "--nope"],
  ["query", "extra"],
]) {
  test(`ctl audit ${args.join(" ")} is a usage error that asks no gateway`, async () => {
    await withGateway([page([])], async (url, asked) => {
      assert.equal((await ctl(args, url)).code, 2);
      assert.equal(asked.length, 0);
    });
  });
}

test("a refusal and an answer of another shape are told with exit code 1, and a key is never printed", async () => {
  for (const answer of [
    { status: 403, body: '{"error":{"code":"FORBIDDEN","message":"no\\u001b"}}' },
    { status: 200, body: "[1]" },
    { status: 200, body: "<html>" },
  ]) {
    await withGateway([answer], async (url) => {
      const { code, out, err } = await ctl(["query"], url);
      assert.equal(code, 1);
      assert.equal(out, "");
      assert.notEqual(err, "");
      assert.ok(!err.includes("CANARY") && !err.includes("\u001b"));
    });
  }
});

test("a gateway that is not there is exit code 3", async () => {
  assert.equal((await ctl(["tail"], "http://127.0.0.1:9")).code, 3);
});
