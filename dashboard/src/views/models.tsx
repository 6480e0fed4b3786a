import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { ModelRow } from "../../../src/contract/board.ts";
import { useBoard } from "../live/context.ts";
import { formatCount, plural } from "../logic/format.ts";
import { listModels } from "../logic/lists.ts";
import { placeHref } from "../logic/route.ts";
import { markModel } from "../logic/tones.ts";
import { State, Text } from "../ui/marks.tsx";
import { Act, Empty, SearchBox } from "../ui/parts.tsx";
import { Windowed } from "../ui/windowed.tsx";

const HEIGHT = 46;
const HEIGHT_NARROW = 70;
const NARROW = 720;

export function Models({ item }: { readonly item: string | null }): JSX.Element {
  const { state } = useBoard();
  const [search, setSearch] = useState("");
  const list = useMemo(() => listModels(state, search), [state, state.revisions.models, search]);
  const outdated = [...state.tables.replicas.values()].filter((replica) => replica.outdated).length;
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>
          {plural(state.tables.models.size, "model")}
          {search !== "" && <span class="quiet">, {formatCount(list.length)} shown</span>}
        </h2>
        {outdated > 0 && (
          <span class="buttons">
            {plural(outdated, "replica")} outdated <Act action="rolloutAll">Roll out…</Act>
          </span>
        )}
        <div class="filters">
          <SearchBox label="Find a model" value={search} onInput={setSearch} />
        </div>
      </div>
      <Windowed
        label="Models"
        kind="of-models"
        items={list}
        keyOf={({ name }) => name}
        heightOf={({ why }, width) => (width < NARROW && why !== null ? HEIGHT_NARROW : HEIGHT)}
        head={["Model", "State", "Ready", "Why"]}
        draw={(model) => <ModelLine model={model} isOpen={model.name === item} />}
        empty={
          <Empty title={search === "" ? "The catalog has no model yet" : "No model fits what you look for"}>
            {search === "" ? (
              <>
                <p>Name one in the catalog, and it is started where it fits:</p>
                <pre>yardmaster ctl catalog apply catalog.yaml</pre>
              </>
            ) : (
              "Clear the search to see all of them."
            )}
          </Empty>
        }
      />
    </section>
  );
}

function ModelLine({ model, isOpen }: { readonly model: ModelRow; readonly isOpen: boolean }): JSX.Element {
  return useMemo(
    () => (
      <div class={`cells model ${isOpen ? "is-open" : ""}`} role="presentation">
        <span role="cell" class="one-line">
          <a href={placeHref("models", model.name)}>
            <Text text={model.name} max={120} />
          </a>
        </span>
        <span role="cell">
          <State mark={markModel(model)} />
        </span>
        <span role="cell" class="ready">
          <Pips ready={model.ready} wanted={model.wanted} />
          {formatCount(model.ready)} of {formatCount(model.wanted)}
        </span>
        <span role="cell" class="one-line quiet">
          {model.why === null ? "" : <Text text={model.why} />}
        </span>
      </div>
    ),
    [model, isOpen],
  );
}

const PIPS_MAX = 8;

/** A full mark for each replica that is ready, a hollow one for each that is missing. */
function Pips({ ready, wanted }: { readonly ready: number; readonly wanted: number }): JSX.Element | null {
  const all = Math.max(ready, wanted);
  if (all === 0 || all > PIPS_MAX) return null;
  return (
    <svg class="pips" viewBox={`0 0 ${all * 9} 12`} width={all * 9} height="12" aria-hidden="true">
      {Array.from({ length: all }, (_, index) => (
        <rect
          key={index}
          class={index < ready ? "full" : "hollow"}
          x={index * 9 + 0.75}
          y="0.75"
          width="5.5"
          height="10.5"
          rx="1"
        />
      ))}
    </svg>
  );
}
