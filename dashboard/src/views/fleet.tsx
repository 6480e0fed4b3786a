import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { ClusterState, GpuTile, NodeRow } from "../../../src/contract/board.ts";
import { useBoard } from "../live/context.ts";
import { nodeHeight, tilesPerLine } from "../logic/fleet-layout.ts";
import { formatCelsius, formatCount, formatMib, formatSeconds, formatShare, plural, UNKNOWN } from "../logic/format.ts";
import { type KeyedNode, listNodes } from "../logic/lists.ts";
import { placeHref } from "../logic/route.ts";
import { markNode, type Tone } from "../logic/tones.ts";
import { Bar, type BarPart } from "../ui/bar.tsx";
import { Shape, State, Text } from "../ui/marks.tsx";
import { Empty, SearchBox } from "../ui/parts.tsx";
import { Windowed } from "../ui/windowed.tsx";

export function Fleet({ item }: { readonly item: string | null }): JSX.Element {
  const { state } = useBoard();
  const [search, setSearch] = useState("");
  const { nodes, replicas } = state.revisions;
  const list = useMemo(() => listNodes(state, search), [state, nodes, replicas, search]);
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>
          {plural(state.tables.nodes.size, "node")}
          {search !== "" && <span class="quiet">, {formatCount(list.length)} shown</span>}
        </h2>
        <Capacity cluster={state.cluster} />
        <div class="filters">
          <SearchBox label="Find a node or model" value={search} onInput={setSearch} />
        </div>
      </div>
      <Windowed
        label="Nodes and their cards"
        kind="of-nodes"
        items={list}
        keyOf={({ key }) => key}
        heightOf={({ key }, width) => nodeHeight(state.tables.gpus.get(key)?.gpus.length ?? 0, width)}
        draw={(each, width) => <NodeLine each={each} width={width} isOpen={each.key === item} />}
        empty={<NoNodes search={search} />}
      />
    </section>
  );
}

const NoNodes = ({ search }: { readonly search: string }): JSX.Element =>
  search === "" ? (
    <Empty title="No node has enrolled yet">
      <p>A machine with GPUs joins with a one-time token:</p>
      <pre>yardmaster ctl nodes enrol NAME</pre>
    </Empty>
  ) : (
    <Empty title="No node fits what you look for">Clear the search to see all of them.</Empty>
  );

/** Cards by class: used, free, and what is neither. */
function Capacity({ cluster }: { readonly cluster: ClusterState }): JSX.Element {
  return (
    <ul class="capacity" aria-label="Cards in use by class">
      {cluster.capacity.map(({ class: name, cards, used, kept, free, sick, unknown }) => (
        <li key={name}>
          <Text text={name} max={24} /> <b>{formatCount(used)}</b> of {formatCount(cards)}
          <span class="wide-only"> used, {formatCount(free)} free</span>
          {kept > 0 && <span>, {formatCount(kept)} kept for a replacement</span>}
          {sick > 0 && <span class="ink-bad">, {formatCount(sick)} sick</span>}
          {unknown > 0 && <span class="wide-only">, {formatCount(unknown)} unknown</span>}
        </li>
      ))}
    </ul>
  );
}

/** The row of a node that did not change is not drawn again. */
function NodeLine({
  each,
  width,
  isOpen,
}: {
  readonly each: KeyedNode;
  readonly width: number;
  readonly isOpen: boolean;
}): JSX.Element {
  const { live, state } = useBoard();
  const { key, node } = each;
  const cards = state.tables.gpus.get(key);
  const perLine = tilesPerLine(width);
  const silent = node.silentSince === null ? null : Math.floor((live.now - node.silentSince) / 1_000);
  const drawn = useMemo(
    () => (
      <div class={`node ${isOpen ? "is-open" : ""}`}>
        <div class="node-name">
          <a class="one-line" href={placeHref("fleet", key)}>
            <Text text={node.name} max={80} />
          </a>
          <State mark={silentMark(node, silent)} />
          <NodeFigures node={node} />
        </div>
        {cards === undefined || cards.gpus.length === 0 ? (
          <NoCards node={node} />
        ) : (
          <div class={`tiles per-${perLine}`}>
            {cards.gpus.map((gpu) => (
              <Tile key={gpu.uuid} gpu={gpu} />
            ))}
          </div>
        )}
      </div>
    ),
    [node, cards, perLine, silent, isOpen],
  );
  return drawn;
}

