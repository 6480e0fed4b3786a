import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { JobRow } from "../../../src/contract/board.ts";
import { useBoard } from "../live/context.ts";
import { formatCount, formatSeconds, plural, secondsSince, UNKNOWN } from "../logic/format.ts";
import { listJobs } from "../logic/lists.ts";
import { placeHref } from "../logic/route.ts";
import { markJob } from "../logic/tones.ts";
import { Bar } from "../ui/bar.tsx";
import { State, Text } from "../ui/marks.tsx";
import { Empty, SearchBox } from "../ui/parts.tsx";
import { Windowed } from "../ui/windowed.tsx";

const HEIGHT = 46;
const HEIGHT_NARROW = 112;
const NARROW = 720;

export function Jobs({ item }: { readonly item: string | null }): JSX.Element {
  const { live, state } = useBoard();
  const [search, setSearch] = useState("");
  const list = useMemo(() => listJobs(state, search), [state, state.revisions.jobs, search]);
  const running = [...state.tables.jobs.values()].filter((job) => job.state === "running").length;
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>{plural(running, "job")} running</h2>
        <p class="quiet">{formatCount(state.tables.jobs.size)} shown: those that go on, and the newest that ended</p>
        <div class="filters">
          <SearchBox label="Find a job" value={search} onInput={setSearch} />
        </div>
      </div>
      <Windowed
        label="Jobs"
        kind="of-jobs"
        items={list}
        keyOf={({ id }) => id}
        heightOf={(_, width) => (width < NARROW ? HEIGHT_NARROW : HEIGHT)}
        head={["Job", "State", "For", "Progress", "Key", "Age"]}
        draw={(job) => <JobLine job={job} now={live.now} isOpen={job.id === item} />}
        empty={
          search === "" ? (
            <Empty title="There is no job">
              Long work goes to a gateway's <code>/v1/jobs</code> and shows here with its progress.
            </Empty>
          ) : (
            <Empty title="No job fits what you look for">Clear the search to see all of them.</Empty>
          )
        }
      />
    </section>
  );
}

function JobLine({
  job,
  now,
  isOpen,
}: {
  readonly job: JobRow;
  readonly now: number;
  readonly isOpen: boolean;
}): JSX.Element {
  const { done, total } = job.progress;
  return (
    <div class={`cells ${isOpen ? "is-open" : ""}`} role="presentation">
      <span role="cell" class="one-line mono">
        <a href={placeHref("jobs", job.id)}>
          <Text text={job.id} max={80} />
        </a>
      </span>
      <span role="cell">
        <State mark={markJob(job)} />
      </span>
      <span role="cell" class="one-line">
        <Text text={job.model ?? job.upstream ?? UNKNOWN} max={80} /> <span class="quiet">{job.class}</span>
      </span>
      <span role="cell" class="progress">
        <Bar parts={[{ name: "own", share: total === 0 ? 0 : done / total }]} />
        <span class="num">
          {formatCount(done)}/{formatCount(total)}
        </span>
      </span>
      <span role="cell" class="one-line quiet">
        <Text text={job.key} max={60} />
      </span>
      <span role="cell" class="num quiet">
        {formatSeconds(secondsSince(job.ended_at ?? job.created_at, now))}
      </span>
    </div>
  );
}
