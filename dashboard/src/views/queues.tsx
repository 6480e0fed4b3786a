import type { JSX } from "preact";
import { useEffect, useMemo, useReducer, useState } from "preact/hooks";
import {
  BOARD_ROUTES,
  type Percentiles,
  type Plot as PlotData,
  type UpstreamRow,
} from "../../../src/contract/board.ts";
import { ask } from "../live/api.ts";
import { useBoard } from "../live/context.ts";
import { formatCount, formatMs, formatRate, formatSeconds, plural } from "../logic/format.ts";
import { listUpstreams } from "../logic/lists.ts";
import { PlotSeries, total } from "../logic/plot-series.ts";
import { byName, markUpstream } from "../logic/tones.ts";
import { State, Text } from "../ui/marks.tsx";
import { Plot } from "../ui/plot.tsx";
import { Empty, SearchBox } from "../ui/parts.tsx";
import { Windowed } from "../ui/windowed.tsx";

const WIDE = 900;
const HEIGHT_WIDE = 232;
const HEIGHT_NARROW = 362;
const NARROW = 480;
const HEIGHT_NARROWEST = 500;
const PLOT_HEIGHT = 172;
const CLASSES = ["interactive", "system", "batch"] as const;

const queueHeight = (width: number): number =>
  width < NARROW ? HEIGHT_NARROWEST : width < WIDE ? HEIGHT_NARROW : HEIGHT_WIDE;

export function Queues({ item, theme }: { readonly item: string | null; readonly theme: string }): JSX.Element {
  const { state } = useBoard();
  const [search, setSearch] = useState(item ?? "");
  useEffect(() => setSearch(item ?? ""), [item]);
  const list = useMemo(() => listUpstreams(state, search), [state, state.revisions.upstreams, search]);
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>{plural(state.tables.upstreams.size, "upstream")}</h2>
        <Legend />
        <Gateways />
        <div class="filters">
          <SearchBox label="Find an upstream" value={search} onInput={setSearch} />
        </div>
      </div>
      <Windowed
        label="Upstreams and their queues"
        kind="of-queues"
        spare={1}
        items={list}
        keyOf={({ id }) => id}
        heightOf={(_, width) => queueHeight(width)}
        draw={(upstream) => <Queue upstream={upstream} theme={theme} />}
        empty={<NoQueues search={search} tells={state.cluster.gatewaysTell} />}
      />
    </section>
  );
}

const NoQueues = ({ search, tells }: { readonly search: string; readonly tells: boolean }): JSX.Element =>
  search !== "" ? (
    <Empty title="No upstream fits what you look for">Clear the search to see all of them.</Empty>
  ) : tells ? (
    <Empty title="The gateways have no upstream">
      Models of the catalog appear here once a gateway knows a ready replica.
    </Empty>
  ) : (
    <Empty title="No gateway has told of its queues">
      Queues are the gateways' own. None is connected to this control plane, or those that are run an older version.
    </Empty>
  );

const Legend = (): JSX.Element => (
  <ul class="legend" aria-label="How the plots are drawn">
    {CLASSES.map((name) => (
      <li key={name}>
        <span class={`swatch ${name}`} aria-hidden="true" />
        {name}
      </li>
    ))}
    <li>
      <span class="swatch line-dashed" aria-hidden="true" />
      batch_max
    </li>
    <li>
      <span class="swatch line" aria-hidden="true" />
      slots
    </li>
  </ul>
);

function Gateways(): JSX.Element {
  const { live, state } = useBoard();
  const rows = [...state.tables.gateways.values()].toSorted((a, b) => byName(a.name, b.name));
  const silent = rows.filter((row) => row.silentSince !== null);
  const quiet = rows.filter((row) => !row.tells);
  return (
    <p class="quiet">
      {plural(rows.length, "gateway")}
      {silent.map((row) => (
        <span key={row.id} class="ink-warn">
          {" "}
          ▲ <Text text={row.name} max={60} /> silent for{" "}
          {formatSeconds((live.now - (row.silentSince ?? live.now)) / 1_000)}
        </span>
      ))}
      {quiet.length > 0 && `, ${formatCount(quiet.length)} of them tell nothing of queues`}
    </p>
  );
}

