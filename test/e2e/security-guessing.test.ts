import assert from "node:assert/strict";
import { test } from "node:test";
import { startTestGateway } from "./support/test-gateway.ts";

test("a thousand wrong keys from one address are answered 429 after a few, X-Forwarded-For or not, and a valid key passes all along [80.D11 60.K1]", async () => {
  const fresh = await startTestGateway({ upstreams: [] });
  try {
    const counts = new Map<number, number>();
    for (let round = 0; round < 20; round++) {
      const statuses = await Promise.all(
        Array.from({ length: 50 }, async (_, at) => {
          const answer = await fetch(`${fresh.url}/v1/models`, {
            headers: {
              authorization: `Bearer wrong-${round}-${at}`,
              "x-forwarded-for": `198.51.100.${at}`,
              forwarded: `for=198.51.100.${at}`,
              "x-real-ip": `198.51.100.${at}`,
            },
          });
          if (answer.status === 429) assert.match(answer.headers.get("retry-after") ?? "", /^[1-9]\d*$/);
          await answer.text();
          return answer.status;
        }),
      );
      for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
      const valid = await fetch(`${fresh.url}/v1/models`, { headers: fresh.auth });
      assert.equal(valid.status, 200, `round ${round}`);
      await valid.text();
    }
    assert.deepEqual([...counts.keys()].toSorted(), [401, 429]);
    assert.ok(counts.get(401)! <= 60, `401: ${counts.get(401)}`);
  } finally {
    await fresh.stop();
  }
});
