import type { EndpointView } from "../decide/routing/choose-endpoint.ts";

/** A healthy endpoint with nothing on it. */
export const anEndpointView = (id: string, change: Partial<EndpointView> = {}): EndpointView => ({
  id,
  slots: 8,
  inFlight: 0,
  external: 0,
  draining: false,
  guard: "pass",
  breaker: "closed",
  probeFree: true,
  stalled: false,
  suspect: false,
  health: "healthy",
  serves: true,
  load: null,
  ...change,
});
