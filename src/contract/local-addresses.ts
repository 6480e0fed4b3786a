import { z } from "zod";

/** In the data folder while an `up` runs: where its gateway and its control plane are, for `ctl` beside it. */
export const ADDRESSES_FILE = "addresses.json";

const httpUrl = z.string().regex(/^http:\/\/\S+$/);
export const localAddresses = z.object({ gateway: httpUrl, control: httpUrl });
export type LocalAddresses = z.output<typeof localAddresses>;
