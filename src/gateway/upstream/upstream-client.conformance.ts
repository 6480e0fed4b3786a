import type { LookupFunction } from "node:net";
import { after, test } from "node:test";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { TimerWheel } from "../../kernel/timer-wheel.ts";
import { addressTests, failureTests, reuseTests, staleTests, timeoutTests } from "./connections.conformance.ts";
import { flowTests, framingTests, pauseTests, requestTests, segmentationTests } from "./exchanges.conformance.ts";
import { abortTests, smugglingTests } from "./hostile.conformance.ts";
import type { ClientTraits, Suite } from "./suite.conformance.ts";
import type { UpstreamClient } from "./port.ts";

const TEST_MS_MAX = 20_000;

/** All that every upstream client must do, against engines scripted byte by byte. */
export function runUpstreamConformance(traits: ClientTraits): void {
  const clients: UpstreamClient[] = [];
  after(() => clients.forEach((client) => client.close()));
  const makeClient = (clock: Clock = systemClock, lookup?: LookupFunction): UpstreamClient => {
    const client = traits.make({ clock, wheel: new TimerWheel(clock), ...(lookup === undefined ? {} : { lookup }) });
    clients.push(client);
    return client;
  };
  const it = (title: string, body: () => Promise<void>): void =>
    void test(`${traits.name}: ${title}`, { timeout: TEST_MS_MAX }, body);
  const suite: Suite = { traits, makeClient, it };
  framingTests(suite);
  segmentationTests(suite);
  requestTests(suite);
  flowTests(suite);
  pauseTests(suite);
  failureTests(suite);
  reuseTests(suite);
  staleTests(suite);
  smugglingTests(suite);
  abortTests(suite);
  addressTests(suite);
  timeoutTests(suite);
}
