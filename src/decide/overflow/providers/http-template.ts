import type { ProviderSettings, ProviderTemplate, TemplateStep } from "../../../contract/provider-settings.ts";
import type { JsonObject } from "../../http/token-usage.ts";
import { words } from "../../http/words.ts";
import {
  get,
  isSuccess,
  judgeLookStatus,
  judgeSubmitStatus,
  readId,
  readMembers,
  type CloudAnswer,
  type CloudCall,
  type CloudPlan,
  type CloudProtocol,
} from "./cloud-call.ts";
import { valueAt } from "./json-pointer.ts";
import { quote, readCharge } from "./price-quote.ts";
import type { CancelOutcome, FindOutcome, PollOutcome, ProviderWork, SubmitOutcome } from "./provider-work.ts";
import { readAsked, readSeconds } from "./video-work.ts";

/** Any place that takes work, is asked for it and hands it out over HTTP, as the configuration describes it. */
export function httpTemplate(settings: ProviderSettings, template: ProviderTemplate): CloudProtocol {
  const { cancel, find, result } = template;
  return {
    plan: (work) => plan(settings, template, work),
    readSubmission: (answer) => readSubmission(template, answer),
    look: (taskId) => callOf(template.poll, taskId),
    readLook: (answer, taskId) => readLook(template, answer, taskId),
    place: (named) =>
      result.url === null
        ? { kind: "call", call: get((result.path ?? "").replaceAll("{id}", encodeURIComponent(named))) }
        : { kind: "url", url: named },
    ...(find === null
      ? {}
      : {
          finding: {
            call: (key) => ({ ...get(find.path.replaceAll("{key}", encodeURIComponent(key))), method: find.method }),
            read: (answer) => readFound(template, answer, find.taskId),
          },
        }),
    cancellation: (taskId) => (cancel === null ? null : callOf(cancel, taskId)),
    readCancellation,
  };
}

const callOf = ({ method, path }: TemplateStep, taskId: string): CloudCall => ({
  ...get(path.replaceAll("{id}", encodeURIComponent(taskId))),
  method,
});

function plan({ model, price }: ProviderSettings, { submit }: ProviderTemplate, work: ProviderWork): CloudPlan {
  const read = readAsked(work.body);
  if (read.kind === "unfit") return read;
  const { asked } = read;
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (submit.idempotencyHeader !== null) headers[submit.idempotencyHeader] = work.idempotencyKey;
  const body = JSON.stringify(model === null ? asked : { ...asked, model });
  const call = { method: submit.method, path: submit.path, headers, body };
  return { kind: "ok", call, quote: quote(price, { seconds: readSeconds(asked["duration"]) }) };
}

function readSubmission(template: ProviderTemplate, answer: CloudAnswer): SubmitOutcome {
  const members = readMembers(answer);
  const error = errorOf(template, members);
  if (!isSuccess(answer)) return judgeSubmitStatus(answer, error ?? "no words");
  const taskId = readId(valueAt(members, template.submit.taskId));
  if (error !== undefined) return { kind: "unknown", why: `the place answered with an error: ${error}` };
  if (taskId !== undefined) return { kind: "accepted", taskId };
  return { kind: "unknown", why: "the place took the work and named no task" };
}

function readFound(template: ProviderTemplate, answer: CloudAnswer, pointer: string): FindOutcome {
  if (answer.status === 404 || answer.status === 410) return { kind: "none" };
  const members = readMembers(answer);
  if (!isSuccess(answer) || members === undefined || errorOf(template, members) !== undefined)
    return { kind: "unknown" };
  const taskId = readId(valueAt(members, pointer));
  return taskId === undefined ? { kind: "none" } : { kind: "found", taskId };
}

function readLook(template: ProviderTemplate, answer: CloudAnswer, taskId: string): PollOutcome {
  const members = readMembers(answer);
  const error = errorOf(template, members);
  if (!isSuccess(answer)) return judgeLookStatus(answer, error ?? "no words");
  const { poll, result } = template;
  const state = valueAt(members, poll.status);
  const chargedMicros = poll.charged === null ? undefined : readCharge(valueAt(members, poll.charged));
  const isOneOf = (states: readonly string[]): boolean => states.includes(String(state));
  if (isOneOf(poll.succeeded)) {
    const named = result.url === null ? taskId : valueAt(members, result.url);
    if (typeof named === "string" && named !== "") return { kind: "succeeded", result: named, chargedMicros };
    return { kind: "unavailable", why: "the place says that it succeeded and names no result" };
  }
  if (isOneOf(poll.failed)) {
    const said = words(poll.error === null ? undefined : valueAt(members, poll.error), error ?? "no words");
    return { kind: "failed", reason: "unknown", why: `the place could not do it: ${said}`, chargedMicros };
  }
  if (!isOneOf(poll.running)) return { kind: "unavailable", why: "the place tells no state of the task" };
  const progress = poll.progress === null ? undefined : valueAt(members, poll.progress);
  return typeof progress === "number" && progress >= 0 && progress <= 1
    ? { kind: "running", progress }
    : { kind: "running" };
}

function readCancellation(answer: CloudAnswer): CancelOutcome {
  if (isSuccess(answer)) return { kind: "cancelled" };
  if ([404, 405, 501].includes(answer.status)) return { kind: "unsupported" };
  if (answer.status === 409 || answer.status === 410) return { kind: "tooLate" };
  return { kind: "unknown", why: `the place answered ${answer.status}` };
}

function errorOf({ error }: ProviderTemplate, members: JsonObject | undefined): string | undefined {
  const found = error === null ? undefined : valueAt(members, error);
  if (found === undefined || found === null || found === false || found === "") return undefined;
  return words(found, "an error without words");
}
