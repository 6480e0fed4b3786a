import OpenAI, { toFile } from "openai";
import { systemClock } from "../../../src/kernel/clock.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { aChat } from "./jobs.ts";

export const ENDPOINT = "/v1/chat/completions";

/** What the official client is told of a gateway. */
export const aClient = (port: number, apiKey: string): OpenAI =>
  new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey, maxRetries: 0 });

export const customId = (index: number): string => `line-${String(index).padStart(5, "0")}`;

/** A line of an input for the simulated engine. `change` is laid over it. */
export const aLine = (
  id: string,
  sim: Readonly<Record<string, unknown>> = {},
  change: Readonly<Record<string, unknown>> = {},
): string => JSON.stringify({ custom_id: id, method: "POST", url: ENDPOINT, body: aChat(sim, "batch"), ...change });

export const manyLines = (
  count: number,
  sim: (index: number) => Readonly<Record<string, unknown>> = () => ({}),
): string => Array.from({ length: count }, (_, index) => `${aLine(customId(index), sim(index))}\n`).join("");

export async function upload(client: OpenAI, text: string | Buffer, name = "in.jsonl"): Promise<OpenAI.FileObject> {
  return client.files.create({ file: await toFile(Buffer.from(text), name), purpose: "batch" });
}

type Window = OpenAI.BatchCreateParams["completion_window"];

/** `window`: what the API's own types do not know, the gateway takes too. */
export async function submit(
  client: OpenAI,
  text: string,
  { window = "24h", ...more }: Partial<Omit<OpenAI.BatchCreateParams, "completion_window">> & { window?: string } = {},
): Promise<OpenAI.Batch> {
  const { id } = await upload(client, text);
  return client.batches.create({
    input_file_id: id,
    endpoint: ENDPOINT,
    completion_window: window as Window,
    ...more,
  });
}

const LOOK_MS = 100;
const OVER: readonly string[] = ["completed", "failed", "expired", "cancelled"];

/** The batch once it is over. A gateway may be away for a moment. */
export const over = (client: OpenAI, id: string, msMax = 60_000): Promise<OpenAI.Batch> =>
  until(client, id, ({ status }) => OVER.includes(status), msMax);

export async function until(
  client: OpenAI,
  id: string,
  holds: (batch: OpenAI.Batch) => boolean,
  msMax = 60_000,
): Promise<OpenAI.Batch> {
  const found = await eventually(
    `a word of batch ${id}`,
    async () => {
      // Each look is a whole request.
      await systemClock.sleep(LOOK_MS, new AbortController().signal);
      return client.batches.retrieve(id).catch(() => null);
    },
    (batch) => batch !== null && holds(batch),
    msMax,
  );
  if (found === null) throw new Error(`there is no word of batch ${id}`);
  return found;
}

export interface OutputLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: { readonly [name: string]: unknown };
  } | null;
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** The lines of a file of a batch; none where it has no such file. */
export async function linesOf(client: OpenAI, fileId: string | null | undefined): Promise<OutputLine[]> {
  if (fileId === null || fileId === undefined) return [];
  const text = await (await client.files.content(fileId)).text();
  if (!text.endsWith("\n")) throw new Error("the file does not end with a line's end");
  return text
    .slice(0, -1)
    .split("\n")
    .map((line) => JSON.parse(line) as OutputLine);
}
