import type { ProviderSettings } from "../../../contract/provider-settings.ts";
import { isJsonObject } from "../../http/token-usage.ts";
import { words } from "../../http/words.ts";
import {
  get,
  isSuccess,
  judgeLookStatus,
  judgeSubmitStatus,
  membersAt,
  NO_CANCELLATION,
  postJson,
  readId,
  readMembers,
  type CloudAnswer,
  type CloudCall,
  type CloudPlan,
  type CloudProtocol,
} from "./cloud-call.ts";
import type { PollOutcome, ProviderWork, SubmitOutcome } from "./provider-work.ts";
import { pick, readVideoWork, type VideoLengths } from "./video-work.ts";

const LENGTHS: VideoLengths = {
  usual: 5,
  fits: (seconds) => seconds === 5 || seconds === 10,
  words: "Kling makes videos of 5 or 10 seconds",
};
const OPTIONS = ["negative_prompt", "mode", "aspect_ratio", "cfg_scale", "image", "image_tail"];
const UNDER: ReadonlySet<unknown> = new Set(["submitted", "processing"]);
const TEXT = "/v1/videos/text2video";
const IMAGE = "/v1/videos/image2video";

/** A task is asked for under the path that made it, so its id is kept as `text2video/ID`. */
export function kling(settings: ProviderSettings): CloudProtocol {
  return {
    plan: (work) => plan(settings, work),
    readSubmission,
    look,
    readLook,
    place: (url) => ({ kind: "url", url }),
    ...NO_CANCELLATION,
  };
}

/** The claims of a token, which is signed with HS256; seconds since 1970. The begin lies back for a clock that is ahead of Kling's. */
export const klingClaims = (accessKey: string, nowS: number): Record<string, string | number> => ({
  iss: accessKey,
  exp: nowS + 1_800,
  nbf: nowS - 5,
});

function look(taskId: string): CloudCall {
  const [, kind = "text2video", id = taskId] = /^(text2video|image2video)\/(.*)$/.exec(taskId) ?? [];
  return get(`/v1/videos/${kind}/${encodeURIComponent(id)}`);
}

function plan({ model, price }: ProviderSettings, work: ProviderWork): CloudPlan {
  const video = readVideoWork(work.body, price, LENGTHS);
  if (video.kind === "unfit") return video;
  const { asked, prompt, seconds, quote } = video;
  const body = {
    ...pick(asked, OPTIONS),
    model_name: model ?? asked["model_name"] ?? asked["model"],
    prompt,
    duration: String(seconds),
    external_task_id: work.idempotencyKey,
  };
  const path = typeof asked["image"] === "string" ? IMAGE : TEXT;
  return { kind: "ok", call: postJson(path, body), quote };
}

function readSubmission(answer: CloudAnswer, call: CloudCall): SubmitOutcome {
  const members = readMembers(answer);
  const code = members?.["code"];
  const said = words(members?.["message"], "no words");
  if (code === 0 && isSuccess(answer)) {
    const id = readId(membersAt(members, "data")["task_id"]);
    if (id === undefined) return { kind: "unknown", why: "Kling took the work and named no task" };
    return { kind: "accepted", taskId: `${call.path === IMAGE ? "image2video" : "text2video"}/${id}` };
  }
  const judged = judgeCode(code, `Kling answered with code ${JSON.stringify(code)}: ${said}`, answer);
  if (judged !== undefined) return judged;
  return isSuccess(answer)
    ? { kind: "unknown", why: `Kling answered ${answer.status} and did not say that it took the work: ${said}` }
    : judgeSubmitStatus(answer, said);
}

/** By Kling's own codes, which say more than the status that comes with them. */
function judgeCode(code: unknown, why: string, answer: CloudAnswer): SubmitOutcome | undefined {
  if (typeof code !== "number") return undefined;
  if (code >= 1000 && code <= 1004) return { kind: "refused", reason: "auth", why };
  // Account, arrears, used-up pack: status 429 like a limit of the rate, but no waiting helps.
  if (code >= 1100 && code <= 1102) return { kind: "refused", reason: "quota", why };
  if (code === 1302 || code === 1303) return { kind: "unavailable", why, retryAfterMs: answer.retryAfterMs };
  return undefined;
}

function readLook(answer: CloudAnswer): PollOutcome {
  const members = readMembers(answer);
  const said = words(members?.["message"], "no words");
  if (!isSuccess(answer)) return judgeLookStatus(answer, said);
  if (members?.["code"] !== 0)
    return { kind: "unavailable", why: `Kling tells nothing of the task: ${said}`, retryAfterMs: answer.retryAfterMs };
  const data = membersAt(members, "data");
  const status = data["task_status"];
  if (UNDER.has(status)) return { kind: "running" };
  if (status === "failed") {
    const reason = words(data["task_status_msg"], "no words");
    return { kind: "failed", reason: "unknown", why: `Kling made no video: ${reason}` };
  }
  if (status !== "succeed") return { kind: "unavailable", why: "Kling tells no state of the task" };
  const { videos } = membersAt(data, "task_result");
  const first: unknown = Array.isArray(videos) ? videos[0] : undefined;
  const url = isJsonObject(first) ? first["url"] : undefined;
  if (typeof url === "string" && url !== "") return { kind: "succeeded", result: url };
  return { kind: "unavailable", why: "Kling says that it succeeded and names no video" };
}
