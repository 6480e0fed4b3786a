import { createHmac, timingSafeEqual } from "node:crypto";
import type { Lead } from "../../contract/agent-link.ts";
import type { NodeReport } from "../../contract/fleet.ts";
import type { Secret } from "../../kernel/secret.ts";

/**
 * Numbers that a store has forgotten come back by the word of agents. So that no node can make one up, and with it end a term or use
 * the numbers up, each is given out with a proof that only who knows the cluster's secret can make; the secret is as old as the store,
 * so every copy of the store has it.
 */
export class NumberProofs {
  readonly #secret: Secret;

  constructor(clusterSecret: Secret) {
    this.#secret = clusterSecret;
  }

  ofTerm({ clusterId, epoch, holder }: Lead): string {
    return this.#prove(["term", clusterId, epoch, holder]);
  }

  ofCommit(clusterId: string, commit: number): string {
    return this.#prove(["commit", clusterId, commit]);
  }

  /** The report with what it can prove alone; `forged`: there was more. What is of another cluster is left to who knows that one. */
  proven(report: NodeReport, clusterId: string): { readonly report: NodeReport; readonly forged: boolean } {
    const { highestEpoch, highestCommit, proofs } = report;
    if (highestEpoch === null || highestEpoch.clusterId !== clusterId) return { report, forged: false };
    if (!isSame(proofs.epoch, this.ofTerm(highestEpoch)))
      return { report: { ...report, highestEpoch: null, highestCommit: 0 }, forged: true };
    if (highestCommit === 0 || isSame(proofs.commit, this.ofCommit(clusterId, highestCommit)))
      return { report, forged: false };
    return { report: { ...report, highestCommit: 0 }, forged: true };
  }

  #prove(parts: readonly (string | number)[]): string {
    return createHmac("sha256", this.#secret.reveal()).update(JSON.stringify(parts)).digest("base64url");
  }
}

function isSame(shown: string, proof: string): boolean {
  const [a, b] = [Buffer.from(shown), Buffer.from(proof)];
  return a.length === b.length && timingSafeEqual(a, b);
}
