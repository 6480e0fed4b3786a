import { z } from "zod";
import { isLoopback } from "./listen-address.ts";

/** The agent's part of the configuration file. */

const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45})$/;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;
const text = z.string().min(1).max(4_096);
const absolute = text.regex(/^\//, "use an absolute path");
const program = z.array(text).nonempty().max(16);

/** A WebSocket address without user, password, path, query or fragment; null for anything else. */
export function parseControlUrl(value: string): URL | null {
  const url = URL.parse(value);
  if (url === null || (url.protocol !== "ws:" && url.protocol !== "wss:")) return null;
  const bare = url.username === "" && url.password === "" && url.search === "" && url.hash === "";
  return bare && (url.pathname === "/" || url.pathname === "") ? url : null;
}

/** Plain text is for loopback alone: the credential, and the keys of engines, pass over it. */
export const isSafeControlUrl = (url: URL): boolean =>
  url.protocol === "wss:" || isLoopback(url.hostname.replace(/^\[|\]$/g, ""));

const PORTS = /^(\d{1,5})-(\d{1,5})$/;
export function parsePortRange(value: string): { readonly first: number; readonly last: number } | null {
  const match = PORTS.exec(value);
  const [first, last] = [Number(match?.[1]), Number(match?.[2])];
  return match !== null && first >= 1 && first <= last && last <= 65_535 ? { first, last } : null;
}

/** What `up` has instead of these while nobody says otherwise: its own control plane, and a folder in its data folder. */
export const USUAL_CONTROL = "ws://127.0.0.1:8300";
export const USUAL_WEIGHTS_DIR = "data/weights";

const ORIGIN = /^https?:\/\/[A-Za-z0-9[\]:.-]{1,260}$/;
const HOST_PORT = /^[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?(?::[1-9]\d{0,4})?$/;
const variable = z.string().regex(VARIABLE);
const server = text
  .regex(ORIGIN, "use https://HOST or https://HOST:PORT, without a path")
  .refine((value) => isSafeServer(value), "use https:// elsewhere than on loopback");
const hostPort = z.string().regex(HOST_PORT, "use HOST or HOST:PORT in lower case");

/** Credentials are sent there. */
function isSafeServer(value: string): boolean {
  const url = URL.parse(value);
  return url?.protocol === "https:" || isLoopback(url?.hostname.replace(/^\[|\]$/g, "") ?? "");
}

/** How weights are fetched. */
const weightsSection = z.strictObject({
  parallel: z.int().min(1).max(32).default(2).describe("Models that are fetched at once; the others wait."),
  connections: z.int().min(1).max(64).default(8).describe("Files that are fetched at once, over all models."),
  reserve: z
    .number()
    .min(0)
    .max(0.9)
    .default(0.1)
    .describe("Part of the disk that downloads leave free; placement counts it as used."),
  ca_file: text.optional().describe("Certificates that servers of weights are checked against, over the system's."),
  redirect_to: z
    .array(hostPort)
    .max(100)
    .default([])
    .describe(
      "Hosts that servers may redirect to though their addresses are not public. Public ones need no entry; credentials never go along.",
    ),
  token_envs: z
    .record(hostPort, variable)
    .default({})
    .describe("By host of `https://` sources, the environment variable with the bearer token for it."),
  hub: z
    .strictObject({
      endpoint: server.default("https://huggingface.co").describe("Where `hf://` sources are fetched from."),
      token_env: variable.default("HF_TOKEN").describe("Environment variable with the hub's token, if it needs one."),
    })
    .prefault({})
    .describe("The model hub."),
  s3: z
    .strictObject({
      endpoint: server
        .optional()
        .describe(
          "An S3-compatible server; buckets are part of the path there. Absent: AWS, by the bucket's own host.",
        ),
      region: z
        .string()
        .regex(/^[a-z0-9-]{1,64}$/)
        .default("us-east-1")
        .describe("The region of the buckets."),
      key_id_env: variable.default("AWS_ACCESS_KEY_ID").describe("Environment variable with the access key's id."),
      secret_env: variable.default("AWS_SECRET_ACCESS_KEY").describe("Environment variable with the secret key."),
      session_env: variable
        .default("AWS_SESSION_TOKEN")
        .describe("Environment variable with the session token of temporary credentials."),
    })
    .prefault({})
    .describe("Where `s3://` sources are fetched from. Without a key requests are not signed."),
});

export const agentSection = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "use 1 to 64 letters, digits or ._-, starting with a letter or digit")
    .optional()
    .describe("Name of the node. Absent: the host name."),
  control: z
    .array(z.string().refine((value) => parseControlUrl(value) !== null, "use ws://HOST:PORT or wss://HOST:PORT"))
    .nonempty()
    .max(16)
    .default([USUAL_CONTROL])
    .describe("Control planes to dial; they tell of further ones. `wss://` elsewhere than on loopback."),
  token_env: z
    .string()
    .regex(VARIABLE)
    .default("YARDMASTER_TOKEN")
    .describe("Environment variable with the one-time token; needed until the node is enrolled."),
  ca_file: text
    .optional()
    .describe("Certificates that `wss://` control planes are checked against, over the system's."),
  client_cert_file: text
    .optional()
    .describe("Certificate to show to control planes that ask for one; with `client_key_file`."),
  client_key_file: text.optional().describe("Its key."),
  address: z
    .string()
    .regex(HOST, "use a host name or an IP address")
    .refine((host) => host !== "0.0.0.0" && host !== "::", "name one address: engines are not opened on all of them")
    .default("127.0.0.1")
    .describe(
      "Where engines listen, and gateways reach them. Another machine's gateways need the node's private address.",
    ),
  labels: z
    .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/), z.string().max(256))
    .default({})
    .describe("Labels of the node, for `nodes.require` and `nodes.avoid` of models."),
  fabric: z
    .string()
    .min(1)
    .max(128)
    .optional()
    .describe("Interconnect that replicas over several nodes share. Absent: the NVLink domain, where there is one."),
  nvidia_smi: text
    .optional()
    .describe("What to ask for NVIDIA cards. Absent: `nvidia-smi` on the path, if it is there."),
  amd_smi: text.optional().describe("What to ask for AMD cards. Absent: `amd-smi` on the path, if it is there."),
  weights_dir: text
    .default(USUAL_WEIGHTS_DIR)
    .describe("Folder of the weights; relative sources are looked for in it, and fetched ones are kept there."),
  weights: weightsSection.prefault({}).describe("How weights are fetched."),
  engine_ports: z
    .string()
    .refine((value) => parsePortRange(value) !== null, "use FIRST-LAST, such as 18000-18999")
    .default("18000-18999")
    .describe("Ports that engines get."),
  commands: z
    .array(absolute)
    .max(1_000)
    .default([])
    .describe("Programs that `command` profiles may start, by absolute path."),
  programs: z
    .strictObject({
      vllm: program.optional().describe("Absent: `[vllm]`."),
      sglang: program.optional().describe("Absent: `[python3, -m, sglang.launch_server]`."),
      "llama.cpp": program.optional().describe("Absent: `[llama-server]`."),
      tei: program.optional().describe("Absent: `[text-embeddings-router]`."),
    })
    .prefault({})
    .describe("Program and leading arguments of each engine, where they are not what the path finds."),
});

export type AgentSection = z.output<typeof agentSection>;
