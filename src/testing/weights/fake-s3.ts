import { createHash, createHmac } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { FakeFileServer } from "./fake-file-server.ts";

export interface FakeBucket {
  readonly bucket: string;
  readonly region: string;
  readonly keyId: string;
  readonly secret: string;
  readonly session?: string;
  /** Objects of one page of a list. */
  readonly pageSize?: number;
}

/**
 * Makes a server one of buckets: every request's signature is reckoned again from what came over the wire, and a wrong one gets
 * 403. Objects are files below `/BUCKET/`. Returns the refusals.
 */
export function serveS3(server: FakeFileServer, bucket: FakeBucket): string[] {
  const refusals: string[] = [];
  server.handlers.push((request, url, response) => {
    const wrong = judge(request, bucket);
    if (wrong !== null) {
      refusals.push(wrong);
      response.writeHead(403).end(`<Error><Code>${wrong}</Code></Error>`);
      return true;
    }
    if (url.pathname !== `/${bucket.bucket}/` || url.searchParams.get("list-type") !== "2") return false;
    response.writeHead(200, { "content-type": "application/xml" }).end(listOf(server, bucket, url.searchParams));
    return true;
  });
  return refusals;
}

function judge(request: IncomingMessage, { region, keyId, secret, session }: FakeBucket): string | null {
  const { headers } = request;
  const match =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})$/.exec(
      headers.authorization ?? "",
    );
  if (match === null) return "MissingSecurityHeader";
  const [, key, day = "", zone, names = "", signature] = match;
  const time = String(headers["x-amz-date"]);
  if (key !== keyId || zone !== region || !time.startsWith(day)) return "InvalidAccessKeyId";
  if ((headers["x-amz-security-token"] ?? undefined) !== session) return "InvalidToken";
  for (const name of ["host", "x-amz-content-sha256", "x-amz-date"])
    if (!names.split(";").includes(name)) return "UnsignedHeader";
  const [path = "", query = ""] = (request.url ?? "").split("?");
  const lines = names.split(";").map((name) => `${name}:${String(headers[name])}\n`);
  const sorted = query.split("&").toSorted().join("&");
  const canonical = `GET\n${path}\n${sorted}\n${lines.join("")}\n${names}\n${String(headers["x-amz-content-sha256"])}`;
  const hashed = createHash("sha256").update(canonical).digest("hex");
  const mac = (with_: string | Buffer, text: string): Buffer => createHmac("sha256", with_).update(text).digest();
  const signing = mac(mac(mac(mac(`AWS4${secret}`, day), region), "s3"), "aws4_request");
  const wanted = mac(signing, `AWS4-HMAC-SHA256\n${time}\n${day}/${region}/s3/aws4_request\n${hashed}`).toString("hex");
  return wanted === signature ? null : "SignatureDoesNotMatch";
}

const escapeXml = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

function listOf(server: FakeFileServer, { bucket, pageSize = 1_000 }: FakeBucket, query: URLSearchParams): string {
  const prefix = query.get("prefix") ?? "";
  const keys = [...server.files.keys()]
    .filter((path) => path.startsWith(`/${bucket}/${prefix}`))
    .map((path) => path.slice(bucket.length + 2))
    .toSorted();
  const from = Number(query.get("continuation-token") ?? 0);
  const entries = keys.slice(from, from + pageSize).map((key) => {
    const size = server.files.get(`/${bucket}/${key}`)?.bytes.length ?? 0;
    return `<Contents><Key>${escapeXml(key)}</Key><Size>${size}</Size></Contents>`;
  });
  const next = from + pageSize < keys.length ? `<NextContinuationToken>${from + pageSize}</NextContinuationToken>` : "";
  return `<?xml version="1.0"?>\n<ListBucketResult><Name>${bucket}</Name>${entries.join("")}${next}</ListBucketResult>`;
}
