import type { IncomingMessage } from "node:http";
import type { Asset } from "../board/board-assets.ts";
import type { Answer } from "./answer.ts";

/** Nothing inline, nothing from elsewhere, in no frame, and no text that becomes markup (statement C49). */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const YEAR_S = 31_536_000;

/** Of every answer of the board. */
export const BOARD_HEADERS: Readonly<Record<string, string>> = {
  "cache-control": "no-store",
  "content-security-policy": POLICY,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

export function fileAnswer(file: Asset, req: IncomingMessage, common: Readonly<Record<string, string>>): Answer {
  const accepted = String(req.headers["accept-encoding"] ?? "");
  const [coding, body] =
    file.brotli !== null && /\bbr\b/.test(accepted)
      ? (["br", file.brotli] as const)
      : file.gzip !== null && /\bgzip\b/.test(accepted)
        ? (["gzip", file.gzip] as const)
        : ([null, file.plain] as const);
  const headers = {
    ...common,
    "content-type": file.type,
    etag: file.etag,
    vary: "accept-encoding",
    "cache-control": file.isImmutable ? `public, max-age=${YEAR_S}, immutable` : "no-cache",
    ...(coding === null ? {} : { "content-encoding": coding }),
  };
  const known = (req.headers["if-none-match"] ?? "")
    .split(",")
    .some((tag) => tag.trim().replace(/^W\//, "") === file.etag);
  return {
    kind: "own",
    write: (res) => {
      if (known) {
        res.writeHead(304, headers);
        res.end();
        return;
      }
      res.writeHead(200, { ...headers, "content-length": body.length });
      res.end(req.method === "HEAD" ? undefined : body);
    },
  };
}

export const NOT_BUILT = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Yardmaster</title>
<h1>The board has not been built here</h1>
<p>Everything else works. In a clone, run <code>npm run build</code> and load this page again; <code>yardmaster ctl status</code> tells the state of the cluster meanwhile.</p></html>
`;
