import type { ProviderSettings } from "../../../contract/provider-settings.ts";
import type { JsonObject } from "../../http/token-usage.ts";
import { words } from "../../http/words.ts";
import {
  get,
  isSuccess,
  judgeLookStatus,
  judgePlaceStatus,
  judgeSubmitStatus,
  membersAt,
  NO_CANCELLATION,
  postJson,
  readId,
  readMembers,
  type CloudAnswer,
  type CloudPlan,
  type CloudProtocol,
  type ResultPlace,
} from "./cloud-call.ts";
import type { PollOutcome, ProviderWork, RefusalReason, SubmitOutcome } from "./provider-work.ts";
import { pick, readVideoWork, type VideoLengths } from "./video-work.ts";

// The first of MiniMax's two video APIs, whose results are files. An error comes with status 200 and a code inside.

const LENGTHS: VideoLengths = {
  usual: 6,
  fits: (seconds) => seconds === 6 || seconds === 10,
  words: "MiniMax makes videos of 6 or 10 seconds",
};
const OPTIONS = [
  "resolution",
  "prompt_optimizer",
  "fast_pretreatment",
  "first_frame_image",
  "last_frame_image",
  "subject_reference",
  "aigc_watermark",
];
const UNDER: ReadonlySet<unknown> = new Set(["Preparing", "Queueing", "Processing"]);
/** Codes of errors that end a task or a submission for good. Others say nothing certain. */
const REASONS: ReadonlyMap<unknown, RefusalReason> = new Map([
  [1004, "auth"],
  [2049, "auth"],
  [1008, "quota"],
  [1026, "policy"],
  [1027, "policy"],
  [2013, "input"],
]);
const RATE_LIMIT = 1002;

export function minimaxFiles(settings: ProviderSettings): CloudProtocol {
  return {
    plan: (work) => plan(settings, work),
    readSubmission,
    look: (taskId) => get(`/v1/query/video_generation?task_id=${encodeURIComponent(taskId)}`),
    readLook,
    place: (fileId) => ({ kind: "call", call: get(`/v1/files/retrieve?file_id=${encodeURIComponent(fileId)}`) }),
    readPlace,
    ...NO_CANCELLATION,
  };
}

function plan({ model, price }: ProviderSettings, work: ProviderWork): CloudPlan {
  const video = readVideoWork(work.body, price, LENGTHS);
  if (video.kind === "unfit") return video;
  const { asked, prompt, seconds, quote } = video;
  const body = { ...pick(asked, OPTIONS), model: model ?? asked["model"], prompt, duration: seconds };
  return { kind: "ok", call: postJson("/v1/video_generation", body), quote };
}

function readSubmission(answer: CloudAnswer): SubmitOutcome {
  const members = readMembers(answer);
  const { code, said } = baseOf(members);
  if (!isSuccess(answer)) return judgeSubmitStatus(answer, said);
  if (members === undefined) return { kind: "unknown", why: "MiniMax answered with what is no JSON object" };
  const taskId = readId(members["task_id"]);
  if (code === 0 || code === undefined)
    return taskId === undefined
      ? { kind: "unknown", why: "MiniMax took the work and named no task" }
      : { kind: "accepted", taskId };
  const why = `MiniMax answered with code ${JSON.stringify(code)}: ${said}`;
  // A task beside an error: it may well be at work.
  if (taskId !== undefined) return { kind: "unknown", why };
  if (code === RATE_LIMIT) return { kind: "unavailable", why, retryAfterMs: answer.retryAfterMs };
  const reason = REASONS.get(code);
  return reason === undefined ? { kind: "unknown", why } : { kind: "refused", reason, why };
}

function readLook(answer: CloudAnswer): PollOutcome {
  const members = readMembers(answer);
  const { code, said } = baseOf(members);
  if (!isSuccess(answer)) return judgeLookStatus(answer, said);
  const status = members?.["status"];
  if (status === "Success") {
    const fileId = readId(members?.["file_id"]);
    if (fileId !== undefined) return { kind: "succeeded", result: fileId };
    return { kind: "unavailable", why: "MiniMax says that it succeeded and names no file" };
  }
  const reason = REASONS.get(code);
  if (status === "Fail" || reason === "policy")
    return { kind: "failed", reason: reason ?? "unknown", why: `MiniMax made no video: ${said}` };
  if (UNDER.has(status) && (code === 0 || code === undefined)) return { kind: "running" };
  return { kind: "unavailable", why: `MiniMax tells nothing of the task: ${said}` };
}

function readPlace(answer: CloudAnswer): ResultPlace {
  const members = readMembers(answer);
  const { said } = baseOf(members);
  if (!isSuccess(answer)) return judgePlaceStatus(answer, said);
  const url = membersAt(members, "file")["download_url"];
  if (typeof url === "string" && url !== "") return { kind: "url", url };
  return { kind: "unavailable", why: `MiniMax names no place of the file: ${said}` };
}

function baseOf(members: JsonObject | undefined): { readonly code: unknown; readonly said: string } {
  const base = membersAt(members, "base_resp");
  return { code: base["status_code"], said: words(base["status_msg"], "no words") };
}
