import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { act, type ApiResult, sayFailure } from "../live/api.ts";
import { describeAction, type Intent, requestOf } from "../logic/describe-action.ts";
import type { BoardState } from "../logic/board-state.ts";
import { Text } from "./marks.tsx";

interface ConfirmProps {
  readonly intent: Intent;
  readonly state: BoardState;
  readonly onClose: () => void;
}

/** Says what will happen before it does, with the numbers of this moment, and afterwards what came of it. */
export function Confirm({ intent, state, onClose }: ConfirmProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState<ApiResult<unknown> | null>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const { title, effects, button, danger } = describeAction(state, intent);
  const doIt = async (): Promise<void> => {
    setBusy(true);
    const answer = await act(requestOf(intent));
    setBusy(false);
    setResult(answer);
  };
  const done = result?.kind === "done";
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="confirm-title">
      <div class="dialog">
        <h2 id="confirm-title">
          <Text text={title} />
        </h2>
        <ul class="effects">
          {effects.map((effect) => (
            <li key={effect}>
              <Text text={effect} max={600} />
            </li>
          ))}
        </ul>
        <div role="status">
          {result !== null && result.kind !== "done" && (
            <p class="notice is-bad">
              <Text text={sayFailure(result)} max={1_000} />
            </p>
          )}
          {done && <p class="notice is-good">Done. {sayDone(result.body)}</p>}
        </div>
        <div class="buttons">
          <button type="button" class="button" onClick={() => dialog.current?.close()} autofocus>
            {done ? "Close" : "Leave it"}
          </button>
          {!done && (
            <button
              type="button"
              class={`button ${danger ? "is-danger" : "is-primary"}`}
              disabled={busy}
              onClick={() => void doIt()}
            >
              {busy ? "Asking…" : button}
            </button>
          )}
        </div>
      </div>
    </dialog>
  );
}

/** What the answer tells beyond "done". */
function sayDone(body: unknown): string {
  const { replicas, restart } = (body ?? {}) as { replicas?: unknown; restart?: unknown };
  if (Array.isArray(replicas)) return `${replicas.length} replicas are asked to restart.`;
  if (typeof restart === "string") return `Its restart is ${restart}.`;
  return "It shows here within a second.";
}
