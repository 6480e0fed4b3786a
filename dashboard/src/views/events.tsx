import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { StoredEvent } from "../../../src/contract/control-event.ts";
import { browserClock } from "../live/browser-clock.ts";
import { type ApiResult, read, sayFailure } from "../live/api.ts";
import { useBoard } from "../live/context.ts";
import { formatCount, formatTime, plural } from "../logic/format.ts";
import { plainText } from "../logic/plain-text.ts";
import type { BoardState } from "../logic/board-state.ts";
import { kindsOf, listEvents, toneOfEvent } from "../logic/events.ts";
import { Shape, Text } from "../ui/marks.tsx";
import { Empty, SearchBox } from "../ui/parts.tsx";
import { Windowed } from "../ui/windowed.tsx";

const HEIGHT = 40;
/** One below another: when and what, of whom, and why in up to two lines. */
const LINE_NARROW = 22;
const PADDING_NARROW = 20;
const NARROW = 720;
const OLDER = 1_000;

export function Events(): JSX.Element {
  const { live, state } = useBoard();
  const [search, setSearch] = useState("");
  const [kind, setKind] = useState("");
  const [older, setOlder] = useState<ApiResult<{ events: readonly StoredEvent[] }> | null>(null);
  const before = older?.kind === "done" ? older.body.events : NONE;
  const { events } = state.revisions;
  const list = useMemo(
    () => listEvents([...state.tables.events.values()], before, { search, kind }),
    [state, events, before, search, kind],
  );
  const kinds = useMemo(() => kindsOf([...state.tables.events.values(), ...before]), [state, events, before]);
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>{plural(list.length, "event")}</h2>
        {older === null ? (
          <button
            type="button"
            class="button is-small"
            onClick={() =>
              void read<{ events: readonly StoredEvent[] }>("events", {}, { limit: String(OLDER) }).then(setOlder)
            }
          >
            Load the last {formatCount(OLDER)}
          </button>
        ) : (
          older.kind !== "done" && (
            <span class="ink-bad">
              <Text text={sayFailure(older)} />
            </span>
          )
        )}
        <div class="filters">
          <select
            class="input"
            aria-label="Kind of event"
            value={kind}
            onChange={(event) => setKind(event.currentTarget.value)}
          >
            <option value="">every kind</option>
            {kinds.map((name) => (
              <option key={name} value={name}>
                {plainText(name, 60)}
              </option>
            ))}
          </select>
          <SearchBox label="Find an event" value={search} onInput={setSearch} />
        </div>
      </div>
      <Windowed
        label="Events"
        kind="of-events"
        items={list}
        keyOf={({ seq }) => String(seq)}
        heightOf={(event, width) => (width < NARROW ? PADDING_NARROW + LINE_NARROW * linesOf(event, width) : HEIGHT)}
        head={["Time", "Event", "Of", "By", "Why"]}
        draw={(event) => <EventLine event={event} now={live.now} of={subjectOf(state, event)} />}
        empty={
          <Empty title={search === "" && kind === "" ? "Nothing has happened yet" : "No event fits what you look for"}>
            What the control plane does, and why, is kept here.
          </Empty>
        }
      />
    </section>
  );
}

const CHAR_PX = 7.5;

/** On a narrow screen; a word more than fits is told by its dots. */
const linesOf = ({ model, replicaId, nodeId, why }: StoredEvent, width: number): number =>
  (model ?? replicaId ?? nodeId) === null ? 1 + whyLines(why, width) : 2 + whyLines(why, width);
const whyLines = (why: string, width: number): number => (why.length * CHAR_PX > width ? 2 : 1);

/** By the name that people know; a node that is gone has only its id. */
const subjectOf = ({ tables }: BoardState, { model, replicaId, nodeId }: StoredEvent): string =>
  model ?? replicaId ?? (nodeId === null ? "" : (tables.nodes.get(nodeId)?.name ?? nodeId));

const NONE: readonly StoredEvent[] = [];

const EventLine = ({
  event,
  now,
  of,
}: {
  readonly event: StoredEvent;
  readonly now: number;
  readonly of: string;
}): JSX.Element => {
  const tone = toneOfEvent(event.kind);
  return (
    <div class="cells" role="presentation">
      <time role="cell" class="quiet" dateTime={event.at}>
        {formatTime(event.at, now, browserClock.offsetMinutes())}
      </time>
      <span role="cell" class={`state is-${tone}`}>
        <Shape tone={tone} />
        <span class="one-line">
          <Text text={event.kind} max={60} />
        </span>
      </span>
      <span role="cell" class={`of one-line ${of === "" ? "is-none" : ""}`}>
        <Text text={of} max={100} />
      </span>
      <span role="cell" class="one-line quiet">
        <Text text={event.by ?? ""} max={60} />
      </span>
      <span role="cell" class="why" title={event.why.slice(0, 500)}>
        <Text text={event.why} max={500} />
      </span>
    </div>
  );
};
