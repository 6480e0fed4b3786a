import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useBoard, useMay } from "../live/context.ts";
import type { AskedApproval } from "../logic/lists.ts";
import { plainText } from "../logic/plain-text.ts";
import { Text } from "../ui/marks.tsx";
import { Act } from "../ui/parts.tsx";

const HOUR_S = 3_600;

/** A job that a person has to let go, and what they give with it: a tier, and the most that it may cost. */
export const Asked = ({ asked: { job, tiers } }: { readonly asked: AskedApproval }): JSX.Element => (
  <div class="asked">
    <p>
      Waits for an approval:{" "}
      {tiers.map(({ tier, lacks }) => (
        <Text key={tier} text={`${tier} lacks ${lacks.join(", ")}. `} />
      ))}
    </p>
    <ApproveForm job={job.id} tiers={tiers.map(({ tier }) => tier)} />
  </div>
);

/** For an approver, who is told of no jobs: the id comes from whoever asked. */
export function ApproveNamed(): JSX.Element | null {
  const { state } = useBoard();
  const may = useMay();
  const [job, setJob] = useState("");
  const tiers = [...new Set([...state.tables.overflow.values()].flatMap((row) => row.tiers.map(({ id }) => id)))];
  if (!may("overflowApprove") || tiers.length === 0) return null;
  return (
    <section class="asked">
      <h3>Approve a job by its id</h3>
      <label class="field job-id">
        <span>Job</span>
        <input
          class="input mono"
          placeholder="job_…"
          value={job}
          maxLength={100}
          onInput={(event) => setJob(event.currentTarget.value.trim())}
        />
      </label>
      <ApproveForm job={job} tiers={tiers} />
    </section>
  );
}

function ApproveForm({ job, tiers }: { readonly job: string; readonly tiers: readonly string[] }): JSX.Element | null {
  const { state } = useBoard();
  const may = useMay();
  const [tier, setTier] = useState(tiers[0] ?? "");
  const [price, setPrice] = useState("");
  if (!may("overflowApprove")) return null;
  const currency = state.cluster.spend?.tiers.find((each) => each.tier === tier)?.currency ?? "";
  const amount = Number(price);
  const known = job !== "" && price !== "" && Number.isFinite(amount) && amount >= 0;
  return (
    <div class="buttons">
      <label class="price">
        <span>for tier</span>
        <select class="input" value={tier} onChange={(event) => setTier(event.currentTarget.value)}>
          {tiers.map((name) => (
            <option key={name} value={name}>
              {plainText(name, 80)}
            </option>
          ))}
        </select>
      </label>
      <label class="price">
        <span>at most</span>
        <input
          class="input"
          inputMode="decimal"
          placeholder={`0.00 ${currency}`}
          value={price}
          maxLength={16}
          onInput={(event) => setPrice(event.currentTarget.value.replace(",", "."))}
        />
      </label>
      {known ? (
        <Act action="overflowApprove" body={{ job, tier, max_price: amount, expires_s: HOUR_S }}>
          Approve…
        </Act>
      ) : (
        <button type="button" class="button is-small" disabled>
          Approve…
        </button>
      )}
    </div>
  );
}
