import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { aGpu } from "../../src/testing/fleet-builders.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { applyCatalog, enrolledAgent, leadingControl } from "./support/fake-fleet.ts";

interface WireSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, string>> }[];
  readonly status: { readonly code: number };
}

test("passes, placements, starts and refusals are spans at the collector, the parts of a pass below it, with names and reasons and no secret [40.V3]", async () => {
  const spans: WireSpan[] = [];
  let bodies = "";
  const collector = createServer((req, res) => {
    let text = "";
    req.setEncoding("utf8").on("data", (part: string) => (text += part));
    req.on("end", () => {
      bodies += text;
      const body = JSON.parse(text) as { resourceSpans: { scopeSpans: { spans: WireSpan[] }[] }[] };
      spans.push(...body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
      res.end("{}");
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const endpoint = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
  try {
    await using control = await leadingControl({ otel: { endpoint, serviceName: "yard" } });
    const agent = await enrolledAgent(control, "node-a");
    agent.part = { gpus: [aGpu("g1")] };
    agent.report();
    await applyCatalog(control, [
      { name: "m", profiles: [{ engine: "vllm", source: "/w/m", gpu: { class: ["h200"], memory_gb: 20 } }] },
      { name: "none", profiles: [{ engine: "vllm", source: "/w/n", gpu: { class: ["b200"], memory_gb: 20 } }] },
    ]);
    const has = (name: string): boolean => spans.some((span) => span.name === name);
    await eventually(
      "a span of each kind",
      () => ["reconcile.pass", "replica.placement", "replica.start", "reconcile.refusal"].every(has),
      (all) => all,
      30_000,
    );
    const valueOf = (span: WireSpan | undefined, key: string): unknown =>
      Object.values(span?.attributes.find((attribute) => attribute.key === key)?.value ?? {})[0];
    const of = (name: string): WireSpan | undefined => spans.find((span) => span.name === name);
    const placement = of("replica.placement");
    const pass = spans.find(({ spanId }) => spanId === placement?.parentSpanId);
    assert.equal(pass?.name, "reconcile.pass");
    assert.equal(pass?.traceId, placement?.traceId);
    assert.equal(valueOf(placement, "yardmaster.model"), "m");
    const refusal = spans.find(
      (span) => span.name === "reconcile.refusal" && valueOf(span, "yardmaster.model") === "none",
    );
    assert.deepEqual([refusal?.status.code, valueOf(refusal, "error.type")], [2, "modelUnplaced"]);
    assert.match(String(valueOf(refusal, "yardmaster.why")), /node-a: needs b200, and has h200/);
    const start = of("replica.start");
    assert.ok(BigInt(start?.endTimeUnixNano ?? 0) > BigInt(start?.startTimeUnixNano ?? 1));
    assert.ok(spans.every(({ kind }) => kind === 1));
    assert.ok(!bodies.includes("CANARY"));
    agent.cut();
  } finally {
    collector.closeAllConnections();
    collector.close();
  }
});
