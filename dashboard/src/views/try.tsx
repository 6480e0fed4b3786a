import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { tryModel } from "../live/try-model.ts";
import { useBoard, useMay } from "../live/context.ts";
import type { BoardState } from "../logic/board-state.ts";
import { formatCount, formatMs, formatRate, UNKNOWN } from "../logic/format.ts";
import { plainLines } from "../logic/plain-text.ts";
import { byName } from "../logic/tones.ts";
import { NEW_TRIAL, takeTryEvent, type Trial } from "../logic/trial.ts";
import { Text } from "../ui/marks.tsx";
import { Empty, Facts } from "../ui/parts.tsx";

const TOKENS_USUAL = 256;
const TOKENS_MAX = 4_096;

export function TryModel({ item }: { readonly item: string | null }): JSX.Element {
  const { trial, ask, stop } = useTrial();
  const may = useMay();
  if (!may("try"))
    return (
      <section class="pane list">
        <Empty title="Your role may not send requests">Sign in with another key to try a model.</Empty>
      </section>
    );
  const busy = trial !== null && (trial.state === "asking" || trial.state === "answering");
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>Try a model</h2>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="A prompt and its answer">
        <div class="try">
          <TryForm item={item} busy={busy} onAsk={ask} onStop={stop} />
          <Answer trial={trial} />
        </div>
      </div>
    </section>
  );
}

interface Asked {
  readonly model: string;
  readonly prompt: string;
  readonly maxTokens: number;
  readonly key: string;
}

function useTrial(): { readonly trial: Trial | null; readonly ask: (asked: Asked) => void; readonly stop: () => void } {
  const [trial, setTrial] = useState<Trial | null>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const ask = ({ model, prompt, maxTokens, key }: Asked): void => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    setTrial(NEW_TRIAL);
    const body = { model, prompt, maxTokens, ...(key === "" ? {} : { key }) };
    void tryModel(body, own.signal, (event) => {
      if (!own.signal.aborted) setTrial((before) => takeTryEvent(before ?? NEW_TRIAL, event));
    });
  };
  const stop = (): void => {
    running.current?.abort();
    setTrial((before) => (before === null ? null : { ...before, state: "stopped" }));
  };
  return { trial, ask, stop };
}

interface FormProps {
  readonly item: string | null;
  readonly busy: boolean;
  readonly onAsk: (asked: Asked) => void;
  readonly onStop: () => void;
}

const namesOf = ({ tables: { models, upstreams } }: BoardState): readonly string[] =>
  [...new Set([...models.keys(), ...[...upstreams.values()].flatMap((row) => row.models)])].toSorted(byName);

function TryForm({ item, busy, onAsk, onStop }: FormProps): JSX.Element {
  const { state } = useBoard();
  const names = namesOf(state);
  const [model, setModel] = useState(item ?? "");
  const [prompt, setPrompt] = useState("Say hello.");
  const [tokens, setTokens] = useState(TOKENS_USUAL);
  const [key, setKey] = useState("");
  const chosen = model === "" ? (names[0] ?? "") : model;
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    if (chosen !== "" && prompt !== "")
      onAsk({ model: chosen, prompt, maxTokens: Math.max(1, Math.min(TOKENS_MAX, tokens || TOKENS_USUAL)), key });
  };
  return (
    <form class="try-form" onSubmit={submit}>
      <label class="field">
        <span>Model</span>
        <input
          class="input"
          list="try-models"
          value={chosen}
          maxLength={300}
          required
          onInput={(event) => setModel(event.currentTarget.value)}
        />
        <Names names={names} />
      </label>
      <label class="field">
        <span>Prompt</span>
        <textarea
          class="input"
          value={prompt}
          maxLength={20_000}
          required
          onInput={(event) => setPrompt(event.currentTarget.value)}
        />
      </label>
      <label class="field">
        <span>At most so many tokens</span>
        <input
          class="input"
          type="number"
          min={1}
          max={TOKENS_MAX}
          value={tokens}
          onInput={(event) => setTokens(event.currentTarget.valueAsNumber)}
        />
      </label>
      <label class="field">
        <span>A client's key that it counts for (optional)</span>
        <input
          class="input"
          type="password"
          autocomplete="off"
          value={key}
          maxLength={300}
          onInput={(event) => setKey(event.currentTarget.value)}
        />
      </label>
      <div class="buttons">
        <button type="submit" class="button is-primary" disabled={busy}>
          {busy ? "Answering…" : "Ask"}
        </button>
        {busy && <Stop onStop={onStop} />}
      </div>
    </form>
  );
}

const Names = ({ names }: { readonly names: readonly string[] }): JSX.Element => (
  <datalist id="try-models">
    {names.slice(0, 500).map((name) => (
      <option key={name} value={name} />
    ))}
  </datalist>
);

const Stop = ({ onStop }: Pick<FormProps, "onStop">): JSX.Element => (
  <button type="button" class="button" onClick={onStop}>
    Stop
  </button>
);

const WORDS: Readonly<Record<Trial["state"], string>> = {
  asking: "Waiting for a slot…",
  answering: "Answering…",
  done: "Finished.",
  failed: "It failed.",
  stopped: "You stopped it.",
};

function Answer({ trial }: { readonly trial: Trial | null }): JSX.Element {
  if (trial === null)
    return (
      <div class="answer">
        <Empty title="The answer appears here">
          With how long it waited, when its first byte came, and how fast it ran.
        </Empty>
      </div>
    );
  return (
    <div class="answer">
      <dl class="big-figures">
        <div>
          <dt>queue time</dt>
          <dd>{formatMs(trial.queueMs)}</dd>
        </div>
        <div>
          <dt>first byte</dt>
          <dd>{formatMs(trial.firstByteMs)}</dd>
        </div>
        <div>
          <dt>speed</dt>
          <dd>{formatRate(trial.tokensPerSecond, "tokens/s")}</dd>
        </div>
      </dl>
      <p role="status">
        {WORDS[trial.state]} {trial.finish !== null && <Text text={`(${trial.finish})`} max={40} />}
      </p>
      {trial.failure !== null && (
        <p class="notice is-bad">
          <Text text={trial.failure} max={2_000} />
        </p>
      )}
      {trial.thinking !== "" && (
        <details>
          <summary>What it thought</summary>
          <pre class="answer-text quiet">{plainLines(trial.thinking, 200_000)}</pre>
        </details>
      )}
      <pre class="answer-text" data-answer tabIndex={0} role="region" aria-label="Answer">
        {plainLines(trial.text, 200_000)}
      </pre>
      <Facts
        facts={[
          ["tokens", `${formatCount(trial.promptTokens)} in, ${formatCount(trial.completionTokens)} out`],
          ["whole time", formatMs(trial.totalMs)],
          ["endpoint", <Text key="e" text={trial.endpoint ?? UNKNOWN} />],
          ["request", <Text key="r" text={trial.requestId ?? UNKNOWN} />],
        ]}
      />
    </div>
  );
}
