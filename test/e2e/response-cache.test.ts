import { CACHE_WORLD, cacheSuite } from "./response-cache.conformance.ts";
import { ReplayWorld } from "./support/replay-world.ts";

cacheSuite("one gateway", () => ReplayWorld.open(CACHE_WORLD));
