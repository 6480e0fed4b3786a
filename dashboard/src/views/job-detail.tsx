import type { JSX } from "preact";
import type { JobRow } from "../../../src/contract/board.ts";
import type { JobView } from "../../../src/contract/job-view.ts";
import { browserClock } from "../live/browser-clock.ts";
import { read } from "../live/api.ts";
import { useBoard } from "../live/context.ts";
import { formatBytes, formatCount, formatMoney, formatMs, formatTime, UNKNOWN } from "../logic/format.ts";
import { listAskedApprovals } from "../logic/lists.ts";
import { markJob } from "../logic/tones.ts";
import { Bar } from "../ui/bar.tsx";
import { State, Text } from "../ui/marks.tsx";
import { Act, Detail, Facts, Fetched, useRead } from "../ui/parts.tsx";
import { Asked } from "./asked.tsx";

type Told = Omit<JobRow, "gateway">;

export function JobDetail({ id }: { readonly id: string }): JSX.Element {
  const { state } = useBoard();
  const row = state.tables.jobs.get(id);
  // The whole plan is asked for again with each step that it gains.
  const result = useRead(`${id} ${row?.state ?? ""} ${row?.attempts ?? ""} ${row?.plan.at(-1)?.at ?? ""}`, (signal) =>
    read<JobView>("job", { job: id }, {}, signal),
  );
  const job: Told | null = row ?? (result?.kind === "done" ? result.body : null);
  const whole = result?.kind === "done" ? result.body.plan : (row?.plan ?? []);
  return (
    <Detail
      view="jobs"
      title={
        <span class="mono">
          <Text text={id} max={100} />
        </span>
      }
    >
      {job === null ? <Fetched result={result} draw={() => null} /> : <Job job={job} plan={whole} />}
    </Detail>
  );
}

function Job({ job, plan }: { readonly job: Told; readonly plan: JobView["plan"] }): JSX.Element {
  const { live, state } = useBoard();
  const { done, total } = job.progress;
  const when = (iso: string | null): string => formatTime(iso, live.now, browserClock.offsetMinutes());
  const asked = listAskedApprovals(state).find((each) => each.job.id === job.id);
  const open = job.state === "queued" || job.state === "running";
  return (
    <>
      <State mark={markJob({ ...job, gateway: "" })} />
      <div class="progress">
        <Bar parts={[{ name: "own", share: total === 0 ? 0 : done / total }]} />
        <span>
          {formatCount(done)} of {formatCount(total)}
        </span>
      </div>
      {job.error !== null && (
        <p class="notice is-bad">
          <Text text={`${job.error.code}: ${job.error.message}`} max={2_000} />
        </p>
      )}
      {open && (
        <div class="buttons">
          <Act action="jobCancel" target={{ job: job.id }}>
            Cancel…
          </Act>
        </div>
      )}
      {asked !== undefined && <Asked asked={asked} />}
      <Facts
        facts={[
          ["for", <Text key="f" text={`${job.method} ${job.path} of ${job.model ?? job.upstream ?? UNKNOWN}`} />],
          ["class", job.class],
          ["key", <Text key="k" text={job.key} />],
          ["created", when(job.created_at)],
          ["started", when(job.started_at)],
          ["ended", when(job.ended_at)],
          ["deadline", when(job.deadline_at)],
          ["waited", formatMs(job.queue_ms)],
          ["attempts", `${formatCount(job.attempts)} of ${formatCount(job.max_attempts)}`],
          ["result", job.result === null ? UNKNOWN : `${job.result.status}, ${formatBytes(job.result.bytes)}`],
        ]}
      />
      {job.overflow !== null && <Elsewhere overflow={job.overflow} />}
      <section>
        <h3>What was decided, and why</h3>
        <ol class="plan">
          {plan.map((step, index) => (
            <li key={index}>
              <span class="quiet">{when(step.at)}</span> <b>{step.what}</b> <Text text={step.why} max={1_000} />
            </li>
          ))}
        </ol>
      </section>
    </>
  );
}

function Elsewhere({ overflow }: { readonly overflow: NonNullable<JobView["overflow"]> }): JSX.Element {
  return (
    <section>
      <h3>Here or elsewhere</h3>
      <p>
        <Text
          text={`${overflow.decision}${overflow.tier === null ? "" : ` ${overflow.tier}`}: ${overflow.why}`}
          max={1_000}
        />
      </p>
      <Facts
        facts={[
          ["card", overflow.card],
          ["reserved", formatMoney(overflow.price_reserved, overflow.currency)],
          ["paid", formatMoney(overflow.price_paid, overflow.currency)],
          ...overflow.missing.map(
            ({ tier, lacks }) => [`${tier} lacks`, <Text key={tier} text={lacks.join(", ") || "nothing"} />] as const,
          ),
        ]}
      />
    </section>
  );
}
