import { systemClock, type Timer } from "../../../src/kernel/clock.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { type ClusterProcesses, LEASE_MS, PATIENCE_MS } from "./cluster-processes.ts";

const never = new AbortController().signal;
export const pause = (ms: number): Promise<void> => systemClock.sleep(ms, never);

/** What can happen to a cluster of two control planes and one node in the middle of anything. Each is over when it returns. */
export const MIDDLE_FAULTS: Readonly<Record<string, (cluster: ClusterProcesses) => Promise<void>>> = {
  "the leader is killed": async (cluster) => {
    const leader = await cluster.leading();
    await leader.kill();
    await cluster.standby(leader).leads();
    await leader.start();
  },
  "the leader stands still for longer than its lease": async (cluster) => {
    const leader = await cluster.leading();
    const next = cluster.standby(leader);
    leader.signal("SIGSTOP");
    await eventually("the takeover", () => next.leads(), Boolean, PATIENCE_MS);
    await pause(LEASE_MS / 3);
    leader.signal("SIGCONT");
  },
  "the agent is killed": async (cluster) => {
    await cluster.nodes[0]!.killAgent();
    await cluster.nodes[0]!.start();
  },
  "the agent stands still": async (cluster) => {
    cluster.nodes[0]!.signal("SIGSTOP");
    await pause(1_000);
    cluster.nodes[0]!.signal("SIGCONT");
  },
  "the leader and the agent are killed": async (cluster) => {
    const leader = await cluster.leading();
    await Promise.all([leader.kill(), cluster.nodes[0]!.killAgent()]);
    await Promise.all([leader.start(), cluster.nodes[0]!.start()]);
  },
};

/** The most engines that were ever alive at once, by looks a few milliseconds apart. */
export class EngineCount implements Disposable {
  most = 0;
  #timer: Timer | undefined;

  constructor(cluster: ClusterProcesses) {
    const look = (): void => {
      this.most = Math.max(this.most, cluster.census.alive().length);
      this.#timer = systemClock.after(20, look);
    };
    look();
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }
}
