import type { ProviderSettings } from "../../../contract/provider-settings.ts";
import type { CloudProtocol } from "../../../decide/overflow/providers/cloud-call.ts";
import { httpTemplate } from "../../../decide/overflow/providers/http-template.ts";
import { kling } from "../../../decide/overflow/providers/kling.ts";
import { minimaxTasks, TASK_MODELS } from "../../../decide/overflow/providers/minimax-tasks.ts";
import { minimaxFiles } from "../../../decide/overflow/providers/minimax.ts";
import { openai } from "../../../decide/overflow/providers/openai.ts";
import { assertNever } from "../../../kernel/assert-never.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { CloudProvider } from "./cloud-provider.ts";
import { klingToken } from "./kling-token.ts";
import type { Provider } from "./provider.ts";

/** The adapter of a tier. It keeps nothing between two calls, so a changed configuration just makes another one. */
export function makeProvider(settings: ProviderSettings, clock: Clock): Provider {
  return new CloudProvider(settings, protocolOf(settings), {
    clock,
    authorize: () => authorization(settings, clock),
  });
}

/** Two tiers or two configurations of one with the same place know the same tasks by the same ids. */
export function placeOf({ kind, baseUrl, model }: ProviderSettings): string {
  const dialect = kind === "minimax" && TASK_MODELS.has(model ?? "") ? "minimax-tasks" : kind;
  return `${dialect} ${baseUrl}`;
}

function protocolOf(settings: ProviderSettings): CloudProtocol {
  switch (settings.kind) {
    case "minimax":
      return TASK_MODELS.has(settings.model ?? "") ? minimaxTasks(settings) : minimaxFiles(settings);
    case "kling":
      return kling(settings);
    case "openai":
      return openai(settings);
    case "http":
      if (settings.template === null) throw new Error("a place that is described by configuration has a description");
      return httpTemplate(settings, settings.template);
    default:
      return assertNever(settings.kind, "provider");
  }
}

function authorization({ kind, key, signingKey }: ProviderSettings, clock: Clock): string | null {
  if (key === null) return null;
  if (kind !== "kling") return `Bearer ${key.reveal()}`;
  return signingKey === null ? null : `Bearer ${klingToken(key, signingKey, clock.wall())}`;
}
