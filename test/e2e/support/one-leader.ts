import assert from "node:assert/strict";
import type { ClusterProcesses } from "./cluster-processes.ts";

/**
 * By the agents' own records: each obeyed one control plane at a time, under epochs that never fell; nobody obeyed two holders of
 * one epoch; and whom they obeyed had told that it leads. `lost`: terms that the store no longer knows of.
 */
export async function checkOneLeader(
  cluster: ClusterProcesses,
  lost: Awaited<ReturnType<ClusterProcesses["terms"]>> = [],
): Promise<void> {
  const holders = new Map<number, string>();
  for (const [node, commands] of cluster.obeyed) {
    let [epoch, seq] = [0, 0];
    for (const command of commands) {
      assert.ok(command.epoch >= epoch, `${node} obeyed epoch ${command.epoch} after ${epoch}`);
      assert.ok(command.epoch > epoch || command.seq > seq, `${node} obeyed ${command.seq} after ${seq}`);
      [epoch, seq] = [command.epoch, command.seq];
      const holder = holders.get(epoch) ?? command.holder;
      assert.equal(command.holder, holder, `${node} obeyed a second holder of epoch ${epoch}`);
      holders.set(epoch, holder);
    }
  }
  const terms = await cluster.terms();
  assert.equal(new Set(terms.map(({ epoch }) => epoch)).size, terms.length, "no epoch was had twice");
  for (const [epoch, holder] of holders)
    assert.ok(
      [...lost, ...terms].some((term) => term.epoch === epoch && term.holder === holder),
      `nobody told of ${holder} with epoch ${epoch}`,
    );
}
