import { ejectedEndpoints } from "../../decide/routing/outlier.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Endpoint } from "./endpoint.ts";

/** Marks those that fail more than the others, and where none is well those that are tried for want of a better one. */
export function refreshEjections(endpoints: readonly Endpoint[], now: MonoMs): void {
  const ejected = ejectedEndpoints(endpoints, now);
  const someWell = endpoints.some(
    (endpoint) =>
      !endpoint.draining &&
      endpoint.guard === "pass" &&
      !endpoint.stalled &&
      endpoint.health !== "unhealthy" &&
      endpoint.health !== "loading",
  );
  for (const endpoint of endpoints) {
    endpoint.ejected = ejected.has(endpoint.id);
    endpoint.lastResort = !someWell && endpoint.health === "unhealthy";
  }
}
