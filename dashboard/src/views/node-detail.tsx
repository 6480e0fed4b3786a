import type { JSX } from "preact";
import type { GpuTile, NodeRow } from "../../../src/contract/board.ts";
import { useBoard } from "../live/context.ts";
import { formatCelsius, formatCount, formatMib, formatSeconds, formatShare, UNKNOWN } from "../logic/format.ts";
import { placeHref } from "../logic/route.ts";
import { markNode, markReplica } from "../logic/tones.ts";
import { State, Text } from "../ui/marks.tsx";
import { NodeWeights } from "./node-weights.tsx";
import { Act, Detail, Facts } from "../ui/parts.tsx";

export function NodeDetail({ id }: { readonly id: string }): JSX.Element {
  const { nodes, gpus } = useBoard().state.tables;
  const node = nodes.get(id);
  if (node === undefined)
    return (
      <Detail view="fleet" title={<Text text={id} />}>
        <p class="quiet">There is no such node now. It may have been removed.</p>
      </Detail>
    );
  const target = { node: node.name };
  return (
    <Detail view="fleet" title={<Text text={node.name} />}>
      <State mark={markNode(node)} />
      <div class="buttons">
        {!node.draining && (
          <Act action="drain" target={target}>
            Drain…
          </Act>
        )}
        {node.cordoned || node.draining ? (
          <Act action="uncordon" target={target}>
            Uncordon…
          </Act>
        ) : (
          <Act action="cordon" target={target}>
            Cordon…
          </Act>
        )}
        <Act action="nodeRemove" target={target}>
          Remove…
        </Act>
      </div>
      <Machine node={node} />
      <Replicas node={node} />
      <NodeWeights node={node.name} />
      <Cards cards={gpus.get(id)?.gpus ?? []} />
    </Detail>
  );
}

function Machine({ node }: { readonly node: NodeRow }): JSX.Element {
  const { live } = useBoard();
  const silent = node.silentSince === null ? null : (live.now - node.silentSince) / 1_000;
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`);
  return (
    <section>
      <h3>Machine</h3>
      <Facts
        facts={[
          ["silent for", silent === null ? "it is heard" : formatSeconds(silent)],
          ["address", <Text key="a" text={node.address ?? UNKNOWN} />],
          ["labels", <Text key="l" text={labels.join(", ") || UNKNOWN} />],
          ["fabric", <Text key="f" text={node.fabric ?? UNKNOWN} />],
          ["cores", formatCount(node.cores)],
          ["memory", `${formatMib(node.memory_free_mib)} free of ${formatMib(node.memory_mib)}`],
          ["disk", `${formatMib(node.disk_free_mib)} free`],
          ["in flight", node.inFlight === null ? UNKNOWN : formatCount(node.inFlight)],
          ["agent", <Text key="v" text={node.agent_version ?? UNKNOWN} />],
        ]}
      />
      {node.gpu_discovery !== null && (
        <p class="notice is-warn">
          <Text text={node.gpu_discovery} max={1_000} />
        </p>
      )}
    </section>
  );
}

function Replicas({ node }: { readonly node: NodeRow }): JSX.Element {
  const { replicas } = useBoard().state.tables;
  const here = [...replicas.values()].filter((replica) => replica.nodes.includes(node.name));
  return (
    <section>
      <h3>Replicas here</h3>
      {here.length === 0 && <p class="quiet">None.</p>}
      <ul class="lines">
        {here.map((replica) => (
          <li key={replica.id}>
            <a href={placeHref("models", replica.model)}>
              <Text text={replica.model} max={80} />
            </a>
            <State mark={markReplica(replica)} />
            <span class="quiet">{replica.inFlight === null ? UNKNOWN : formatCount(replica.inFlight)} in flight</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const Cards = ({ cards }: { readonly cards: readonly GpuTile[] }): JSX.Element => (
  <section>
    <h3>Cards</h3>
    <ul class="cards">
      {cards.map((gpu) => (
        <li key={gpu.uuid}>
          <p>
            <b>{gpu.index}</b> <Text text={gpu.name} max={80} />{" "}
            {gpu.health !== "ok" && (
              <State mark={{ tone: gpu.health === "sick" ? "bad" : "unknown", word: gpu.health }} />
            )}
          </p>
          {gpu.why !== null && (
            <p class={gpu.health === "sick" ? "ink-bad" : "quiet"}>
              <Text text={gpu.why} />
            </p>
          )}
          <p class="quiet">
            {formatMib(gpu.usedMib)} of {formatMib(gpu.memoryMib)} used, {formatMib(gpu.foreignMib)} by others;{" "}
            {formatShare(gpu.utilization)} busy; {formatCelsius(gpu.temperatureC)}
          </p>
          <p class="quiet mono">
            <Text text={gpu.uuid} max={80} />
          </p>
        </li>
      ))}
    </ul>
  </section>
);
