import type { z } from "zod";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { isOpen, type JobRecord } from "../../contract/job.ts";
import { MICROS, microsDown, microsUp } from "../../contract/money.ts";
import { approveBody, settleBody, stopBody, type ApprovalView } from "../../contract/overflow-view.ts";
import type { Ledger } from "../../coord/overflow/ledger.ts";
import type { Approval } from "../../decide/overflow/ledger-book.ts";
import { decodeId } from "../../decide/http/request-line.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError, type ErrorCode } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { actAudited, takeAwayAudited } from "../audit/admin-event.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import { readAdminBody } from "../http/admin-body.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { OverflowHandler } from "../http/routes.ts";
import { sendFailure } from "../http/send-error.ts";
import { sendJson } from "../http/send-json.ts";
import { contentHash, providerName } from "./content-hash.ts";
import type { OverflowDesk } from "./overflow-desk.ts";
import { overflowState, spendState, viewApproval, viewSwitch } from "./overflow-state.ts";

export interface OverflowRoutesDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly config: () => GatewayConfig;
  readonly overflow: {
    readonly desk: OverflowDesk;
    /** Null: no overflow is configured. */
    readonly ledger: Ledger | null;
    readonly content: (
      jobId: string,
    ) => Promise<{ readonly job: JobRecord; readonly body: Buffer | undefined } | undefined>;
  };
}

const RETRY_MS = 1_000;

/** Looking at overflow, and saying what may be spent. */
export class OverflowRoutes {
  readonly #deps: OverflowRoutesDeps;

  constructor(deps: OverflowRoutesDeps) {
    this.#deps = deps;
  }

  handle(context: RequestContext, handler: OverflowHandler): void {
    this.#answer(context, handler).then(
      ({ status, value }) => sendJson(context, status, value),
      (error: unknown) => sendFailure(context, error, this.#deps, { retryAfterMs: RETRY_MS }),
    );
  }

