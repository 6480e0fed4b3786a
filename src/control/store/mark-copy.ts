import type { DatabaseSync } from "node:sqlite";
import { CLUSTER_DOC_ID, type ClusterDoc, NO_CLUSTER_DOC } from "../../contract/fleet.ts";
import { checksum } from "./checksum.ts";
import { A_COPY, COMMITS } from "./commit-mark.ts";

/**
 * A backup says of itself that it is an old copy: whoever leads with it stops nothing until an operator has looked. By numbers alone a
 * copy that was made under the term that agents still obey could not be told from the database itself.
 */
export function markCopy(db: DatabaseSync): void {
  db.prepare("INSERT INTO ym_counters (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2").run({
    $1: COMMITS,
    $2: A_COPY,
  });
  const lease = db.prepare("SELECT epoch FROM ym_lease WHERE id = 1").get();
  // Nobody has led with it: nothing that it does not know can run.
  if (lease === undefined) return;
  const found = db.prepare("SELECT doc FROM ym_docs WHERE kind = 'cluster' AND id = $1").get({ $1: CLUSTER_DOC_ID });
  const known = found === undefined ? NO_CLUSTER_DOC : (JSON.parse(String(found["doc"])) as ClusterDoc);
  const doc: ClusterDoc = { ...known, restoredAbove: Number(lease["epoch"]) };
  const text = JSON.stringify(doc);
  db.prepare(
    "INSERT INTO ym_docs (kind, id, doc, sum) VALUES ('cluster', $1, $2, $3) ON CONFLICT (kind, id) DO UPDATE SET doc = $2, sum = $3",
  ).run({ $1: CLUSTER_DOC_ID, $2: text, $3: checksum("cluster", CLUSTER_DOC_ID, text) });
}
