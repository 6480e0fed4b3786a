import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { BOARD_READS } from "../../../src/contract/board.ts";
import type { UsageSums, UsageView } from "../../../src/contract/usage-view.ts";
import { read } from "../live/api.ts";
import { useBoard } from "../live/context.ts";
import { formatCount, formatMoney, formatMs, plural, UNKNOWN } from "../logic/format.ts";
import { dayOf, usageQuery } from "../logic/usage.ts";
import { Text } from "../ui/marks.tsx";
import { Empty, Fetched, useRead } from "../ui/parts.tsx";

const SPANS = [
  [1, "today"],
  [7, "7 days"],
  [31, "31 days"],
] as const;
const GROUPS = ["key", "model", "day", "key,model", "day,key,model"] as const;

export function Usage(): JSX.Element {
  const { live } = useBoard();
  const [days, setDays] = useState(7);
  const [group, setGroup] = useState<string>("key,model");
  const query = usageQuery(dayOf(live.now), days, group);
  const search = new URLSearchParams(query).toString();
  const result = useRead(search, (signal) => read<UsageView>("usage", {}, query, signal));
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>Usage</h2>
        <div class="filters">
          <select
            class="input"
            aria-label="Days"
            value={String(days)}
            onChange={(event) => setDays(Number(event.currentTarget.value))}
          >
            {SPANS.map(([count, words]) => (
              <option key={count} value={String(count)}>
                {words}
              </option>
            ))}
          </select>
          <select
            class="input"
            aria-label="Parted by"
            value={group}
            onChange={(event) => setGroup(event.currentTarget.value)}
          >
            {GROUPS.map((name) => (
              <option key={name} value={name}>
                by {name.replaceAll(",", ", ")}
              </option>
            ))}
          </select>
          <a
            class="button"
            href={`${BOARD_READS.usage}?${search}&format=csv`}
            download={`usage-${query.from}-${query.to}.csv`}
          >
            CSV
          </a>
        </div>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Usage">
        <Fetched result={result} draw={(body) => <UsageTable body={body} />} />
      </div>
    </section>
  );
}

const tokens = (sums: UsageSums): readonly string[] => [
  formatCount(sums.prompt_tokens),
  formatCount(sums.completion_tokens),
  formatCount(sums.cached_tokens),
];

const cost = ({ cost: sums }: UsageSums): string =>
  Object.entries(sums)
    .map(([currency, amount]) => formatMoney(amount, currency))
    .join(", ") || UNKNOWN;

function UsageTable({ body }: { readonly body: UsageView }): JSX.Element {
  const { group, rows, total, missing = [] } = body;
  if (rows.length === 0)
    return (
      <Empty title="Nothing was used in these days">
        Requests are counted by key, model and day, once they have ended.
      </Empty>
    );
  const figures = (sums: UsageSums): readonly string[] => [
    formatCount(sums.requests),
    ...tokens(sums),
    sums.gpu_seconds === 0 ? "0 s" : formatMs(sums.gpu_seconds * 1_000),
    cost(sums),
  ];
  return (
    <>
      {missing.length > 0 && (
        <p class="notice" role="status">
          These sums lack {plural(missing.length, "gateway")} that did not answer:{" "}
          <Text text={missing.join(", ")} max={200} />
        </p>
      )}
      <UsageRows group={group} rows={rows} total={total} figures={figures} />
      {total.tokens_unknown > 0 && (
        <p class="quiet">Of {plural(total.tokens_unknown, "request")} no engine has said how many tokens were used.</p>
      )}
    </>
  );
}

const FIGURES = ["requests", "tokens in", "out", "cached", "slot time", "cost"] as const;

interface UsageRowsProps extends Pick<UsageView, "group" | "rows" | "total"> {
  /** As many as there are names of figures. */
  readonly figures: (sums: UsageSums) => readonly string[];
}

/** The roles stay where a narrow screen shows rows as blocks, which takes a table's own from it. */
function UsageRows({ group, rows, total, figures }: UsageRowsProps): JSX.Element {
  const cells = (sums: UsageSums): readonly JSX.Element[] =>
    figures(sums).map((figure, column) => (
      <td key={column} role="cell" class="num" data-label={FIGURES[column]}>
        {figure}
      </td>
    ));
  return (
    <table role="table" class="usage">
      <thead role="rowgroup">
        <tr role="row">
          {group.map((name) => (
            <th key={name} role="columnheader" scope="col">
              {name}
            </th>
          ))}
          {FIGURES.map((name) => (
            <th key={name} role="columnheader" scope="col" class="num">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row, index) => (
          <tr key={index} role="row">
            {group.map((name) => (
              <td key={name} role="cell">
                <Text text={row[name] ?? UNKNOWN} max={120} />
              </td>
            ))}
            {cells(row)}
          </tr>
        ))}
        <tr role="row" class="sum">
          <th role="rowheader" scope="row" colSpan={group.length}>
            all
          </th>
          {cells(total)}
        </tr>
      </tbody>
    </table>
  );
}
