import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { CLOUD_ENV, CLOUD_KEY, tasksTemplate } from "../../../src/testing/cloud/cloud-setups.ts";
import { startFakeCloud, type FakeCloud } from "../../../src/testing/cloud/fake-cloud.ts";
import { tasksDialect } from "../../../src/testing/cloud/plain-dialects.ts";

/** The pages that a card's signals are read from, as a test wants them. */
export interface SignalPages extends AsyncDisposable {
  readonly url: string;
  /** Of 1 000: the part of the memory in use is 42.4 % by default. */
  vramFree: number;
  taken: unknown;
  pending: number;
  /** In the place of every page. */
  spoilt: ((res: ServerResponse) => void) | null;
  reads: number;
}

export async function signalPages(): Promise<SignalPages> {
  const server = createServer((req, res) => {
    pages.reads += 1;
    if (pages.spoilt !== null) return pages.spoilt(res);
    const body =
      req.url === "/system_stats"
        ? { devices: [{ vram_total: 1_000, vram_free: pages.vramFree }] }
        : req.url === "/queue"
          ? { queue_running: [], queue_pending: Array.from({ length: pages.pending }, () => []) }
          : { guard: { busy: pages.taken } };
    res.end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const pages: SignalPages = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    vramFree: 576,
    taken: false,
    pending: 0,
    spoilt: null,
    reads: 0,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return pages;
}

export const PRICE_MICROS = 500_000;

export const aCloud = (): Promise<FakeCloud> => startFakeCloud(tasksDialect(CLOUD_KEY), { priceMicros: PRICE_MICROS });

/** A tier at the cloud that lacks nothing, at 0.50 EUR a call. */
export const aTier = (cloud: FakeCloud, change: Readonly<Record<string, unknown>> = {}): Record<string, unknown> => ({
  id: "cloud",
  provider: "http",
  base_url: cloud.url,
  key_env: "CLOUD_KEY",
  http: tasksTemplate,
  price: { per_call: 0.5, currency: "EUR" },
  budget: { per_day: 100, per_month: 1_000 },
  approved: true,
  max_in_flight: 16,
  ...change,
});

export const ENV = CLOUD_ENV;
/** Its data may leave the house. */
export const OUTSIDE_KEY = "CANARY-outside-0123456789abcdef0123456789abcdef";
export const outsideKey = {
  id: "outside",
  key: OUTSIDE_KEY,
  role: "client",
  classes: ["batch", "interactive"],
  allow_external: true,
} as const;
