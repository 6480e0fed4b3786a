import { z } from "zod";
import { parseListen } from "./listen-address.ts";

/** The control plane's part of the configuration file. */
export const controlSection = z.strictObject({
  listen: z
    .string()
    .refine(
      (text) => parseListen(text) !== undefined,
      "use HOST:PORT with the host named, such as 127.0.0.1:8300 or [::1]:8300",
    )
    .default("127.0.0.1:8300")
    .describe("HOST:PORT of the API. Loopback unless told otherwise; another address needs `auth.mode: keys`."),
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
});

export type ControlSection = z.output<typeof controlSection>;