  async #answer(
    context: RequestContext,
    handler: OverflowHandler,
  ): Promise<{ readonly status: number; readonly value: unknown }> {
    const rest = decodeId(context.rest) ?? context.rest;
    switch (handler) {
      case "overflowShow":
        return ok(await this.#show(rest));
      case "overflowSpend":
        return ok(await spendState(this.#deps.overflow.desk, this.#ledger()));
      case "overflowApprovals":
        return ok({ data: (await this.#ledger().approvals()).map(viewApproval) });
      case "overflowApprove":
        return { status: 201, value: await this.#approve(context, await this.#body(context, approveBody)) };
      case "overflowRevoke":
        return ok(await this.#revoke(context, context.rest));
      case "overflowStop": {
        const { why } = await this.#body(context, stopBody);
        return ok(await this.#setSwitch(context, { by: context.key.id, why }));
      }
      case "overflowGo":
        return ok(await this.#setSwitch(context, null));
      case "overflowResume":
        return ok(await this.#resume(context, rest));
      case "overflowSettle":
        return ok(await this.#settle(context, rest, await this.#body(context, settleBody)));
      case "overflowAccept": {
        const act = (): Promise<string> => this.#ledger().acceptEmptied();
        return ok({ accepted: await this.#audited(context, "/admin/overflow/accept", act) });
      }
      default:
        return handler satisfies never;
    }
  }

  async #show(id: string): Promise<unknown> {
    const { desk } = this.#deps.overflow;
    const policy = desk.policyOf(id);
    if (policy === undefined)
      throw new YardmasterError("OVERFLOW_UNKNOWN", `no overflow is configured for ${JSON.stringify(id)}`);
    const look = await desk.look(policy, true);
    return overflowState(desk, policy, look, this.#deps.overflow.ledger);
  }

  async #approve(context: RequestContext, asked: z.output<typeof approveBody>): Promise<ApprovalView> {
    const { overflow } = this.#deps;
    const tier = overflow.desk.tiers.find(({ id }) => id === asked.tier);
    if (tier === undefined)
      throw new YardmasterError("OVERFLOW_UNKNOWN", `there is no tier ${JSON.stringify(asked.tier)}`);
    const content = await overflow.content(asked.job);
    if (content === undefined) throw new YardmasterError("JOB_UNKNOWN", "there is no job of this id");
    if (!isOpen(content.job.state)) throw new YardmasterError("JOB_OVER", `the job is ${content.job.state}`);
    const hash = contentHash(content.job, content.body);
    const given = {
      tier: tier.id,
      subject: content.job.id,
      hash: asked.content_hash ?? hash,
      provider: providerName(tier),
      maxMicros: microsDown(asked.max_price * MICROS),
      currency: tier.provider.price?.currency ?? "",
      by: context.key.id,
    };
    const act = async (): Promise<Approval> =>
      (await this.#ledger().approve(given, asked.expires_s * 1000)) ??
      refuse("APPROVAL_IN_USE", "an approval of this job is used already");
    return viewApproval(
      await this.#audited(context, `/admin/overflow/approvals/${tier.id}/${content.job.id}`, act, 201),
    );
  }

  async #revoke(context: RequestContext, rest: string): Promise<ApprovalView> {
    const slash = rest.indexOf("/");
    const [tier, subject] = [rest.slice(0, slash), rest.slice(slash + 1)];
    const act = async (): Promise<Approval> =>
      (await this.#ledger().revoke(tier, subject)) ??
      refuse("OVERFLOW_UNKNOWN", "there is no approval that could be revoked");
    const what = `/admin/overflow/approvals/${tier}/${subject}`;
    return viewApproval(await takeAwayAudited(this.#deps, context, what, act));
  }

  async #setSwitch(context: RequestContext, stopped: { by: string; why: string } | null): Promise<unknown> {
    const ledger = this.#ledger();
    const act = (): ReturnType<Ledger["setSwitch"]> => ledger.setSwitch(stopped);
    const set = await (stopped === null
      ? this.#audited(context, "/admin/overflow/go", act)
      : takeAwayAudited(this.#deps, context, "/admin/overflow/stop", act));
    this.#deps.log.warn("overflow.switch", { stopped: set.stopped !== null, by: context.key.id });
    return viewSwitch(set);
  }

  async #resume(context: RequestContext, tier: string): Promise<unknown> {
    const act = async (): Promise<boolean> =>
      (await this.#ledger().resume(tier)) || refuse("OVERFLOW_UNKNOWN", "there is no such tier that is halted");
    return { tier, resumed: await this.#audited(context, `/admin/overflow/tiers/${tier}/resume`, act) };
  }

  /** The operator has asked the tier: what was charged, or that nothing was. */
  async #settle(
    context: RequestContext,
    id: string,
    { charged }: z.output<typeof settleBody>,
  ): Promise<{ readonly id: string; readonly charged: number | null }> {
    const ledger = this.#ledger();
    const reservation = (await ledger.reservations()).find((each) => each.id === id);
    if (reservation === undefined)
      throw new YardmasterError("OVERFLOW_UNKNOWN", "there is no open reservation of this id");
    await this.#audited(context, `/admin/overflow/reservations/${id}`, async () => {
      const outcome = await (charged === null
        ? ledger.giveBack(reservation, `nothing was charged, says ${context.key.id}`)
        : ledger.settle(reservation, microsUp(charged * MICROS)));
      if (outcome.kind === "refused") refuse("OVERFLOW_LEDGER_UNAVAILABLE", outcome.why);
    });
    return { id, charged };
  }

  #ledger(): Ledger {
    const { ledger } = this.#deps.overflow;
    if (ledger === null) throw new YardmasterError("OVERFLOW_UNKNOWN", "no overflow is configured");
    return ledger;
  }

  #audited<T>(context: RequestContext, what: string, act: () => Promise<T>, status = 200): Promise<T> {
    return actAudited(this.#deps, context, what, status, act);
  }

  async #body<S extends z.ZodType>(context: RequestContext, schema: S): Promise<z.output<S>> {
    const body = await readAdminBody(context.req, this.#deps);
    const parsed = schema.safeParse(body === undefined ? {} : body);
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    const where = issue?.path.map(String).join(".") ?? "";
    throw new YardmasterError("BAD_REQUEST", `${where === "" ? "" : `${where}: `}${issue?.message ?? "can't be read"}`);
  }
}

/** Inside of what is audited, so that the record says that nothing was done. */
const refuse = (code: ErrorCode, why: string): never => {
  throw new YardmasterError(code, why);
};

const ok = (value: unknown): { readonly status: number; readonly value: unknown } => ({ status: 200, value });
