import { viewPath, type OutputFile } from "../../../decide/facades/comfyui/prompt-pages.ts";
import { headerValue } from "../../calls/answer-headers.ts";
import type { UpstreamFailure } from "../../upstream/port.ts";
import type { ComfySite } from "./comfy-site.ts";

export type Outputs =
  | { readonly kind: "whole"; readonly contentType: string; readonly chunks: readonly Buffer[] }
  | { readonly kind: "failed"; readonly failure: UpstreamFailure; readonly why: string };

/** Of all files of a workflow together. */
const OUTPUT_BYTES_MAX = 256 * 1024 * 1024;
const FILE_MS_MAX = 120_000;

interface Fetched extends OutputFile {
  readonly contentType: string;
  readonly chunks: readonly Buffer[];
}

/**
 * What a workflow gave, as one body: the one file as it is; several in a list, each in the form that a job's parts have; without
 * a file, what its nodes told.
 */
export async function fetchOutputs(
  site: ComfySite,
  files: readonly OutputFile[],
  outputs: string,
  signal: AbortSignal,
): Promise<Outputs> {
  if (files.length === 0) return { kind: "whole", contentType: "application/json", chunks: [Buffer.from(outputs)] };
  const fetched: Fetched[] = [];
  let bytes = 0;
  for (const file of files) {
    const ask = {
      method: "GET",
      path: viewPath(file),
      bytesMax: OUTPUT_BYTES_MAX - bytes,
      timeoutMs: FILE_MS_MAX,
    } as const;
    const reply = await site.ask(ask, signal);
    if (reply.kind === "failed") {
      const tooLarge = reply.failure === "tooLarge";
      const why = tooLarge ? `the outputs are larger than ${OUTPUT_BYTES_MAX} bytes` : reply.message;
      return { kind: "failed", failure: tooLarge ? "protocol" : "reset", why: `an output can't be had: ${why}` };
    }
    const { status, rawHeaders } = reply.head;
    if (status !== 200)
      return { kind: "failed", failure: "reset", why: `an output can't be had: ComfyUI answers ${status}` };
    bytes += reply.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const contentType = headerValue(rawHeaders, "content-type") ?? "application/octet-stream";
    fetched.push({ ...file, contentType, chunks: reply.chunks });
  }
  const [first] = fetched;
  if (fetched.length === 1 && first !== undefined)
    return { kind: "whole", contentType: first.contentType, chunks: first.chunks };
  return { kind: "whole", contentType: "application/json", chunks: listOf(fetched) };
}

function listOf(files: readonly Fetched[]): Buffer[] {
  const chunks: Buffer[] = [Buffer.from('{"object":"list","data":[')];
  for (const [index, { node, filename, contentType, chunks: bytes }] of files.entries()) {
    const head = JSON.stringify({ index, node, filename, content_type: contentType }).slice(0, -1);
    const body = Buffer.concat(bytes).toString("base64");
    chunks.push(Buffer.from(`${index === 0 ? "" : ","}${head},"body_base64":"${body}"}`));
  }
  chunks.push(Buffer.from("]}"));
  return chunks;
}
