import { z } from "zod";
import { parseControlUrl } from "./agent-schema.ts";
import { parseListen } from "./listen-address.ts";

export const CONTROL_LISTEN = "127.0.0.1:8300";

/** The control plane's part of the configuration file. */
const file = z.string().min(1).max(4_096);
const seconds = (max: number): z.ZodNumber => z.number().positive().max(max);

export const controlSection = z.strictObject({
  listen: z
    .string()
    .refine(
      (text) => parseListen(text) !== undefined,
      "use HOST:PORT with the host named, such as 127.0.0.1:8300 or [::1]:8300",
    )
    .default(CONTROL_LISTEN)
    .describe("HOST:PORT of the API. Loopback unless told otherwise; another address needs `auth.mode: keys`."),
  tls: z
    .strictObject({
      cert_file: file.describe("PEM: the certificate, and those between it and a known authority."),
      key_file: file.describe("PEM: its key."),
      client_ca_file: file
        .optional()
        .describe(
          "Agents and gateways have to show a certificate that one of these vouches for, beside their credential.",
        ),
    })
    .optional()
    .describe("The API, agents and gateways are served over TLS. The files are read again when they change."),
  catalog: z
    .strictObject({
      file: z
        .string()
        .min(1)
        .optional()
        .describe(
          "A catalog that is watched, and taken over by the leader when it changes. Absent: the store's latest revision rules.",
        ),
    })
    .prefault({})
    .describe("Where the catalog comes from, besides `ctl catalog` and the API."),
  lease_s: z
    .number()
    .min(2)
    .max(3600)
    .default(10)
    .describe(
      "How long the store keeps the lead for a control plane that does not renew it: what a crash of the leader costs.",
    ),
  lease_max_blind_s: z
    .number()
    .min(1)
    .max(86_400)
    .optional()
    .describe(
      "How long a leader that can't reach the store goes on leading. Absent: `lease_s`. More is for one that is alone.",
    ),
  advertise: z
    .array(z.string().refine((value) => parseControlUrl(value) !== null, "use ws://HOST:PORT or wss://HOST:PORT"))
    .max(16)
    .default([])
    .describe("Where agents can dial all control planes of the cluster; agents are told, and keep it."),
  unreachable_after_s: seconds(3_600)
    .default(10)
    .describe("A node that is silent for so long gets no new work; what runs there stays as it is."),
  lost_after_s: seconds(86_400)
    .default(60)
    .describe("A node that is silent for so long is lost: what ran there is started elsewhere."),
  settle_s: seconds(3_600)
    .default(15)
    .describe("How long a new leader waits for agents that the store knows before it places or stops anything."),
  start_stall_s: seconds(86_400).default(600).describe("A start that makes no progress for so long has failed."),
  stop_grace_s: seconds(3_600).default(30).describe("How long an engine that is to end has before it is killed."),
  min_run_s: z
    .number()
    .min(0)
    .max(86_400)
    .default(300)
    .describe(
      "A replica that has served for less, or room that was kept for less, is not displaced by a model of higher priority.",
    ),
  drain_grace_s: z
    .number()
    .min(0)
    .max(86_400)
    .default(300)
    .describe(
      "How long a replica that is to stop waits for requests that run there, where gateways don't tell of their end.",
    ),
  park_after: z
    .int()
    .min(1)
    .max(100)
    .default(5)
    .describe("Failures in a row after which a model is started no more until `ctl retry`."),
  board: z
    .strictObject({
      hosts: z
        .array(
          z
            .string()
            .regex(/^[A-Za-z0-9._-]{1,253}$/, "use a host name without a scheme or port, such as board.example.org"),
        )
        .max(32)
        .default([])
        .describe(
          "Names that browsers ask for the board under, besides addresses, `localhost` and the name of `listen`: another name may be a stranger's that was pointed here, and is refused.",
        ),
    })
    .prefault({})
    .describe("The board, which the control plane serves at `/board/`."),
});

export type ControlSection = z.output<typeof controlSection>;
