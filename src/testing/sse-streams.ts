import fc from "fast-check";

// Event streams as engines send them, in many shapes, and a slow, plain reading of them, to hold the fast one against.

export interface StreamReading {
  readonly finishSeen: boolean;
  readonly finishReason: string | undefined;
  readonly errorSeen: boolean;
  readonly doneSeen: boolean;
  readonly usage: {
    readonly prompt: number | null;
    readonly completion: number | null;
    readonly cached: number | null;
  };
  readonly contentSeen: boolean;
  readonly lastSequenceNumber: number | undefined;
  readonly atBoundary: boolean;
  /** Whole events with data. */
  readonly events: number;
}

interface PlainEvent {
  readonly name: string;
  readonly data: string;
}

/** Splits as the standard says. The rest that is no whole event yet is told apart from comments. */
export function splitEvents(bytes: Buffer): { readonly events: readonly PlainEvent[]; readonly atBoundary: boolean } {
  const lines = bytes
    .toString("latin1")
    .replace(/^\xEF\xBB\xBF/, "")
    .split(/\r\n|\n|\r/);
  const rest = lines.pop() ?? "";
  const events: PlainEvent[] = [];
  let fields: [string, string][] = [];
  for (const line of lines) {
    if (line === "") {
      const data = fields.filter(([name]) => name === "data").map(([, value]) => value);
      const name = fields.findLast(([field]) => field === "event")?.[1] ?? "";
      if (data.length > 0) events.push({ name, data: data.join("\n") });
      fields = [];
    } else if (!line.startsWith(":")) {
      const colon = line.indexOf(":");
      fields.push(colon === -1 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")]);
    }
  }
  return { events, atBoundary: fields.length === 0 && rest === "" };
}

function parsed(data: string): unknown {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === "object" && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The value at a path of keys, `undefined` where there is none. */
function at(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (inner, key) => (typeof inner === "object" && inner !== null ? (inner as Record<string, unknown>)[key] : undefined),
    value,
  );
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const words = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);
const number = (value: unknown): number | null => (typeof value === "number" ? value : null);

const ENDS = [
  "response.completed",
  "response.incomplete",
  "message_stop",
  "speech.audio.done",
  "transcript.text.done",
  "image_generation.completed",
];

/** Reads every event, one after the other. */
export function readStreamPlainly(bytes: Buffer): StreamReading {
  const { events, atBoundary } = splitEvents(bytes);
  const bodies = events.map(({ data }) => parsed(data));
  const reasons = bodies.flatMap((body) => [
    ...list(at(body, "choices")).map((choice) => words(at(choice, "finish_reason"))),
    ...(at(body, "type") === "message_delta" ? [words(at(body, "delta", "stop_reason"))] : []),
  ]);
  const given = reasons.filter((reason) => reason !== undefined);
  const types = bodies.map((body) => at(body, "type"));
  const numbers = bodies.map((body) => at(body, "sequence_number")).filter((value) => typeof value === "number");
  return {
    finishSeen: given.length > 0 || types.some((type) => typeof type === "string" && ENDS.includes(type)),
    finishReason: given[given.length - 1],
    errorSeen: events.some(
      ({ name }, index) =>
        name === "error" ||
        ["error", "response.failed"].includes(String(types[index])) ||
        at(bodies[index], "error", "message") !== undefined,
    ),
    doneSeen: events.some(({ data }) => data === "[DONE]"),
    usage: usageOf(bodies),
    contentSeen: bodies.length >= 32 || bodies.some(hasContent),
    lastSequenceNumber: numbers[numbers.length - 1],
    atBoundary,
    events: events.length,
  };
}

function usageOf(bodies: readonly unknown[]): StreamReading["usage"] {
  let usage: StreamReading["usage"] = { prompt: null, completion: null, cached: null };
  for (const body of bodies) {
    const type = at(body, "type");
    const said =
      type === "message_start" ? at(body, "message", "usage") : (at(body, "usage") ?? at(body, "response", "usage"));
    if (typeof said !== "object" || said === null) continue;
    const read = {
      prompt: number(at(said, "prompt_tokens")) ?? number(at(said, "input_tokens")),
      completion: number(at(said, "completion_tokens")) ?? number(at(said, "output_tokens")),
      cached:
        number(at(said, "prompt_tokens_details", "cached_tokens")) ??
        number(at(said, "input_tokens_details", "cached_tokens")),
    };
    const isPart = type === "message_start" || type === "message_delta";
    usage = isPart
      ? {
          prompt: read.prompt ?? usage.prompt,
          completion: read.completion ?? usage.completion,
          cached: read.cached ?? usage.cached,
        }
      : read;
  }
  return usage;
}

function hasContent(body: unknown): boolean {
  const type = String(at(body, "type"));
  return (
    list(at(body, "choices")).some((choice) => words(at(choice, "text")) ?? words(at(choice, "delta", "content"))) ||
    type.endsWith(".delta") ||
    ["content_block_delta", "transcript.text.done", "image_generation.completed"].includes(type)
  );
}

// Shapes

const HOSTILE = [
  '"finish_reason":"stop"',
  ',"error":{"message":"x"}',
  '"error"',
  "error",
  "usage",
  '"usage":{"prompt_tokens":9}',
  "data: [DONE]\n\n",
  "[DONE]",
  " [DONE]",
  "event: error\ndata: {}\n\n",
  "\r\n\r\n: error",
  "response.completed",
  "message_stop",
  '\\"',
  "読み🙂",
  "\u0000\u001b[31m",
  "finish_reason",
];
const anyText = (): fc.Arbitrary<string> =>
  fc.oneof(fc.constantFrom(...HOSTILE), fc.string({ unit: "binary", maxLength: 12 }), fc.constant(""));
const anyCount = (): fc.Arbitrary<number> => fc.nat(100_000);

interface Told {
  readonly name?: string;
  readonly json?: unknown;
  readonly raw?: string;
  readonly comment?: string;
}

const anyComment = (): fc.Arbitrary<Told> =>
  fc.constantFrom({ comment: " ping" }, { comment: "" }, { comment: ' {"error":{"message":"x"}}' }, { raw: "" });

const chatEvent = (delta: unknown, reason: string | null, extra: object): Told => ({
  json: {
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }],
    ...extra,
  },
});

