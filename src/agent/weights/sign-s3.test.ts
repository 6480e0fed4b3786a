import assert from "node:assert/strict";
import { test } from "node:test";
import { Secret } from "../../kernel/secret.ts";
import { encodeS3, signS3 } from "./sign-s3.ts";

// The worked examples of Amazon's page on signing S3 requests by the Authorization header.
const credentials = {
  keyId: "AKIAIOSFODNN7EXAMPLE",
  secret: new Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
  session: null,
};
const AT = "2013-05-24T00:00:00.000Z";
const examples: readonly {
  readonly name: string;
  readonly rest: string;
  readonly headers: Record<string, string>;
  readonly signature: string;
}[] = [
  {
    name: "an object by a range",
    rest: "/test.txt",
    headers: { range: "bytes=0-9" },
    signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
  },
  {
    name: "a part of a bucket that has no value",
    rest: "/?lifecycle",
    headers: {},
    signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
  },
  {
    name: "a list of objects",
    rest: "/?max-keys=2&prefix=J",
    headers: {},
    signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
  },
];
for (const { name, rest, headers, signature } of examples) {
  test(`the signature of ${name} is the published one [40.W1]`, () => {
    const url = new URL(`https://examplebucket.s3.amazonaws.com${rest}`);
    const signed = signS3({ method: "GET", url, headers }, "us-east-1", credentials, AT);
    assert.equal(/Signature=([0-9a-f]+)$/.exec(signed["authorization"] ?? "")?.[1], signature);
    assert.equal(signed["x-amz-date"], "20130524T000000Z");
  });
}

test("a session's token is sent and signed, and the secret is in no header", () => {
  const url = new URL("https://b.s3.amazonaws.com/k");
  const signed = signS3(
    { method: "GET", url, headers: {} },
    "us-east-1",
    { ...credentials, session: new Secret("tok") },
    AT,
  );
  assert.equal(signed["x-amz-security-token"], "tok");
  assert.match(
    signed["authorization"] ?? "",
    /SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token/,
  );
  assert.doesNotMatch(JSON.stringify(signed), /wJalr/);
});

test("everything but letters, digits and four marks is spelled out", () => {
  assert.equal(encodeS3("a b/c+(d)'*!~-._"), "a%20b%2Fc%2B%28d%29%27%2A%21~-._");
});
