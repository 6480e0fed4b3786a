import { z } from "zod";
import { parseControlUrl } from "./agent-schema.ts";

const file = z.string().min(1).max(4_096);

/** The gateway's part of the configuration file, beside what it serves: where models and their replicas are told. */
export const gatewaySection = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "use 1 to 64 letters, digits or ._-, starting with a letter or digit")
    .optional()
    .describe("Name of the gateway at the control plane. Absent: the host name."),
  control: z
    .array(z.string().refine((value) => parseControlUrl(value) !== null, "use ws://HOST:PORT or wss://HOST:PORT"))
    .nonempty()
    .max(16)
    .optional()
    .describe(
      "Control planes to follow, all of them: their models and ready replicas are served. `wss://` elsewhere than on loopback. Absent: only what `upstreams` names.",
    ),
  token_env: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
    .default("YARDMASTER_TOKEN")
    .describe("Environment variable with the gateway's credential at the control plane."),
  ca_file: file
    .optional()
    .describe("Certificates that `wss://` control planes are checked against, over the system's."),
  client_cert_file: file
    .optional()
    .describe("Certificate to show to control planes that ask for one; with `client_key_file`."),
  client_key_file: file.optional().describe("Its key."),
});
