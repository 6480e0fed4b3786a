import { NetUpstreamClient } from "./net-client.ts";
import { runUpstreamConformance } from "./upstream-client.conformance.ts";

runUpstreamConformance({ name: "own client", make: (options) => new NetUpstreamClient(options), passesChunks: true, strict: true });
