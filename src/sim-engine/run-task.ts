import { jsonHeaders, typedHeaders, type Call } from "./call.ts";
import type { WorkRequest } from "./engine-core.ts";
import { ENGINE_DEAD, errorBody } from "./error-bodies.ts";
import type { EngineParts } from "./generate.ts";
import type { MediaRequest } from "./media.ts";
import type { PoolingRequest } from "./pooling.ts";

interface TaskListener {
  tokens(from: number, count: number): void;
  ended(): void;
}

/** A piece of work in queue and slot that has no chat stream: vectors, scores, sound and pictures. */
function submit(
  parts: EngineParts,
  call: Call,
  request: Pick<WorkRequest, "promptText" | "promptTokens" | "outputTokens">,
  listener: TaskListener,
): void {
  const { action, record } = call;
  const hang = action.hangAfterHead === true || action.hangNoHead === true;
  const firstDelayMs = hang ? Number.POSITIVE_INFINITY : action.delayFirstMs;
  const work = parts.core.submit(
    {
      ...request,
      priority: 0,
      finish: "stop",
      choices: 1,
      ...(firstDelayMs === undefined ? {} : { firstDelayMs }),
      ...(action.delayBetweenMs === undefined ? {} : { gapMs: action.delayBetweenMs }),
    },
    {
      queued: () => record.queued(),
      started: () => record.slotTaken(),
      tokens: (from, count) => {
        record.entry.tokens += count;
        listener.tokens(from, count);
      },
      ended: () => {
        record.left();
        listener.ended();
      },
      failed: () => {
        record.left();
        call.markFailed();
        if (call.dialect === "vllm" && !call.headSent) call.json(500, errorBody(call.dialect, ENGINE_DEAD, false));
        else call.sink.cut("fin");
      },
    },
  );
  call.whenLost(() => {
    if (call.dialect === "llama.cpp") return;
    work.leave();
    record.left();
  });
}

export function runPooling(parts: EngineParts, call: Call, request: PoolingRequest, id: string): void {
  submit(
    parts,
    call,
    { promptText: request.promptText, promptTokens: request.promptTokens, outputTokens: 0 },
    {
      tokens: () => {},
      ended: () => call.json(200, request.answer(id, Math.floor(parts.clock.wall() / 1_000), parts.model)),
    },
  );
}

export function runMedia(parts: EngineParts, call: Call, request: MediaRequest): void {
  const headers =
    request.type === undefined ? jsonHeaders(call.dialect, 200) : typedHeaders(call.dialect, request.type);
  submit(parts, call, request, {
    tokens: (from, count) => {
      if (!request.stream) return;
      call.head(200, headers, undefined);
      for (let index = from; index < from + count; index += 1) {
        const piece = request.piece(index);
        if (piece.length > 0) call.write(piece);
      }
    },
    ended: () => {
      if (!request.stream) {
        call.reply(200, headers, request.whole(Math.floor(parts.clock.wall() / 1_000)));
        return;
      }
      call.head(200, headers, undefined);
      const tail = request.tail();
      if (tail !== "") call.write(tail);
      call.end();
    },
  });
}
