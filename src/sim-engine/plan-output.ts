import { isArray, isObject, textOf, type Json, type JsonObject } from "./json.ts";
import type { FinishReason } from "./engine-core.ts";
import { hashText, mix, outputWord, outputWordJson } from "./token-text.ts";

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly fragments: readonly string[];
}

/** Everything that an answer will say, known before the first token. */
export interface OutputPlan {
  /** Tokens of one choice. */
  readonly tokens: number;
  readonly finish: FinishReason;
  /** The stop string that ended the text. */
  readonly stopReason: string | null;
  readonly tool: ToolCall | undefined;
  piece(choice: number, index: number): string;
  /** The piece as a JSON string, quotes included. */
  pieceJson(choice: number, index: number): string;
  text(choice: number): string;
}

export interface PlanInput {
  readonly seed: number;
  readonly promptText: string;
  readonly maxTokens: number | undefined;
  /** Used when the request names no limit. */
  readonly naturalTokensMax: number;
  readonly stop: readonly string[];
  readonly tools: readonly Json[];
  readonly toolChoice: Json | undefined;
  /** Ends the answer by itself after so many tokens, whatever the request says. */
  readonly forcedTokens?: number;
}

/** Stop strings are looked for in this much of an answer; beyond it generation runs to its limit. */
const STOP_SCAN_TOKENS_MAX = 10_000;

export function planOutput(input: PlanInput): OutputPlan {
  const key = hashText(input.promptText, input.seed);
  const tool = planToolCall(input, key);
  if (tool !== undefined) return toolPlan(tool);

  const natural = Math.min(input.naturalTokensMax, 16 + (key % Math.max(1, input.naturalTokensMax - 16)));
  const limit = input.forcedTokens ?? input.maxTokens ?? natural;
  const byLength = input.forcedTokens === undefined && input.maxTokens !== undefined;
  const keyOf = (choice: number): number => (choice === 0 ? key : mix(key, choice));
  const stopped = input.stop.length === 0 ? undefined : findStop(key, limit, input.stop);
  const tokens = stopped?.tokens ?? limit;
  const piece = (choice: number, index: number): string =>
    stopped !== undefined && choice === 0 && index === tokens - 1
      ? stopped.lastPiece
      : outputWord(keyOf(choice), index);
  return {
    tokens,
    finish: stopped === undefined && byLength ? "length" : "stop",
    stopReason: stopped?.stop ?? null,
    tool: undefined,
    piece,
    pieceJson: (choice, index) =>
      stopped === undefined ? outputWordJson(keyOf(choice), index) : JSON.stringify(piece(choice, index)),
    text: (choice) => Array.from({ length: tokens }, (_, index) => piece(choice, index)).join(""),
  };
}

function findStop(
  key: number,
  limit: number,
  stops: readonly string[],
): { tokens: number; lastPiece: string; stop: string } | undefined {
  let text = "";
  for (let index = 0; index < Math.min(limit, STOP_SCAN_TOKENS_MAX); index += 1) {
    const before = text.length;
    text += outputWord(key, index);
    for (const stop of stops) {
      const at = stop === "" ? -1 : text.indexOf(stop, Math.max(0, before - stop.length));
      // A stop string that began in an earlier piece has been sent in part already, as engines without a hold-back do.
      if (at >= 0) return { tokens: index + 1, lastPiece: text.slice(before, Math.max(before, at)), stop };
    }
  }
  return undefined;
}

function toolPlan(tool: ToolCall): OutputPlan {
  const piece = (_choice: number, index: number): string => tool.fragments[index] ?? "";
  return {
    tokens: tool.fragments.length,
    finish: "tool_calls",
    stopReason: null,
    tool,
    piece,
    pieceJson: (choice, index) => JSON.stringify(piece(choice, index)),
    text: () => tool.fragments.join(""),
  };
}

/** A call of one of the offered tools, unless the request forbids it. */
function planToolCall(input: PlanInput, key: number): ToolCall | undefined {
  if (input.tools.length === 0 || input.toolChoice === "none" || input.forcedTokens !== undefined) return undefined;
  const functions = input.tools.filter(isObject).map((tool) => (isObject(tool["function"]) ? tool["function"] : tool));
  const wanted = isObject(input.toolChoice)
    ? (isObject(input.toolChoice["function"]) ? input.toolChoice["function"] : input.toolChoice)["name"]
    : undefined;
  const chosen = functions.find((tool) => tool["name"] === wanted) ?? functions[key % Math.max(1, functions.length)];
  if (chosen === undefined) return undefined;
  const schema = chosen["parameters"] ?? chosen["input_schema"];
  const text = JSON.stringify(sampleOf(isObject(schema) ? schema : { type: "object" }, key, 0));
  const fragments = text.match(/[\s\S]{1,6}/g) ?? [];
  return { id: key.toString(16).padStart(8, "0"), name: textOf(chosen["name"]) ?? "tool", fragments };
}

const DEPTH_MAX = 5;

/** A value that fits the schema's plain parts: types, enums, properties and items. */
function sampleOf(schema: JsonObject, key: number, depth: number): Json {
  const choices = schema["enum"];
  if (isArray(choices) && choices.length > 0) return choices[key % choices.length] ?? null;
  switch (schema["type"]) {
    case "object": {
      const properties =
        isObject(schema["properties"]) && depth < DEPTH_MAX ? Object.entries(schema["properties"]) : [];
      return Object.fromEntries(
        properties.map(([name, of], index) => [name, sampleOf(isObject(of) ? of : {}, mix(key, index), depth + 1)]),
      );
    }
    case "array":
      return isObject(schema["items"]) && depth < DEPTH_MAX ? [sampleOf(schema["items"], mix(key, 1), depth + 1)] : [];
    case "integer":
    case "number":
      return key % 100;
    case "boolean":
      return key % 2 === 0;
    case "null":
      return null;
    default:
      return outputWord(key, 0).trim();
  }
}
