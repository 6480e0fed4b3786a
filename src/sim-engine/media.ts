import { hashText, mix, outputWord, tokenCount } from "./token-text.ts";
import { countOf, textOf, type Json, type JsonObject } from "./json.ts";
import type { MultipartForm } from "./multipart.ts";

/** A piece of work whose answer is not text tokens of a chat. */
export interface MediaRequest {
  readonly stream: boolean;
  readonly promptText: string;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Content type of the answer; undefined for the engine's own JSON. */
  readonly type: string | undefined;
  /** What token `index` adds to a streamed body. */
  piece(index: number): string | Buffer;
  tail(): string;
  whole(createdS: number): string | Buffer;
}

/** Bytes of sound for one token of text. */
const SOUND_BYTES = 480;
/** Bytes of sound for one word of transcript. */
const BYTES_PER_WORD = 4_000;
const WORDS_MAX = 2_000;
/** Steps of a picture, in the place of output tokens. */
const IMAGE_STEPS = 20;
// A single grey pixel.
const PNG_BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==";

const AUDIO_TYPES: Readonly<Record<string, string>> = {
  mp3: "audio/mpeg",
  opus: "audio/ogg",
  aac: "audio/aac",
  flac: "audio/flac",
  wav: "audio/wav",
  pcm: "audio/pcm",
};

export function speech(body: JsonObject): MediaRequest {
  const text = textOf(body["input"]) ?? "";
  const format = textOf(body["response_format"]) ?? "mp3";
  const key = hashText(text, 3);
  const sse = body["stream_format"] === "sse";
  const sound = (index: number): Buffer =>
    Buffer.from(Array.from({ length: SOUND_BYTES }, (_, at) => mix(key + index, at) % 256));
  const tokens = Math.max(1, tokenCount(text));
  return {
    stream: true,
    promptText: text,
    promptTokens: tokens,
    outputTokens: tokens,
    type: sse ? "text/event-stream; charset=utf-8" : (AUDIO_TYPES[format] ?? "application/octet-stream"),
    piece: (index) =>
      sse
        ? `data: ${JSON.stringify({ type: "speech.audio.delta", audio: sound(index).toString("base64") })}\n\n`
        : sound(index),
    tail: () =>
      sse
        ? `data: ${JSON.stringify({ type: "speech.audio.done", usage: { input_tokens: tokens, output_tokens: tokens, total_tokens: tokens * 2 } })}\n\n`
        : "",
    whole: () => "",
  };
}

export function transcription(form: MultipartForm): MediaRequest {
  const bytes = form.files.get("file") ?? 0;
  const words = Math.min(WORDS_MAX, Math.max(1, Math.ceil(bytes / BYTES_PER_WORD)));
  const text = Array.from({ length: words }, (_, index) => outputWord(bytes, index)).join("");
  const seconds = Math.ceil(bytes / 32_000);
  const format = form.fields.get("response_format") ?? "json";
  const usage: Json = { type: "duration", seconds };
  return {
    stream: form.fields.get("stream") === "true",
    promptText: form.fields.get("prompt") ?? "",
    promptTokens: Math.max(1, Math.ceil(bytes / 640)),
    outputTokens: words,
    type:
      form.fields.get("stream") === "true"
        ? "text/event-stream; charset=utf-8"
        : format === "json" || format === "verbose_json"
          ? undefined
          : "text/plain; charset=utf-8",
    piece: (index) => `data: ${JSON.stringify({ type: "transcript.text.delta", delta: outputWord(bytes, index) })}\n\n`,
    tail: () => `data: ${JSON.stringify({ type: "transcript.text.done", text, usage })}\n\ndata: [DONE]\n\n`,
    whole: () => transcriptAs(format, text, seconds, usage),
  };
}

function transcriptAs(format: string, text: string, seconds: number, usage: Json): string {
  const end = `00:00:${String(Math.min(59, seconds)).padStart(2, "0")}`;
  switch (format) {
    case "text":
      return `${text}\n`;
    case "srt":
      return `1\n00:00:00,000 --> ${end},000\n${text}\n\n`;
    case "vtt":
      return `WEBVTT\n\n00:00:00.000 --> ${end}.000\n${text}\n\n`;
    case "verbose_json":
      return JSON.stringify({ task: "transcribe", language: "en", duration: seconds, text, segments: [], usage });
    default:
      return JSON.stringify({ text, usage });
  }
}

export function image(body: JsonObject): MediaRequest {
  const prompt = textOf(body["prompt"]) ?? "";
  const count = countOf(body["n"], 1, 10) ?? 1;
  const stream = body["stream"] === true;
  return {
    stream,
    promptText: prompt,
    promptTokens: Math.max(1, tokenCount(prompt)),
    outputTokens: IMAGE_STEPS,
    type: stream ? "text/event-stream; charset=utf-8" : undefined,
    piece: (index) =>
      index % 10 === 9 && index < IMAGE_STEPS - 1
        ? `event: image_generation.partial_image\ndata: ${JSON.stringify({ type: "image_generation.partial_image", partial_image_index: Math.floor(index / 10), b64_json: PNG_BASE64 })}\n\n`
        : "",
    tail: () =>
      `event: image_generation.completed\ndata: ${JSON.stringify({ type: "image_generation.completed", b64_json: PNG_BASE64 })}\n\n`,
    whole: (createdS) =>
      JSON.stringify({
        created: createdS,
        data: Array.from({ length: count }, () => ({ b64_json: PNG_BASE64 })),
        size: textOf(body["size"]) ?? "1024x1024",
      }),
  };
}
