import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { EventReader } from "./sse.ts";

const STREAM =
  ': hello\n\nid: s.1\nevent: snapshot\ndata: {"a":1}\n\n: still here\n\nid: s.2\nevent: change\ndata: {"b":\ndata: 2}\n\ndata:x\n\n';
const EVENTS = [
  { id: "s.1", event: "snapshot", data: '{"a":1}' },
  { id: "s.2", event: "change", data: '{"b":\n2}' },
  { id: null, event: "message", data: "x" },
];

test("the events are the same however the stream was cut", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: STREAM.length }), { maxLength: 12 }), (cuts) => {
      const reader = new EventReader();
      const places = [0, ...cuts.toSorted((a, b) => a - b), STREAM.length];
      const got = places.slice(1).flatMap((end, index) => reader.take(STREAM.slice(places[index], end)));
      assert.deepEqual(got, EVENTS);
    }),
  );
});