function Queue({ upstream, theme }: { readonly upstream: UpstreamRow; readonly theme: string }): JSX.Element {
  const { live, state } = useBoard();
  const { id } = upstream;
  const series = usePlot(id);
  const used = total(upstream.inUse);
  return (
    <article class="queue" aria-label={id.slice(0, 120)}>
      <div class="queue-head">
        <h3 class="one-line">
          <Text text={id} max={120} />
        </h3>
        <State mark={markUpstream(upstream)} />
        {upstream.away !== null && (
          <span class="one-line ink-bad">
            <Text text={upstream.away} />
          </span>
        )}
        <span class="quiet one-line">
          {formatCount(upstream.slots)} slots, batch_max {formatCount(upstream.batchMax)},{" "}
          <Text text={upstream.engine} max={40} />
          {upstream.sharing !== null && <Text text={`, shared by ${upstream.sharing}`} max={60} />}
        </span>
      </div>
      <Plot
        points={series.points}
        at={state.at}
        height={PLOT_HEIGHT}
        theme={theme}
        label={`Slots in use over the last 15 minutes; now ${used} of ${upstream.slots}: ${CLASSES.map((name) => `${upstream.inUse[name]} ${name}`).join(", ")}`}
      />
      <Figures upstream={upstream} waitedMs={waitedNow(upstream, live.now - state.at)} />
    </article>
  );
}

/** Who waits waits on while nothing is told. */
const waitedNow = ({ oldestWaitMs }: UpstreamRow, sinceMs: number): number | null =>
  oldestWaitMs === null ? null : oldestWaitMs + Math.max(0, sinceMs);

function Figures({
  upstream,
  waitedMs,
}: {
  readonly upstream: UpstreamRow;
  readonly waitedMs: number | null;
}): JSX.Element {
  const { inUse, waiting, queueMs, firstByteMs } = upstream;
  return (
    <div class="figures">
      <table>
        <thead>
          <tr>
            <th scope="col">class</th>
            <th scope="col" class="num">
              in use
            </th>
            <th scope="col" class="num">
              waiting
            </th>
          </tr>
        </thead>
        <tbody>
          {CLASSES.map((name) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="num">{formatCount(inUse[name])}</td>
              <td class={`num ${waiting[name] > 0 ? "ink-warn" : ""}`}>{formatCount(waiting[name])}</td>
            </tr>
          ))}
          <tr class="sum">
            <th scope="row">all</th>
            <td class="num">{formatCount(total(inUse))}</td>
            <td class="num">{formatCount(total(waiting))}</td>
          </tr>
        </tbody>
      </table>
      <table class="times">
        <thead>
          <tr>
            <th scope="col">last minute</th>
            <th scope="col" class="num">
              median
            </th>
            <th scope="col" class="num">
              p95
            </th>
          </tr>
        </thead>
        <tbody>
          <Times name="queue time" of={queueMs} />
          <Times name="first byte" of={firstByteMs} />
          <tr>
            <th scope="row">longest wait</th>
            <td colSpan={2} class={`num ${waitedMs === null ? "" : "ink-warn"}`}>
              {waitedMs === null ? "nobody waits" : formatMs(waitedMs)}
            </td>
          </tr>
          <tr>
            <th scope="row">ended</th>
            <td colSpan={2} class="num">
              {formatRate(upstream.perSecond, "/s")}
            </td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}

const Times = ({ name, of }: { readonly name: string; readonly of: Percentiles }): JSX.Element => (
  <tr>
    <th scope="row">{name}</th>
    <td class="num">{formatMs(of.p50)}</td>
    <td class="num">{formatMs(of.p95)}</td>
  </tr>
);

/** What the server remembers of it is asked for once, and then its rows go on. */
function usePlot(id: string): PlotSeries {
  const { live, state } = useBoard();
  const [, again] = useReducer((count: number) => count + 1, 0);
  const known = live.plots.get(id);
  const series = useMemo(() => {
    if (known !== undefined) return known;
    const made = new PlotSeries();
    live.plots.set(id, made);
    const row = state.tables.upstreams.get(id);
    if (row !== undefined) made.takeRow(state.at, row);
    return made;
  }, [id, known]);
  useEffect(() => {
    if (known !== undefined) return undefined;
    const gone = new AbortController();
    const path = `${BOARD_ROUTES.plot}?${new URLSearchParams({ upstream: id }).toString()}`;
    void ask<PlotData>("GET", path, null, gone.signal).then((result) => {
      if (result.kind !== "done") return;
      series.takePlot(result.body);
      again(null);
    });
    return () => gone.abort();
  }, [id]);
  return series;
}
