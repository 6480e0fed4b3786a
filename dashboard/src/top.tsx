import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { BoardLink, TopLine } from "../../src/contract/board.ts";
import { useBoard } from "./live/context.ts";
import type { LiveBoard } from "./live/live-board.ts";
import { formatCount, formatSeconds } from "./logic/format.ts";
import { placeHref, type View } from "./logic/route.ts";
import { markSeverity } from "./logic/tones.ts";
import { Shape, Signal, Text } from "./ui/marks.tsx";
import { Act } from "./ui/parts.tsx";

interface TopProps {
  readonly live: LiveBoard;
  readonly theme: string;
  readonly onTheme: () => void;
  /** Null: nobody has signed in, and nobody has to. */
  readonly onSignOut: (() => void) | null;
}

export function TopBar({ live, theme, onTheme, onSignOut }: TopProps): JSX.Element {
  const { state, who } = useBoard();
  const { cluster } = state;
  const to = theme === "dark" ? "light" : "dark";
  return (
    <header class="top">
      <span class="brand">
        <Signal tone={live.link.kind === "live" ? markSeverity(state.top.severity).tone : "unknown"} />
        Yardmaster
      </span>
      <LinkMark live={live} />
      <span class="quiet one-line about">
        {cluster.role === "leading"
          ? "leading"
          : cluster.leader === null
            ? "no leader"
            : `standby of ${cluster.leader.holder}`}
        {`, catalog ${formatCount(cluster.catalog.revision)}, ${cluster.version}`}
      </span>
      <div class="who">
        <span class="quiet one-line who-name">
          <Text text={who.keyId} max={40} /> ({who.role})
        </span>
        <button type="button" class="button is-small is-bare" onClick={onTheme} aria-label={`Show in ${to} colours`}>
          <ThemeShape />
        </button>
        {onSignOut !== null && (
          <button type="button" class="button is-small is-bare" onClick={onSignOut}>
            Sign out
          </button>
        )}
      </div>
    </header>
  );
}

const ThemeShape = (): JSX.Element => (
  <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
    <circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.6" />
    <path d="M8 1.8a6.2 6.2 0 0 1 0 12.4z" fill="currentColor" />
  </svg>
);

function LinkMark({ live }: { readonly live: LiveBoard }): JSX.Element {
  const { link } = live;
  if (link.kind === "lost")
    return (
      <span class="link-state ink-warn state is-warn">
        <Shape tone="warn" />
        {formatSeconds(link.ageS)} old
      </span>
    );
  return (
    <span class="link-state state is-good">
      <Shape tone="good" />
      live
    </span>
  );
}

/** Said when nothing comes: how old everything is, counted up, and that it is not what is so now. */
export function LostBanner({ live }: { readonly live: LiveBoard }): JSX.Element | null {
  const { link } = live;
  if (link.kind !== "lost") return null;
  return (
    <div class="lost" role="alert">
      <span>
        ▲ No news from the control plane. What you see is <span aria-live="off">{formatSeconds(link.ageS)}</span> old.
      </span>
      <button type="button" class="button is-small" onClick={() => live.retryNow()}>
        Try now
      </button>
    </div>
  );
}

const hrefOf = ({ view, id }: BoardLink): string => placeHref(view, id);

export function Sentence(): JSX.Element {
  const { live, state } = useBoard();
  const { top } = state;
  const { tone, word } = markSeverity(top.severity);
  const stale = live.link.kind !== "live";
  const shown = stale ? "unknown" : tone;
  const ground = shown === "info" ? "unknown" : shown;
  return (
    <section class={`sentence is-${ground}`} aria-label="State of the cluster">
      <Signal tone={shown} />
      <h1>
        <span class="unseen">{stale ? "old news: " : `${word}: `}</span>
        <Text text={top.sentence} max={600} />
      </h1>
      <Then top={top} />
    </section>
  );
}

/** What can be done about it, and what else there is. */
function Then({ top }: { readonly top: TopLine }): JSX.Element | null {
  const { action, others, more } = top;
  const held = useBoard().state.cluster.catalog.held;
  if (action === null && others.length === 0) return null;
  const doing = [action, ...others.map((other) => other.action)].find(
    (link) => link?.does === "restoredConfirm" || link?.does === "catalogConfirm",
  );
  return (
    <div class="then">
      {action !== null && (
        <a href={hrefOf(action)}>
          <Text text={action.words} max={120} /> →
        </a>
      )}
      {doing?.does === "restoredConfirm" && <Act action="restoredConfirm">Confirm what runs…</Act>}
      {doing?.does === "catalogConfirm" && held !== null && (
        <Act action="catalogConfirm" body={{ token: held.token }}>
          Put the change in force…
        </Act>
      )}
      {others.length > 0 && (
        <details>
          <summary>and {formatCount(others.length + more)} more</summary>
          <ul>
            {others.map((other) => (
              <li key={other.sentence}>
                <span class={`state is-${markSeverity(other.severity).tone}`}>
                  <Shape tone={markSeverity(other.severity).tone} />
                  <span class="unseen">{markSeverity(other.severity).word}: </span>
                </span>{" "}
                <Text text={other.sentence} max={400} />{" "}
                {other.action !== null && (
                  <a href={hrefOf(other.action)}>
                    <Text text={other.action.words} max={120} />
                  </a>
                )}
              </li>
            ))}
            {more > 0 && <li>and {formatCount(more)} that are not named here</li>}
          </ul>
        </details>
      )}
    </div>
  );
}

const NAMES: Readonly<Record<View, string>> = {
  fleet: "Fleet",
  models: "Models",
  queues: "Queues",
  jobs: "Jobs",
  overflow: "Overflow",
  events: "Events",
  usage: "Usage",
  try: "Try",
};

/** On a phone not all of them fit: the one that is open is brought into sight. */
export function Tabs({ view, views }: { readonly view: View; readonly views: readonly View[] }): JSX.Element {
  const nav = useRef<HTMLElement>(null);
  useLayoutEffect(
    () => nav.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" }),
    [view],
  );
  return (
    <nav class="tabs" aria-label="Views" ref={nav}>
      {views.map((name) => (
        <a key={name} href={placeHref(name)} {...(name === view ? { "aria-current": "page" } : {})}>
          {NAMES[name]}
        </a>
      ))}
    </nav>
  );
}