function silentMark(node: NodeRow, silent: number | null): ReturnType<typeof markNode> {
  const mark = markNode(node);
  return silent === null || mark.tone !== "bad" ? mark : { ...mark, word: `${mark.word} for ${formatSeconds(silent)}` };
}

const NodeFigures = ({ node }: { readonly node: NodeRow }): JSX.Element => (
  <span class="quiet one-line">
    {plural(node.replicas, "replica")}, {node.inFlight === null ? UNKNOWN : formatCount(node.inFlight)} in flight
  </span>
);

/** None is a fact; not known is drawn as what nobody knows. */
const NoCards = ({ node }: { readonly node: NodeRow }): JSX.Element =>
  node.gpus === 0 ? (
    <p class="no-cards quiet">
      no GPU: {formatCount(node.cores)} cores, {formatMib(node.memory_mib)} of memory
    </p>
  ) : (
    <p class="no-cards is-unknown hatched">
      <span class="one-line">
        {UNKNOWN} <Text text={node.gpu_discovery ?? "its cards are not known now"} />
      </span>
    </p>
  );

const HEALTH: Readonly<Record<GpuTile["health"], Tone>> = { ok: "good", sick: "bad", unknown: "unknown" };

function memoryParts({ memoryMib, usedMib, foreignMib }: GpuTile): readonly BarPart[] | null {
  if (memoryMib === null || usedMib === null || memoryMib === 0) return null;
  const foreign = foreignMib ?? 0;
  return [
    { name: "own", share: Math.max(0, usedMib - foreign) / memoryMib },
    { name: "foreign", share: foreign / memoryMib },
  ];
}

const holders = ({ held, foreignMib }: GpuTile): string =>
  held.length > 0
    ? [...new Set(held.map(({ model }) => model))].join(", ")
    : foreignMib !== null && foreignMib > 0
      ? "processes that are not ours"
      : "free";

function Tile({ gpu }: { readonly gpu: GpuTile }): JSX.Element {
  const { index, class: name, health, why, memoryMib, usedMib, utilization, temperatureC } = gpu;
  const told = health === "ok" ? holders(gpu) : (why ?? (health === "sick" ? "sick" : "not known"));
  return (
    <div class={`tile is-${health} ${health === "unknown" ? "hatched" : ""}`}>
      <div class="tile-head">
        <span class="one-line">
          <b>{index}</b> <Text text={name} max={24} />
        </span>
        <span class={`state is-${HEALTH[health]}`}>
          <Shape tone={HEALTH[health]} />
          <span class={health === "ok" ? "unseen" : ""}>{health}</span>
        </span>
      </div>
      <Bar parts={memoryParts(gpu)} />
      <Bar slim parts={utilization === null ? null : [{ name: "busy", share: utilization }]} />
      <div
        class={`one-line ${health === "sick" ? "ink-bad" : gpu.held.length > 0 ? "tile-holder" : "quiet"}`}
        title={told}
      >
        <Text text={told} max={120} />
      </div>
      <div class="tile-figures">
        <span>
          {usedMib === null ? UNKNOWN : Math.round(usedMib / 1_024)}/
          {memoryMib === null ? UNKNOWN : Math.round(memoryMib / 1_024)} GiB
        </span>
        <span>
          <span class="unseen">busy </span>
          {formatShare(utilization)}
        </span>
        <span>{formatCelsius(temperatureC)}</span>
      </div>
    </div>
  );
}
