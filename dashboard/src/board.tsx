import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Who } from "../../src/contract/board.ts";
import { BoardProvider, useUpdates } from "./live/context.ts";
import { LiveBoard } from "./live/live-board.ts";
import type { Intent } from "./logic/describe-action.ts";
import { type Place, readPlace, type View, viewsOf } from "./logic/route.ts";
import { markSeverity } from "./logic/tones.ts";
import { LostBanner, Sentence, Tabs, TopBar } from "./top.tsx";
import { Confirm } from "./ui/confirm.tsx";
import { Signal } from "./ui/marks.tsx";
import { keepTheme, keptTheme, showTheme, systemTheme, type Theme } from "./ui/theme.ts";
import { Events } from "./views/events.tsx";
import { Fleet } from "./views/fleet.tsx";
import { JobDetail } from "./views/job-detail.tsx";
import { Jobs } from "./views/jobs.tsx";
import { ModelDetail } from "./views/model-detail.tsx";
import { Models } from "./views/models.tsx";
import { NodeDetail } from "./views/node-detail.tsx";
import { Overflow } from "./views/overflow.tsx";
import { Queues } from "./views/queues.tsx";
import { TryModel } from "./views/try.tsx";
import { Usage } from "./views/usage.tsx";

interface BoardProps {
  readonly who: Who;
  readonly onSignedOut: (why: string | null) => void;
  readonly onSignOut: () => void;
}

export function Board({ who, onSignedOut, onSignOut }: BoardProps): JSX.Element {
  const [live, setLive] = useState<LiveBoard | null>(null);
  const [intent, setIntent] = useState<Intent | null>(null);
  const [theme, setTheme] = useTheme();
  const place = usePlace(viewsOf(who.role));
  useEffect(() => {
    const made = new LiveBoard(() => onSignedOut("UNAUTHORIZED: the session has ended"));
    setLive(made);
    return () => made.stop();
  }, []);
  useUpdates(live);
  const state = live?.state ?? null;
  const shared = useMemo(
    () => (live === null || state === null ? null : { live, state, who, intend: setIntent }),
    [live, state, who],
  );
  useTitle(state === null ? null : markSeverity(state.top.severity).word, live?.link.kind === "lost");
  if (live === null || state === null || shared === null) return <Opening />;
  return (
    // A new object each time: what stands in the state has changed although the state is the same.
    <BoardProvider value={{ ...shared }}>
      <div class={`shell ${live.link.kind === "lost" ? "is-stale" : ""}`} data-at={state.at}>
        <TopBar live={live} theme={theme} onTheme={setTheme} onSignOut={who.signedIn ? onSignOut : null} />
        <div>
          <LostBanner live={live} />
          <Sentence />
        </div>
        <Tabs view={place.view} views={viewsOf(who.role)} />
        <main class={`main ${hasDetail(place) ? "has-item" : ""}`}>
          <List place={place} theme={theme} />
          {hasDetail(place) && (
            <aside class="detail" aria-label="Details">
              <ItemDetail place={place} />
            </aside>
          )}
        </main>
      </div>
      {intent !== null && <Confirm intent={intent} state={state} onClose={() => setIntent(null)} />}
    </BoardProvider>
  );
}

const Opening = (): JSX.Element => (
  <main class="sign-in" aria-busy="true">
    <h1>
      <Signal tone="unknown" />
      Yardmaster
    </h1>
    <p role="status">Waiting for the control plane…</p>
  </main>
);

const DETAILS: ReadonlySet<string> = new Set(["fleet", "models", "jobs"]);
const hasDetail = ({ view, item }: Place): boolean => item !== null && DETAILS.has(view);

function List({ place: { view, item }, theme }: { readonly place: Place; readonly theme: string }): JSX.Element {
  switch (view) {
    case "fleet":
      return <Fleet item={item} />;
    case "models":
      return <Models item={item} />;
    case "queues":
      return <Queues item={item} theme={theme} />;
    case "jobs":
      return <Jobs item={item} />;
    case "overflow":
      return <Overflow />;
    case "events":
      return <Events />;
    case "usage":
      return <Usage />;
    case "try":
      return <TryModel key={item} item={item} />;
  }
}

function ItemDetail({ place: { view, item } }: { readonly place: Place }): JSX.Element | null {
  if (item === null) return null;
  if (view === "fleet") return <NodeDetail key={item} id={item} />;
  if (view === "models") return <ModelDetail key={item} name={item} />;
  return <JobDetail key={item} id={item} />;
}

function usePlace(views: readonly View[]): Place {
  const [place, setPlace] = useState(() => readPlace(location.hash));
  useEffect(() => {
    const look = (): void => setPlace(readPlace(location.hash));
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return views.includes(place.view) ? place : { view: views[0] ?? place.view, item: null };
}

function useTheme(): readonly [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(() => keptTheme() ?? systemTheme());
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: light)");
    const look = (): void => {
      if (keptTheme() !== null) return;
      showTheme(systemTheme());
      setTheme(systemTheme());
    };
    system.addEventListener("change", look);
    return () => system.removeEventListener("change", look);
  }, []);
  const turn = (): void => {
    const next = theme === "dark" ? "light" : "dark";
    keepTheme(next);
    showTheme(next);
    setTheme(next);
  };
  return [theme, turn];
}

/** A tab in the background says how it stands as well. */
function useTitle(word: string | null, lost: boolean): void {
  useEffect(() => {
    document.title = word === null ? "Yardmaster" : lost ? "no news · Yardmaster" : `${word} · Yardmaster`;
  }, [word, lost]);
}
