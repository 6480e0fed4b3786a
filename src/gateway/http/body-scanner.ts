import { JsonTopScan, stringField } from "../../decide/http/json-scan.ts";
import type { BodySpan, ScannedObject } from "../../decide/http/json-splice.ts";
import { parseBoundary } from "../../decide/http/multipart-reader.ts";
import { MultipartScan } from "../../decide/http/multipart-scan.ts";
import { LENGTH_MEMBERS } from "../../decide/limits/estimate-tokens.ts";

/** Members that routing, admission or a splice may need. A second one of any of them is refused. */
const WANTED = ["model", "stream", "stream_options", "priority"] as const;
/** The same for a key with limits, by which the length of the answer counts. */
const WANTED_AND_COUNTED = [...WANTED, ...LENGTH_MEMBERS];

/** What a body told of itself on its way in. */
export type Scanned =
  | { readonly kind: "json"; readonly model: string; readonly stream: boolean; readonly scan: ScannedObject }
  | { readonly kind: "form"; readonly model: string; readonly stream: boolean; readonly modelAt: BodySpan }
  | { readonly kind: "opaque" }
  | { readonly kind: "bad"; readonly code: "BAD_JSON" | "BAD_REQUEST"; readonly why: string; readonly param?: string };

export interface BodyScanner {
  push(chunk: Buffer): void;
  end(): Scanned;
}

export const OPAQUE: { readonly kind: "ok"; readonly scanner: BodyScanner } = {
  kind: "ok",
  scanner: { push: () => {}, end: () => ({ kind: "opaque" }) },
};

/** By the headers; `counted`: the key has limits. */
export function scannerFor(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  counted: boolean,
):
  | { readonly kind: "ok"; readonly scanner: BodyScanner }
  | { readonly kind: "bad"; readonly code: "BAD_REQUEST"; readonly why: string } {
  if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== "identity")
    return {
      kind: "bad",
      code: "BAD_REQUEST",
      why: "a compressed request body can't be routed by its model: send it uncompressed",
    };
  const boundary = parseBoundary(contentType);
  if (boundary.kind === "bad") return { kind: "bad", code: "BAD_REQUEST", why: boundary.why };
  return { kind: "ok", scanner: boundary.kind === "ok" ? formScanner(boundary.boundary) : jsonScanner(counted) };
}

function jsonScanner(counted: boolean): BodyScanner {
  const scan = new JsonTopScan(counted ? WANTED_AND_COUNTED : WANTED);
  return {
    push: (chunk) => scan.push(chunk),
    end: () => {
      const result = scan.end();
      if (result.kind === "invalid")
        return { kind: "bad", code: "BAD_JSON", why: `the body can't be read: ${result.why} (byte ${result.offset})` };
      const model = stringField(result.fields, "model");
      if (model === undefined) return missingModel(result.fields.has("model"));
      return { kind: "json", model, stream: result.fields.get("stream")?.text === "true", scan: result };
    },
  };
}

function formScanner(boundary: string): BodyScanner {
  const scan = new MultipartScan(boundary);
  return {
    push: (chunk) => scan.push(chunk),
    end: () => {
      const result = scan.end();
      if (result.kind === "invalid")
        return { kind: "bad", code: "BAD_REQUEST", why: `the form can't be read: ${result.why}` };
      const { model, modelAt, stream } = result;
      return model === undefined || modelAt === undefined
        ? missingModel(false)
        : { kind: "form", model, stream: stream === "true", modelAt };
    },
  };
}

const missingModel = (present: boolean): Scanned => ({
  kind: "bad",
  code: "BAD_REQUEST",
  why: present ? "`model` is not a string" : "`model` is missing: it says where the request goes",
  param: "model",
});
