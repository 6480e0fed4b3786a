import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "node:test";
import { Secret } from "./secret.ts";
import { Signer } from "./signer.ts";

const OLD = new Secret("CANARY-old-secret-0123456789abcdef0123456789");
const NEW = new Secret("CANARY-new-secret-0123456789abcdef0123456789");

test("the first secret signs and each of them verifies, so that a secret is replaced while what it signed still counts [80.C31]", () => {
  const [before, during, after] = [new Signer([OLD]), new Signer([NEW, OLD]), new Signer([NEW])];
  const signed = before.sign("approval", "text");
  assert.equal(during.verify("approval", "text", signed), true);
  assert.equal(after.verify("approval", "text", signed), false);
  assert.equal(after.verify("approval", "text", during.sign("approval", "text")), true);
});

test("a signature counts for its own text, purpose and key alone [80.C31]", () => {
  const signer = new Signer([NEW]);
  const { key, mac } = signer.sign("approval", "text");
  assert.equal(signer.verify("approval", "text", { key, mac }), true);
  assert.equal(signer.verify("approval", "Text", { key, mac }), false);
  assert.equal(signer.verify("audit chain", "text", { key, mac }), false);
  assert.equal(signer.verify("approval", "text", { key: "00000000", mac }), false);
  for (const wrong of ["", mac.slice(1), mac.toUpperCase(), `${mac}0`, "0".repeat(64)])
    assert.equal(signer.verify("approval", "text", { key, mac: wrong }), false);
});

test("a name's pseudonym is the same each time and another one under another secret, and no secret can be printed [80.C47 80.I7]", () => {
  const signer = new Signer([NEW]);
  assert.equal(signer.pseudonym("alice"), signer.pseudonym("alice"));
  assert.notEqual(signer.pseudonym("alice"), signer.pseudonym("alicf"));
  assert.notEqual(signer.pseudonym("alice"), new Signer([OLD]).pseudonym("alice"));
  assert.match(signer.pseudonym("alice"), /^hmac:[0-9a-f]{24}$/);
  assert.ok(
    !`${inspect(signer)}${JSON.stringify(signer)}${JSON.stringify(signer.keysFor("approval"))}`.includes("CANARY"),
  );
});
