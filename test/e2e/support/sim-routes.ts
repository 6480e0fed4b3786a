import type { CallOptions } from "./calls.ts";

/** One way of asking: each route of the gateway that leads to an engine, as a stream where it has one. */
export interface SimRoute {
  readonly name: string;
  /** As the gateway's metrics name it. */
  readonly pattern: string;
  readonly streams: boolean;
  readonly upstream: "u" | "passthrough";
  /** The call, with what the simulated engine shall do with it. */
  readonly call: (sim: Readonly<Record<string, unknown>>) => CallOptions;
}

const MESSAGES = [{ role: "user", content: "hi" }];
const BODIES: Readonly<
  Record<string, { readonly body: Readonly<Record<string, unknown>>; readonly canStream: boolean }>
> = {
  "/v1/chat/completions": { body: { messages: MESSAGES }, canStream: true },
  "/v1/completions": { body: { prompt: "hi" }, canStream: true },
  "/v1/responses": { body: { input: "hi" }, canStream: true },
  "/v1/messages": { body: { messages: MESSAGES, max_tokens: 50 }, canStream: true },
  "/v1/embeddings": { body: { input: "hi" }, canStream: false },
  "/v1/rerank": { body: { query: "q", documents: ["a", "b"] }, canStream: false },
  "/v1/score": { body: { text_1: "a", text_2: "b" }, canStream: false },
  "/v1/classify": { body: { input: "hi" }, canStream: false },
  "/v1/audio/speech": { body: { input: "hi", voice: "v" }, canStream: false },
  "/v1/images/generations": { body: { prompt: "hi" }, canStream: false },
};

const jsonRoute = (path: string, stream: boolean, through = ""): SimRoute => ({
  name: `${through === "" ? "" : "passed through: "}${path}${stream ? " as a stream" : ""}`,
  pattern: through === "" ? path : "/upstreams/*",
  streams: stream,
  upstream: through === "" ? "u" : "passthrough",
  call: (sim) => ({
    path: through + path,
    body: { model: "m", ...BODIES[path]?.body, ...(stream ? { stream } : {}), sim },
  }),
});

function formRoute(path: string): SimRoute {
  const boundary = "----form";
  const part = (name: string, value: string, file = ""): string =>
    `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${file}\r\n\r\n${value}\r\n`;
  return {
    name: path,
    pattern: path,
    streams: false,
    upstream: "u",
    call: (sim) => ({
      path,
      headers: { "content-type": `multipart/form-data; boundary=${boundary}` },
      body: Buffer.from(
        `${part("model", "m")}${part("sim", JSON.stringify(sim))}${part("file", "RIFF".repeat(100), '; filename="a.wav"')}--${boundary}--\r\n`,
      ),
    }),
  };
}

export const SIM_ROUTES: readonly SimRoute[] = [
  ...Object.entries(BODIES).flatMap(([path, { canStream }]) => [
    jsonRoute(path, false),
    ...(canStream ? [jsonRoute(path, true)] : []),
  ]),
  formRoute("/v1/audio/transcriptions"),
  formRoute("/v1/audio/translations"),
  jsonRoute("/v1/chat/completions", true, "/upstreams/passthrough"),
  jsonRoute("/v1/embeddings", false, "/upstreams/passthrough"),
];
