import assert from "node:assert/strict";
import { test } from "node:test";
import { anAuditEvent } from "../../testing/an-audit-event.ts";
import { AUDIT_FIELDS } from "../../contract/audit-event.ts";
import { recordOf, rowOf } from "./audit-row.ts";

test("every field of an event has its place in a row, and comes back from it", () => {
  const event = anAuditEvent();
  assert.deepEqual(new Set(AUDIT_FIELDS), new Set(Object.keys(event)));
  AUDIT_FIELDS.forEach((field, i) => {
    const marked = { ...event, [field]: "mark" };
    assert.equal(rowOf(marked)[i], "mark", field);
    assert.deepEqual(recordOf(7, rowOf(marked)), { seq: 7, ...marked });
  });
});

test("no field of an event holds a prompt or a key, by the names of all fields", () => {
  for (const field of AUDIT_FIELDS)
    assert.doesNotMatch(field, /body|message|prompt(?!Tokens)|content|secret|authorization|header|^key$|apiKey/i);
});
