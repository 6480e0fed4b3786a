import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ModelRow, ReplicaRow } from "../../../src/contract/board.ts";
import type { PlacementAnswer } from "../../../src/contract/control-api.ts";
import { read } from "../live/api.ts";
import { useBoard, useMay } from "../live/context.ts";
import {
  formatBytes,
  formatCount,
  formatSeconds,
  formatShare,
  plural,
  secondsSince,
  UNKNOWN,
} from "../logic/format.ts";
import { replicasOf } from "../logic/lists.ts";
import { plainLines } from "../logic/plain-text.ts";
import { placeHref } from "../logic/route.ts";
import { markModel, markReplica } from "../logic/tones.ts";
import { State, Text } from "../ui/marks.tsx";
import { Act, Detail, Facts, Fetched, useRead } from "../ui/parts.tsx";

export function ModelDetail({ name }: { readonly name: string }): JSX.Element {
  const { state } = useBoard();
  const model = state.tables.models.get(name);
  const replicas = replicasOf(state, name);
  const title = <Text text={name} max={200} />;
  if (model === undefined)
    return (
      <Detail view="models" title={title}>
        <p class="quiet">The catalog has no such model now.</p>
      </Detail>
    );
  return (
    <Detail view="models" title={title}>
      <State mark={markModel(model)} />
      {model.why !== null && (
        <p class={`notice ${model.state === "parked" ? "is-bad" : "is-warn"}`}>
          <Text text={model.why} max={1_000} />
        </p>
      )}
      {model.warnings.map((warning) => (
        <p key={warning} class="notice is-warn">
          <Text text={warning} max={1_000} />
        </p>
      ))}
      <div class="buttons">
        <Act action="retry" target={{ model: name }}>
          Retry…
        </Act>
        <Act action="rollout" target={{ model: name }}>
          Roll out…
        </Act>
        <Scale model={model} />
        <a class="button is-small" href={placeHref("try", name)}>
          Try it
        </a>
      </div>
      <section>
        <h3>Replicas</h3>
        {replicas.length === 0 && <p class="quiet">None runs or is being started.</p>}
        <ul class="cards">
          {replicas.map((replica) => (
            <Replica key={replica.id} replica={replica} />
          ))}
        </ul>
      </section>
      <section>
        <h3>In the catalog</h3>
        <Facts
          facts={[
            ["also called", <Text key="a" text={model.aliases.join(", ") || UNKNOWN} />],
            [
              "replicas",
              `${formatCount(model.min)} to ${formatCount(model.max)}, ${formatCount(model.wanted)} wanted now`,
            ],
            ["priority", formatCount(model.priority)],
            ["failures in a row", formatCount(model.failures_in_row)],
          ]}
        />
      </section>
      <Placement model={model} />
    </Detail>
  );
}

function Scale({ model }: { readonly model: ModelRow }): JSX.Element | null {
  const [wanted, setWanted] = useState<number | null>(null);
  const may = useMay();
  if (!may("scale") || model.max === model.min) return null;
  const replicas = wanted ?? model.wanted;
  return (
    <span class="scale">
      <input
        class="input"
        type="number"
        aria-label="How many replicas"
        min={model.min}
        max={model.max}
        value={replicas}
        onInput={(event) => setWanted(event.currentTarget.valueAsNumber)}
      />
      <Act
        action="scale"
        target={{ model: model.name }}
        body={{ replicas: Number.isNaN(replicas) ? model.wanted : replicas }}
      >
        Scale…
      </Act>
    </span>
  );
}

/** Of others nobody runs a request. */
const RUNNING: ReadonlySet<string> = new Set(["ready", "draining", "stopping"]);

