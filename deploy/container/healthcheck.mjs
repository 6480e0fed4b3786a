// Whether what listens in this container is alive, for an image without curl. Exit code 0: it is; 1: it is not.
// usage: node healthcheck.mjs [URL]
const url = process.argv[2] ?? process.env["YARDMASTER_HEALTH_URL"] ?? "http://127.0.0.1:8200/healthz";
const ANSWER_MS_MAX = 4_000;

const { get } = process.getBuiltinModule(url.startsWith("https:") ? "node:https" : "node:http");
const dead = (why) => {
  process.stderr.write(`${url}: ${why}\n`);
  process.exit(1);
};
get(url, { timeout: ANSWER_MS_MAX }, ({ statusCode }) =>
  statusCode === 200 ? process.exit(0) : dead(`status ${statusCode}`),
)
  .on("timeout", () => dead(`no answer in ${ANSWER_MS_MAX} ms`))
  .on("error", (error) => dead(error.message));