const anyChatEvent = (): fc.Arbitrary<Told> =>
  fc.oneof(
    { weight: 12, arbitrary: anyText().map((content) => chatEvent({ content }, null, {})) },
    {
      weight: 3,
      arbitrary: anyText().map((content) => ({
        json: { choices: [{ finish_reason: null, index: 1, delta: { content } }], usage: null, model: "m" },
      })),
    },
    {
      weight: 2,
      arbitrary: anyText().map((text) => ({
        json: { choices: [{ text, index: 0, logprobs: null, finish_reason: null }] },
      })),
    },
    {
      weight: 2,
      arbitrary: fc.constantFrom("stop", "length", "tool_calls", "abort").map((reason) => chatEvent({}, reason, {})),
    },
    {
      weight: 1,
      arbitrary: fc.constant({
        json: {
          choices: [
            { finish_reason: "stop", index: 0, delta: {} },
            { finish_reason: null, index: 1, delta: {} },
          ],
        },
      }),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom("", "usage", "error").map((value) => ({
        json: { choices: [{ index: 0, delta: { role: value }, finish_reason: "" }], error: null },
      })),
    },
    {
      weight: 1,
      arbitrary: anyCount().map((prompt_tokens) => ({
        json: {
          choices: [],
          usage: { prompt_tokens, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 1 } },
        },
      })),
    },
    {
      weight: 2,
      arbitrary: anyCount().map((completion_tokens) =>
        chatEvent({ content: "x" }, null, { usage: { prompt_tokens: 7, completion_tokens } }),
      ),
    },
    {
      weight: 1,
      arbitrary: fc.constant({
        json: {
          choices: [{ index: 0, delta: { role: "usage" }, finish_reason: null }],
          nested: { usage: { prompt_tokens: 1 }, error: { message: "no" } },
        },
      }),
    },
    {
      weight: 1,
      arbitrary: fc.constant({ json: { error: { message: "EngineCore", type: "InternalServerError", code: 500 } } }),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        { name: "error", raw: "data: plain words" },
        { raw: "data: not json" },
        { raw: "id: 7" },
        { raw: "data" },
        { raw: "retry: 5\ndata: []" },
      ),
    },
    { weight: 1, arbitrary: fc.constantFrom({ raw: "data: [DONE]" }, { raw: "data:[DONE]" }) },
    { weight: 2, arbitrary: anyComment() },
  );

