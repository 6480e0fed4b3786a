import assert from "node:assert/strict";
import { test } from "node:test";
import { letGoOfBody, type PreparedRequest } from "./prepared-request.ts";

test("a request whose answer has begun holds its body by nothing, not by those either who could have gone on with it [80.I9]", () => {
  const body = Buffer.alloc(16);
  const goOn = (): (() => void) => () => void body.length;
  const freed: boolean[] = [];
  const request = {
    chunks: [body],
    goOn,
    moveOn: goOn,
    memory: { free: (unused: boolean) => freed.push(unused) },
  } as unknown as PreparedRequest;
  letGoOfBody(request, true);
  assert.deepEqual([request.chunks, request.goOn, request.moveOn, freed], [[], null, null, [true]]);
});
