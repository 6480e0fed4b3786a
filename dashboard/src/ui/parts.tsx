import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { BoardAction } from "../../../src/contract/board.ts";
import { type ApiResult, sayFailure } from "../live/api.ts";
import { useBoard, useMay } from "../live/context.ts";
import type { Intent } from "../logic/describe-action.ts";
import { placeHref, type View } from "../logic/route.ts";
import { Text } from "./marks.tsx";

/** One name and what is known of it, by line. */
export const Facts = ({
  facts,
}: {
  readonly facts: readonly (readonly [string, ComponentChildren])[];
}): JSX.Element => (
  <dl class="facts">
    {facts.map(([name, value]) => (
      <>
        <dt key={`${name}-name`}>{name}</dt>
        <dd key={name}>{value}</dd>
      </>
    ))}
  </dl>
);

export const Empty = ({
  title,
  children,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
}): JSX.Element => (
  <div class="empty">
    <h3>{title}</h3>
    <div class="quiet">{children}</div>
  </div>
);

interface ActProps {
  readonly action: BoardAction;
  readonly target?: Intent["target"];
  readonly body?: Readonly<Record<string, unknown>>;
  readonly facts?: Readonly<Record<string, string>>;
  readonly children: ComponentChildren;
}

/** A button that asks for a confirmation; nothing where the role may not do it. */
export function Act({ action, target = {}, body, facts = {}, children }: ActProps): JSX.Element | null {
  const { intend } = useBoard();
  const may = useMay();
  if (!may(action)) return null;
  const intent = { action, target, facts, ...(body === undefined ? {} : { body }) };
  return (
    <button type="button" class="button is-small" data-action={action} onClick={() => intend(intent)}>
      {children}
    </button>
  );
}

/** What is looked at beside its list. Where it opens, the keyboard is there. */
export function Detail({
  title,
  view,
  children,
}: {
  readonly title: JSX.Element;
  readonly view: View;
  readonly children: ComponentChildren;
}): JSX.Element {
  const head = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => head.current?.focus(), []);
  return (
    <div class="detail-body">
      <div class="detail-head">
        <h2 tabIndex={-1} ref={head}>
          {title}
        </h2>
        <a class="button is-small" href={placeHref(view)}>
          Close
        </a>
      </div>
      {children}
    </div>
  );
}

/** What is fetched when it is looked at; again when `key` is another one. */
export function useRead<T>(key: string, load: (signal: AbortSignal) => Promise<ApiResult<T>>): ApiResult<T> | null {
  const [result, setResult] = useState<{ readonly key: string; readonly result: ApiResult<T> } | null>(null);
  useEffect(() => {
    const gone = new AbortController();
    void load(gone.signal).then((got) => {
      if (!gone.signal.aborted) setResult({ key, result: got });
    });
    return () => gone.abort();
  }, [key]);
  return result === null || result.key !== key ? null : result.result;
}

/** The three faces of what is fetched: on its way, refused, there. */
export function Fetched<T>({
  result,
  draw,
}: {
  readonly result: ApiResult<T> | null;
  readonly draw: (body: T) => ComponentChildren;
}): JSX.Element {
  if (result === null) return <p class="quiet">Loading…</p>;
  if (result.kind !== "done")
    return (
      <p class="notice is-bad">
        <Text text={sayFailure(result)} max={1_000} />
      </p>
    );
  return <>{draw(result.body)}</>;
}

export const SearchBox = ({
  label,
  value,
  onInput,
}: {
  readonly label: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
}): JSX.Element => (
  <input
    class="input"
    type="search"
    aria-label={label}
    placeholder={label}
    value={value}
    maxLength={200}
    onInput={(event) => onInput(event.currentTarget.value)}
  />
);
