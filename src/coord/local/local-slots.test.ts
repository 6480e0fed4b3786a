import { VirtualClock } from "../../testing/virtual-clock.ts";
import { slotStoreSuite } from "../slot-store.conformance.ts";
import { LocalSlots } from "./local-slots.ts";

slotStoreSuite("in memory", () => {
  const clock = new VirtualClock();
  const store = new LocalSlots(clock);
  return {
    store,
    empty: () => {
      for (let i = 0; i < 100; i += 1) store.modelOf(`u${i}`).empty();
      return Promise.resolve();
    },
    pass: (ms) => clock.advance(ms),
  };
});
