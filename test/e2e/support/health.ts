import type { RequestClass } from "../../../src/contract/request-class.ts";

/** What the tests read of an upstream on `GET /health`. */
export interface UpstreamHealth {
  readonly id: string;
  readonly slots: number;
  readonly in_use: Readonly<Record<RequestClass, number>>;
  readonly lingering: number;
  readonly queue: { readonly waiting: Readonly<Record<RequestClass, number>>; readonly waiting_bytes: number };
  readonly endpoints: readonly { readonly in_flight: number; readonly lingering: number; readonly external: number }[];
}

/** The upstream of this id. */
export async function upstreamHealth(gateway: { health(): Promise<unknown> }, id = "u"): Promise<UpstreamHealth> {
  const { upstreams } = (await gateway.health()) as { readonly upstreams: readonly UpstreamHealth[] };
  const found = upstreams.find((upstream) => upstream.id === id);
  if (found === undefined) throw new Error(`no upstream ${id} on /health`);
  return found;
}

export async function waitingIn(gateway: { health(): Promise<unknown> }): Promise<number> {
  const { waiting } = (await upstreamHealth(gateway)).queue;
  return waiting.interactive + waiting.system + waiting.batch;
}
