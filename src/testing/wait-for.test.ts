import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { eventually, nextEvent, Watched, within } from "./wait-for.ts";

test("a wait gives the promise's own outcome, and names what did not come in time", async () => {
  assert.equal(await within("a value", Promise.resolve(3)), 3);
  await assert.rejects(within("a refusal", Promise.reject(new Error("no"))), /^Error: no$/);
  await assert.rejects(within("the moon", new Promise(() => {}), 1), /the moon: not within 1 ms/);
});

test("an event's arguments are given, and an emitter's error rejects", async () => {
  const emitter = new EventEmitter();
  const next = nextEvent(emitter, "named");
  emitter.emit("named", 1, 2);
  assert.deepEqual(await next, [1, 2]);
  const failing = nextEvent(emitter, "named");
  emitter.emit("error", new Error("broken"));
  await assert.rejects(failing, /broken/);
});

test("an outside state is read until it is accepted, and the last value is told when it never was", async () => {
  let reads = 0;
  assert.equal(
    await eventually(
      "three reads",
      () => ++reads,
      (count) => count === 3,
    ),
    3,
  );
  await assert.rejects(
    eventually(
      "never",
      () => "same",
      () => false,
      1,
    ),
    /never: not within 1 ms; last seen: "same"/,
  );
});

test("a watched state wakes those who wait when it says that it changed", async () => {
  const state = new Watched();
  let value = 0;
  const reached = state.until("two", () => value === 2);
  value = 1;
  state.changed();
  value = 2;
  state.changed();
  await reached;
  await state.until("already so", () => value === 2);
  const throwing = state.until("a condition that fails", () => {
    throw new Error("bad condition");
  });
  await assert.rejects(throwing, /bad condition/);
});