function Replica({ replica }: { readonly replica: ReplicaRow }): JSX.Element {
  const { live } = useBoard();
  const [logs, setLogs] = useState(false);
  const { id, fetch: fetching } = replica;
  const age = formatSeconds(secondsSince(replica.ready ?? replica.created, live.now));
  const idle = replica.idleSince === null ? null : (live.now - replica.idleSince) / 1_000;
  const target = { replica: id };
  return (
    <li>
      <p class="replica-head">
        <State mark={markReplica(replica)} />
        <span>{replica.ready === null ? `asked for ${age} ago` : `ready for ${age}`}</span>
        {replica.outdated && <span class="tag">outdated</span>}
      </p>
      <p class="quiet">
        <span class="mono">
          <Text text={id} max={100} />
        </span>{" "}
        on <Text text={replica.nodes.join(", ") || "no node yet"} />
        {replica.gpus.length > 0 && `, ${plural(replica.gpus.length, "card")}`}
      </p>
      {RUNNING.has(replica.state) && (
        <p class="quiet">
          {replica.inFlight === null ? UNKNOWN : formatCount(replica.inFlight)} in flight; idle for{" "}
          {formatSeconds(idle)}; start {formatCount(replica.generation)}
        </p>
      )}
      {fetching !== null && (
        <p>
          fetched {formatBytes(fetching.bytes)} of {formatBytes(fetching.total_bytes)}
          {fetching.total_bytes !== null &&
            fetching.total_bytes > 0 &&
            ` (${formatShare(fetching.bytes / fetching.total_bytes)})`}
          , {formatBytes(fetching.bytes_per_s)}/s, {formatSeconds(fetching.left_s)} left
        </p>
      )}
      {replica.why !== null && (
        <p class={replica.state === "failed" ? "ink-bad" : "quiet"}>
          <Text text={replica.why} max={1_000} />
        </p>
      )}
      {replica.restart !== "none" && (
        <p>
          restart: <Text text={replica.restart} />
          {replica.restart_why !== null && <Text text={` (${replica.restart_why})`} />}
        </p>
      )}
      <div class="buttons">
        {replica.state === "ready" && (
          <>
            <Act action="restart" target={target}>
              Restart…
            </Act>
            <Act action="restart" target={target} body={{ in_place: true }}>
              Restart in place…
            </Act>
          </>
        )}
        <button type="button" class="button is-small" aria-expanded={logs} onClick={() => setLogs(!logs)}>
          Log
        </button>
      </div>
      {logs && <Logs id={id} />}
    </li>
  );
}

function Logs({ id }: { readonly id: string }): JSX.Element {
  const result = useRead(id, (signal) =>
    read<{ lines: readonly string[] }>("logs", { replica: id }, { lines: "100" }, signal),
  );
  return (
    <Fetched
      result={result}
      draw={({ lines }) =>
        lines.length === 0 ? (
          <p class="quiet">Its engine has written nothing yet.</p>
        ) : (
          <pre class="log" tabIndex={0} role="region" aria-label="Last lines of the log">
            {plainLines(lines.join("\n"), 200_000)}
          </pre>
        )
      }
    />
  );
}

const NODES_SHOWN_MAX = 200;

function Placement({ model }: { readonly model: ModelRow }): JSX.Element {
  const [asked, setAsked] = useState(0);
  const result = useRead(`${model.name} ${asked}`, (signal) =>
    read<PlacementAnswer>("placement", { model: model.name }, {}, signal),
  );
  return (
    <section>
      <h3>Room for one more</h3>
      <Fetched
        result={result}
        draw={({ fits, notes, profiles }) => (
          <>
            <State
              mark={
                fits
                  ? { tone: "good", word: "one more replica would fit now" }
                  : { tone: "warn", word: "no node has room for one more now" }
              }
            />
            {notes.map((note) => (
              <p key={note}>
                <Text text={note} max={1_000} />
              </p>
            ))}
            {profiles.map(({ engine, nodes }, index) => (
              <div key={index}>
                <p class="quiet">
                  Profile {index + 1}: <Text text={engine} />
                </p>
                <ul class="lines">
                  {nodes.slice(0, NODES_SHOWN_MAX).map(({ node, fits: here, why }) => (
                    <li key={node}>
                      <Text text={node} max={80} />
                      {here ? (
                        <State mark={{ tone: "good", word: "fits" }} />
                      ) : (
                        <span class="quiet">
                          <Text text={why ?? UNKNOWN} />
                        </span>
                      )}
                    </li>
                  ))}
                </ul>
                {nodes.length > NODES_SHOWN_MAX && (
                  <p class="quiet">and {formatCount(nodes.length - NODES_SHOWN_MAX)} more nodes</p>
                )}
              </div>
            ))}
          </>
        )}
      />
      <div class="buttons">
        <button type="button" class="button is-small" onClick={() => setAsked(asked + 1)}>
          Look again
        </button>
      </div>
    </section>
  );
}
