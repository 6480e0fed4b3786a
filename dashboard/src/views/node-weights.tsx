import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { WeightsListAnswer } from "../../../src/contract/control-api.ts";
import { read } from "../live/api.ts";
import { formatBytes, plural } from "../logic/format.ts";
import { unwantedOf } from "../logic/weights.ts";
import { Text } from "../ui/marks.tsx";
import { Act, Fetched, useRead } from "../ui/parts.tsx";

/** What lies in the node's cache of weights, and what of it nobody wants; asked for when somebody looks. */
export function NodeWeights({ node }: { readonly node: string }): JSX.Element {
  const [shown, setShown] = useState(false);
  return (
    <section>
      <h3>Weights</h3>
      {shown ? (
        <WeightsList node={node} />
      ) : (
        <div class="buttons">
          <button type="button" class="button is-small" onClick={() => setShown(true)}>
            Show weights
          </button>
        </div>
      )}
    </section>
  );
}

function WeightsList({ node }: { readonly node: string }): JSX.Element {
  const result = useRead(node, (signal) => read<WeightsListAnswer>("weights", {}, {}, signal));
  return <Fetched result={result} draw={(answer) => <Listed node={node} answer={answer} />} />;
}

function Listed({ node, answer }: { readonly node: string; readonly answer: WeightsListAnswer }): JSX.Element {
  const here = answer.weights.filter((each) => each.node === node);
  const unwanted = unwantedOf(answer.weights);
  return (
    <>
      {here.length === 0 && <p class="quiet">None lie there.</p>}
      <ul class="lines">
        {here.map((each) => (
          <li key={each.name}>
            <span class="mono">
              <Text text={each.name} max={80} />
            </span>
            <span>{formatBytes(each.bytes)}</span>
            <span class="quiet">
              {each.kind === "whole" ? "" : `${each.kind}, `}
              <Text text={each.wanted_by.length === 0 ? "wanted by nobody" : `for ${each.wanted_by.join(", ")}`} />
            </span>
          </li>
        ))}
      </ul>
      {answer.held === null ? (
        unwanted.count > 0 && (
          <div class="buttons">
            <Act action="weightsCollect" facts={{ what: unwanted.words }}>
              Remove {plural(unwanted.count, "unwanted weight")} on all nodes…
            </Act>
          </div>
        )
      ) : (
        <p class="notice is-warn">
          Nothing is removed now: <Text text={answer.held} max={600} />
        </p>
      )}
    </>
  );
}
