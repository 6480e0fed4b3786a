import { generateKeyPairSync, sign } from "node:crypto";

// Just enough of DER (X.690) and X.509 (RFC 5280) for a certificate that a test server may use.
const der = (tag: number, ...content: (Buffer | string)[]): Buffer => {
  const body = Buffer.concat(content.map((part) => (typeof part === "string" ? Buffer.from(part, "latin1") : part)));
  const length =
    body.length < 128
      ? Buffer.from([body.length])
      : body.length < 256
        ? Buffer.from([0x81, body.length])
        : Buffer.from([0x82, body.length >> 8, body.length & 255]);
  return Buffer.concat([Buffer.from([tag]), length, body]);
};
const sequence = (...content: Buffer[]): Buffer => der(0x30, ...content);
const ECDSA_SHA256 = sequence(der(0x06, Buffer.from("2a8648ce3d040302", "hex")));
const COMMON_NAME = Buffer.from("550403", "hex");
const ALT_NAME = Buffer.from("551d11", "hex");

/** PEM of a key and a certificate for `name`, made anew: no key lies in the repository. */
export function aSelfSignedCertificate(name: string): { readonly key: string; readonly cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const subject = sequence(der(0x31, sequence(der(0x06, COMMON_NAME), der(0x0c, name))));
  const altName = sequence(der(0x06, ALT_NAME), der(0x04, sequence(der(0x82, name))));
  const body = sequence(
    der(0xa0, der(0x02, "\x02")),
    der(0x02, "\x01"),
    ECDSA_SHA256,
    subject,
    sequence(der(0x17, "200101000000Z"), der(0x17, "491231235959Z")),
    subject,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(altName)),
  );
  const signature = sign("sha256", body, privateKey);
  const certificate = sequence(body, ECDSA_SHA256, der(0x03, "\0", signature));
  const pem = certificate.toString("base64").replace(/(.{64})/g, "$1\n");
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${pem}\n-----END CERTIFICATE-----\n`,
  };
}
