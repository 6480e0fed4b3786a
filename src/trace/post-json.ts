import { loadHttps, request as httpRequest } from "../kernel/node-builtins.ts";

export type PostOutcome =
  | {
      readonly kind: "answered";
      readonly status: number;
      readonly body: string;
      readonly retryAfterS: number | undefined;
    }
  | { readonly kind: "failed"; readonly why: string };

const ANSWER_CHARS_MAX = 65_536;

/** One POST on a connection of its own; never rejects. */
export function postJson(url: URL, body: string, signal: AbortSignal): Promise<PostOutcome> {
  return new Promise((resolve) => {
    const send = url.protocol === "https:" ? loadHttps().request : httpRequest;
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const req = send(url, { method: "POST", headers, signal, agent: false }, (res) => {
      let text = "";
      res.setEncoding("utf8");
      res.on("data", (chunk: string) => {
        if (text.length < ANSWER_CHARS_MAX) text += chunk;
      });
      res.on("error", (err) => resolve({ kind: "failed", why: err.message }));
      res.on("end", () => {
        const after = Number(res.headers["retry-after"] ?? "x");
        resolve({
          kind: "answered",
          status: res.statusCode ?? 0,
          body: text,
          retryAfterS: after >= 0 ? after : undefined,
        });
      });
    });
    req.on("error", (err) => resolve({ kind: "failed", why: err.message }));
    req.end(body);
  });
}
