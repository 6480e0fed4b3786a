import type { ProviderSettings } from "../../../contract/provider-settings.ts";
import { isJsonObject, type JsonObject } from "../../http/token-usage.ts";
import { words } from "../../http/words.ts";
import {
  get,
  isSuccess,
  judgeLookStatus,
  judgeSubmitStatus,
  membersAt,
  NO_CANCELLATION,
  postJson,
  readErrorStatus,
  readId,
  readMembers,
  type CloudAnswer,
  type CloudPlan,
  type CloudProtocol,
} from "./cloud-call.ts";
import type { PollOutcome, ProviderWork, SubmitOutcome } from "./provider-work.ts";
import { pick, readVideoWork, type VideoLengths } from "./video-work.ts";

// The second of MiniMax's two video APIs, for its newest model: a task's look names the video's address.

/** Models that only this API has. */
export const TASK_MODELS: ReadonlySet<string> = new Set(["MiniMax-H3"]);
const LENGTHS: VideoLengths = {
  usual: 6,
  fits: (seconds) => seconds >= 4 && seconds <= 15,
  words: "MiniMax makes videos of 4 to 15 seconds",
};
const UNDER: ReadonlySet<unknown> = new Set(["queued", "running", "preparing", "processing", "submitted", "pending"]);

export function minimaxTasks(settings: ProviderSettings): CloudProtocol {
  return {
    plan: (work) => plan(settings, work),
    readSubmission,
    look: (taskId) => get(`/v2/query/video_generation/${encodeURIComponent(taskId)}`),
    readLook,
    place: (url) => ({ kind: "url", url }),
    ...NO_CANCELLATION,
  };
}

function plan({ model, price }: ProviderSettings, work: ProviderWork): CloudPlan {
  const video = readVideoWork(work.body, price, LENGTHS);
  if (video.kind === "unfit") return video;
  const { asked, prompt, seconds, quote } = video;
  const media = Array.isArray(asked["content"]) ? asked["content"].filter(isMedium) : [];
  const body = {
    ...pick(asked, ["resolution", "ratio"]),
    model: model ?? asked["model"],
    content: [{ type: "text", text: prompt }, ...media],
    duration: seconds,
  };
  return { kind: "ok", call: postJson("/v2/video_generation", body), quote };
}

const isMedium = (item: unknown): boolean => isJsonObject(item) && item["type"] !== "text";

function readSubmission(answer: CloudAnswer): SubmitOutcome {
  const members = readMembers(answer);
  const error = errorOf(members);
  if (!isSuccess(answer)) return judgeSubmitStatus(answer, error?.said ?? "no words");
  const taskId = readId(members?.["task_id"]);
  if (error === undefined)
    return taskId === undefined
      ? { kind: "unknown", why: "MiniMax took the work and named no task" }
      : { kind: "accepted", taskId };
  // An error with status 200 names the status that it would have had.
  if (taskId === undefined && error.status !== undefined)
    return judgeSubmitStatus({ ...answer, status: error.status }, error.said);
  return { kind: "unknown", why: `MiniMax answered with an error: ${error.said}` };
}

function readLook(answer: CloudAnswer): PollOutcome {
  const members = readMembers(answer);
  const error = errorOf(members);
  if (!isSuccess(answer)) return judgeLookStatus(answer, error?.said ?? "no words");
  const task = membersAt(members, "task");
  const { status } = task;
  if (status === "succeeded") {
    const { url } = membersAt(task, "content");
    if (typeof url === "string" && url !== "") return { kind: "succeeded", result: url };
    return { kind: "unavailable", why: "MiniMax says that it succeeded and names no video" };
  }
  if (status === "failed" || status === "cancelled" || status === "expired") {
    const said = words(membersAt(task, "error")["message"], "no words");
    return { kind: "failed", reason: "unknown", why: `MiniMax made no video: ${said}` };
  }
  if (UNDER.has(status)) return { kind: "running" };
  return { kind: "unavailable", why: `MiniMax tells nothing of the task: ${error?.said ?? "no words"}` };
}

function errorOf(
  members: JsonObject | undefined,
): { readonly said: string; readonly status: number | undefined } | undefined {
  const error = members?.["error"];
  if (!isJsonObject(error)) return undefined;
  return { said: words(error["message"], "no words"), status: readErrorStatus(error["http_code"]) };
}
