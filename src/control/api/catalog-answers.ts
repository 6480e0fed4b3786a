import { z } from "zod";
import { CATALOG_BYTES_MAX } from "../../config/load-catalog.ts";
import type { DiffAnswer } from "../../contract/control-api.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import {
  describeDiff,
  describeHarm,
  type CatalogKeeper,
  type JudgedDiff,
  type ProposalOutcome,
} from "../catalog/catalog-keeper.ts";
import type { CatalogSource } from "../catalog/catalog-source.ts";
import { type Answer, json, Refusal } from "./answer.ts";
import type { ActRequest } from "../audit/act-audit.ts";
import type { ApiRequest } from "./api-server.ts";
import { readBody, readJson } from "./read-body.ts";

export interface CatalogAnswerPorts {
  readonly clock: Clock;
  readonly keeper: CatalogKeeper;
  /** Null where the catalog has no file. */
  readonly source: CatalogSource | null;
}

const HISTORY_MAX = 200;
const BODY_MS_MAX = 30_000;
const SMALL_BODY_BYTES_MAX = 64 * 1024;

export const rollbackRequest = z.strictObject({ revision: z.int().positive(), confirm: z.string().max(64).optional() });
export const confirmRequest = z.strictObject({ token: z.string().min(1).max(64) });

const etag = (revision: number): string => `"${revision}"`;

/** What the routes below `/v1/catalog` answer. */
export class CatalogAnswers {
  readonly #ports: CatalogAnswerPorts;

  constructor(ports: CatalogAnswerPorts) {
    this.#ports = ports;
  }

  async show(): Promise<Answer> {
    const stored = await this.#ports.keeper.newest();
    if (stored === null) throw new YardmasterError("REVISION_UNKNOWN", "no catalog has been given yet");
    return json(stored, 200, { etag: etag(stored.revision) });
  }

  async revision(rest: string): Promise<Answer> {
    const number = /^[1-9]\d{0,14}$/.test(rest) ? Number(rest) : undefined;
    const stored = number === undefined ? undefined : await this.#ports.keeper.revision(number);
    if (stored === undefined) throw new YardmasterError("REVISION_UNKNOWN", "this revision is not kept");
    return json(stored, 200, { etag: etag(stored.revision) });
  }

  async history(query: URLSearchParams): Promise<Answer> {
    const limit = Number(query.get("limit") ?? 20);
    if (!Number.isInteger(limit) || limit < 1 || limit > HISTORY_MAX)
      throw new YardmasterError("BAD_REQUEST", `limit must be 1 to ${HISTORY_MAX}`);
    return json({ revisions: await this.#ports.keeper.history(limit) });
  }

  async diff({ req }: ApiRequest): Promise<Answer> {
    const judged = await this.#ports.keeper.judge(await this.#text(req), "request");
    if (judged.kind !== "judged") return answerOf(judged);
    return json(diffAnswer(judged));
  }

  async apply({ req, query, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { keeper } = this.#ports;
    const base = readIfMatch(req.headers["if-match"]);
    const text = await this.#text(req);
    const confirm = query.get("confirm");
    const proposal = { text, source: "request", author: keyId, origin: "api", onRecord };
    const outcome = await keeper.propose({
      ...proposal,
      ...(base === undefined ? {} : { base }),
      ...(confirm === null ? {} : { confirm }),
    });
    return answerOf(outcome);
  }

  async rollback({ req, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { keeper } = this.#ports;
    const base = readIfMatch(req.headers["if-match"]);
    const { revision, confirm } = read(rollbackRequest, await this.#json(req));
    const facts = {
      author: keyId,
      onRecord,
      ...(base === undefined ? {} : { base }),
      ...(confirm === undefined ? {} : { confirm }),
    };
    const outcome = await keeper.rollback(revision, facts);
    if (outcome === undefined) throw new YardmasterError("REVISION_UNKNOWN", `revision ${revision} is not kept`);
    return answerOf(outcome);
  }

  async confirm({ req, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { token } = read(confirmRequest, await this.#json(req));
    const outcome = await this.#ports.source?.confirm(token, { author: keyId, onRecord });
    if (outcome === undefined)
      throw new YardmasterError("ACTION_REFUSED", "no change of the catalog's file waits for a confirmation here");
    return answerOf(outcome);
  }

  #text(req: ApiRequest["req"]): Promise<string> {
    return readBody(req, this.#ports.clock, { bytesMax: CATALOG_BYTES_MAX, msMax: BODY_MS_MAX });
  }

  #json(req: ApiRequest["req"]): Promise<unknown> {
    return readJson(req, this.#ports.clock, { bytesMax: SMALL_BODY_BYTES_MAX, msMax: BODY_MS_MAX });
  }
}

/** Throws BAD_REQUEST with the place of each mistake. */
export function read<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map((issue) => `${issue.path.map(String).join(".") || "body"}: ${issue.message}`);
  throw new YardmasterError("BAD_REQUEST", issues.join("; "));
}

/** Undefined where the header is absent; `*` asks for whichever there is. */
function readIfMatch(value: string | undefined): number | undefined {
  if (value === undefined || value.trim() === "*") return undefined;
  const revision = /^"(0|[1-9]\d{0,14})"$/.exec(value.trim())?.[1];
  if (revision === undefined)
    throw new YardmasterError("BAD_REQUEST", 'if-match must be the ETag of a catalog, such as "12"');
  return Number(revision);
}

function answerOf(outcome: ProposalOutcome): Answer {
  switch (outcome.kind) {
    case "applied":
      return json({ revision: outcome.revision, changed: true, diff: diffAnswer(outcome) }, 200, {
        etag: etag(outcome.revision),
      });
    case "unchanged":
      return json({ revision: outcome.revision, changed: false, diff: null }, 200, { etag: etag(outcome.revision) });
    case "invalid": {
      const count = outcome.problems.length;
      const first = outcome.problems[0];
      const where = first === undefined ? "" : `: ${first.path === "" ? "" : `${first.path} `}${first.message}`;
      throw new Refusal("CATALOG_INVALID", `${count === 1 ? "1 mistake" : `${count} mistakes`}${where}`, {
        problems: outcome.problems.map((problem) => ({ ...problem })),
      });
    }
    case "changed":
      throw new Refusal("CATALOG_CHANGED", `the catalog is at revision ${outcome.revision} now`, {
        revision: outcome.revision,
      });
    case "unconfirmed":
      throw new Refusal(
        "CONFIRMATION_NEEDED",
        `it takes away ${describeHarm(outcome.harm)} (${describeDiff(outcome.diff)}); the same again with confirm=${outcome.token} does it`,
        { diff: diffAnswer(outcome) },
      );
    default:
      return assertNever(outcome, "catalog outcome");
  }
}

const diffAnswer = ({ base, diff, harm, token, warnings }: JudgedDiff): DiffAnswer => ({
  base,
  added: [...diff.added],
  removed: [...diff.removed],
  changed: diff.changed.map(({ model, fields }) => ({ model, fields: [...fields] })),
  replicas: harm.replicas,
  lost: harm.lost,
  emptied: [...harm.emptied],
  destructive: harm.destructive,
  token,
  warnings: [...warnings],
});
