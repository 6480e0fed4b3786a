import { parentPort } from "node:worker_threads";
import type { InvalidYaml } from "../../config/checked-yaml.ts";
import { type Assessed, CatalogAssessor, type CatalogQuestion } from "./assess-catalog.ts";

export interface CatalogRequest extends CatalogQuestion {
  readonly wantsModels: boolean;
}

export type CatalogReply =
  | InvalidYaml
  /** `pieces`: JSON of the models, some in each, in order; null where nobody wanted them. */
  | (Omit<Assessed, "models"> & { readonly pieces: readonly string[] | null });

/** Read by whoever asked in one turn of its event loop. */
const PIECE_MODELS = 100;

/** The thread that reads large catalogs: what takes seconds there keeps nobody from renewing a lease. One answer to each request. */
const port = parentPort;
if (port === null) throw new Error("catalog-worker runs as a worker thread only");

const assessor = new CatalogAssessor();

function answer({ wantsModels, ...question }: CatalogRequest): CatalogReply {
  const assessed = assessor.assess(question);
  if (assessed.kind === "invalid") return assessed;
  const { models, ...rest } = assessed;
  return { ...rest, pieces: wantsModels ? inPieces([...models.values()]) : null };
}

function inPieces(models: readonly unknown[]): string[] {
  const count = Math.ceil(models.length / PIECE_MODELS);
  return Array.from({ length: count }, (_, at) =>
    JSON.stringify(models.slice(at * PIECE_MODELS, (at + 1) * PIECE_MODELS)),
  );
}

port.on("message", (request: CatalogRequest) => port.postMessage(answer(request)));
