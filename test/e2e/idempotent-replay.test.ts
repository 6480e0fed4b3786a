import { IDEMPOTENCY_WORLD, idempotencySuite } from "./idempotent-replay.conformance.ts";
import { ReplayWorld } from "./support/replay-world.ts";

idempotencySuite("one gateway", () => ReplayWorld.open(IDEMPOTENCY_WORLD));
