import { UndiciUpstreamClient } from "./undici-client.ts";
import { runUpstreamConformance } from "./upstream-client.conformance.ts";

runUpstreamConformance({
  name: "undici",
  make: (options) => new UndiciUpstreamClient(options),
  passesChunks: false,
  strict: false,
});
