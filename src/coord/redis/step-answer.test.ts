import assert from "node:assert/strict";
import { test } from "node:test";
import { whyNothing } from "./step-answer.ts";

test("a step that brought nothing says why in words, and a server's own words are kept [80.R1]", () => {
  for (const why of ["breakerOpen", "notConnected", "closed"] as const)
    assert.match(whyNothing({ kind: "notSent", why }), /Redis/, why);
  for (const why of ["timeout", "lost"] as const) assert.match(whyNothing({ kind: "unknown", why }), /Redis/, why);
  assert.equal(
    whyNothing({ kind: "refused", why: "other", message: "OOM command not allowed" }),
    "OOM command not allowed",
  );
});