const typed = (type: string, rest: object): Told => ({ name: type, json: { type, ...rest } });

const anyMessagesEvent = (): fc.Arbitrary<Told> =>
  fc.oneof(
    {
      weight: 10,
      arbitrary: anyText().map((text) =>
        typed("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
      ),
    },
    { weight: 1, arbitrary: fc.constant(typed("ping", {})) },
    {
      weight: 1,
      arbitrary: anyCount().map((input_tokens) =>
        typed("message_start", { message: { stop_reason: null, usage: { input_tokens, output_tokens: 0 } } }),
      ),
    },
    {
      weight: 1,
      arbitrary: anyCount().map((output_tokens) =>
        typed("message_delta", { delta: { stop_reason: "end_turn" }, usage: { output_tokens } }),
      ),
    },
    { weight: 1, arbitrary: fc.constant(typed("message_stop", {})) },
    { weight: 1, arbitrary: fc.constant(typed("error", { error: { type: "overloaded_error", message: "busy" } })) },
    { weight: 1, arbitrary: anyComment() },
  );

const anyResponsesEvents = (): fc.Arbitrary<Told[]> =>
  fc
    .array(
      fc.oneof(
        { weight: 10, arbitrary: anyText().map((delta) => typed("response.output_text.delta", { delta })) },
        { weight: 1, arbitrary: anyText().map((text) => typed("response.output_text.done", { text })) },
        {
          weight: 1,
          arbitrary: fc.constant(
            typed("response.created", { response: { status: "in_progress", error: null, usage: null } }),
          ),
        },
        {
          weight: 1,
          arbitrary: fc
            .tuple(fc.constantFrom("response.completed", "response.incomplete"), anyCount(), anyText())
            .map(([type, input_tokens, text]) =>
              typed(type, {
                response: {
                  error: null,
                  output: [{ content: [{ text }] }],
                  usage: { input_tokens, input_tokens_details: { cached_tokens: 2 }, output_tokens: 5 },
                },
              }),
            ),
        },
        {
          weight: 1,
          arbitrary: fc.constant(
            typed("response.failed", { response: { error: { code: "server_error", message: "died" } } }),
          ),
        },
        { weight: 1, arbitrary: fc.constant(typed("error", { code: "x", message: "y" })) },
      ),
      { maxLength: 30 },
    )
    .map((events) =>
      events.map((event, index) => ({ ...event, json: { ...(event.json as object), sequence_number: index * 3 } })),
    );

const anyMediaEvent = (): fc.Arbitrary<Told> =>
  fc.oneof(
    { weight: 4, arbitrary: anyText().map((audio) => ({ json: { type: "speech.audio.delta", audio } })) },
    {
      weight: 1,
      arbitrary: anyCount().map((input_tokens) => ({
        json: { type: "speech.audio.done", usage: { input_tokens, output_tokens: 4 } },
      })),
    },
    { weight: 1, arbitrary: anyText().map((text) => ({ json: { type: "transcript.text.done", text } })) },
    { weight: 1, arbitrary: anyText().map((b64_json) => ({ json: { type: "image_generation.completed", b64_json } })) },
  );

interface Writing {
  readonly space: boolean;
  readonly pretty: boolean;
  readonly spaced: boolean;
}

function eventLines(told: Told, { space, pretty, spaced }: Writing): string[] {
  if (told.comment !== undefined) return [`:${told.comment}`];
  const blank = space ? " " : "";
  const head = told.name === undefined ? [] : [`event:${blank}${told.name}`];
  if (told.raw !== undefined) return [...head, ...told.raw.split("\n")];
  const text = pretty ? JSON.stringify(told.json, null, 1) : JSON.stringify(told.json);
  // Python's habit of a blank behind colons and commas, made where it can't touch a string.
  const wide = spaced && !pretty ? JSON.stringify(told.json, null, 1).replaceAll(/\n */g, " ") : text;
  return [...head, ...wide.split("\n").map((line) => `data:${blank}${line}`)];
}

const anyLineEnd = (): fc.Arbitrary<readonly string[]> =>
  fc.constantFrom<readonly string[]>(["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]);

/** A stream of one of the formats, cut at any byte. `cuts` are places to segment it at. */
export const anyStream = (): fc.Arbitrary<{ readonly bytes: Buffer; readonly cuts: readonly number[] }> =>
  fc
    .record({
      events: fc.oneof(
        { weight: 4, arbitrary: fc.array(anyChatEvent(), { maxLength: 40 }) },
        { weight: 1, arbitrary: fc.array(anyMessagesEvent(), { maxLength: 30 }) },
        { weight: 1, arbitrary: anyResponsesEvents() },
        { weight: 1, arbitrary: fc.array(anyMediaEvent(), { maxLength: 20 }) },
      ),
      writing: fc.array(
        fc.record({
          space: fc.boolean(),
          pretty: fc.integer({ min: 0, max: 9 }).map((n) => n === 0),
          spaced: fc.boolean(),
        }),
        { minLength: 1, maxLength: 5 },
      ),
      ends: anyLineEnd(),
      endChoice: fc.array(fc.nat(2), { minLength: 1, maxLength: 20 }),
      mark: fc.integer({ min: 0, max: 7 }).map((n) => n === 0),
      lost: fc.oneof(fc.constant(0), fc.nat(60)),
      cuts: fc.oneof(
        fc.constant<number[]>([]),
        fc.array(fc.nat(20_000), { maxLength: 30 }),
        fc.constant("each" as const),
      ),
    })
    .map(({ events, writing, ends, endChoice, mark, lost, cuts }) => {
      let line = 0;
      let previous = "";
      const lineOf = (text: string): string => {
        const chosen = ends[(endChoice[line++ % endChoice.length] ?? 0) % ends.length] ?? "\n";
        // A blank line's LF behind a CR would only be the CR's second half.
        const end = text === "" && previous === "\r" && chosen === "\n" ? "\r" : chosen;
        previous = end;
        return text + end;
      };
      const parts = events.map((told, index) =>
        [...eventLines(told, writing[index % writing.length] ?? { space: true, pretty: false, spaced: false }), ""]
          .map(lineOf)
          .join(""),
      );
      const whole = Buffer.from((mark ? "\uFEFF" : "") + parts.join(""), "utf8");
      const bytes = whole.subarray(0, Math.max(0, whole.length - lost));
      const places =
        cuts === "each"
          ? Array.from(bytes, (_, index) => index)
          : cuts.filter((cut) => cut < bytes.length).toSorted((a, b) => a - b);
      return { bytes, cuts: places };
    });

/** Hands the stream over in its segments, each inside a larger buffer, as reads from a socket are. */
export function inSegments(
  bytes: Buffer,
  cuts: readonly number[],
  take: (buffer: Buffer, start: number, end: number) => void,
): void {
  const bounds = [0, ...cuts, bytes.length];
  for (let index = 1; index < bounds.length; index++) {
    const segment = bytes.subarray(bounds[index - 1], bounds[index]);
    if (segment.length === 0) continue;
    const buffer = Buffer.concat([Buffer.from('"error"\n\n'), segment, Buffer.from('\n\ndata: {"usage":{}}\n\n')]);
    take(buffer, 9, 9 + segment.length);
    buffer.fill(0x78);
  }
}
