import type { JSX } from "preact";
import type { ApprovalView } from "../../../src/contract/overflow-view.ts";
import type { OverflowRow } from "../../../src/contract/board.ts";
import { browserClock } from "../live/browser-clock.ts";
import { useBoard } from "../live/context.ts";
import { formatMoney, formatTime, plural, UNKNOWN } from "../logic/format.ts";
import { listAskedApprovals } from "../logic/lists.ts";
import { placeHref } from "../logic/route.ts";
import { byName, type Mark } from "../logic/tones.ts";
import { State, Text } from "../ui/marks.tsx";
import { Act, Empty } from "../ui/parts.tsx";
import { ApproveNamed, Asked } from "./asked.tsx";
import { Spend } from "./spend.tsx";

export function Overflow(): JSX.Element {
  const { state, who } = useBoard();
  const { overflow, approvals } = state.tables;
  const { spend } = state.cluster;
  const asked = listAskedApprovals(state);
  const rows = [...overflow.values()].toSorted((a, b) => byName(a.upstream, b.upstream));
  return (
    <section class="pane list">
      <div class="pane-head">
        <h2>Overflow</h2>
        {spend !== null &&
          (spend.stopped === null ? (
            <Act action="overflowStop" body={{ why: "stopped on the board" }}>
              Stop all spending…
            </Act>
          ) : (
            <Act action="overflowGo">Allow spending…</Act>
          ))}
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Overflow, approvals and spend">
        {rows.length === 0 && spend === null ? (
          <Empty title="No overflow is configured">
            Nothing can leave the house or cost money: no upstream has a tier to send its work to.
          </Empty>
        ) : (
          <div class="stack">
            {spend !== null && spend.stopped !== null && (
              <p class="notice is-warn">
                ▲ All spending was stopped by <Text text={spend.stopped.by} max={80} />:{" "}
                <Text text={spend.stopped.why || "no reason was given"} />
              </p>
            )}
            {asked.length > 0 && (
              <section>
                <h3>
                  {plural(asked.length, "job")} {asked.length === 1 ? "asks" : "ask"} for an approval
                </h3>
                <ul class="cards">
                  {asked.map((each) => (
                    <li key={each.job.id}>
                      <a class="mono" href={placeHref("jobs", each.job.id)}>
                        <Text text={each.job.id} max={80} />
                      </a>
                      <Asked asked={each} />
                    </li>
                  ))}
                </ul>
              </section>
            )}
            {who.role === "approver" && <ApproveNamed />}
            {spend !== null && <Spend spend={spend} />}
            {rows.map((row) => (
              <Trigger key={row.upstream} row={row} />
            ))}
            <Approvals rows={[...approvals.values()]} />
          </div>
        )}
      </div>
    </section>
  );
}

const CARD: Readonly<Record<"free" | "loaded" | "unreachable" | "unknown", Mark>> = {
  free: { tone: "good", word: "card is free" },
  loaded: { tone: "warn", word: "card is loaded" },
  unreachable: { tone: "bad", word: "card can't be reached" },
  unknown: { tone: "unknown", word: "not looked at yet" },
};

const SIGNAL: Readonly<Record<OverflowRow["signals"][number]["state"], Mark>> = {
  busy: { tone: "warn", word: "busy" },
  not_busy: { tone: "good", word: "not busy" },
  broken: { tone: "unknown", word: "broken" },
};

const figure = (value: number | null): string => (value === null ? UNKNOWN : String(Number(value.toFixed(3))));

/** Why an upstream's work goes elsewhere now, or does not: each signal with its value, each tier with what it lacks. */
const Trigger = ({ row }: { readonly row: OverflowRow }): JSX.Element => (
  <section class="trigger">
    <h3>
      <Text text={row.upstream} max={120} />
    </h3>
    <p class="trigger-head">
      <State mark={CARD[row.card ?? "unknown"]} />
      <span>
        A job would go to{" "}
        <b>
          <Text text={row.would_go_to ?? "nobody else: it stays here"} max={80} />
        </b>
      </span>
    </p>
    {row.why !== "" && (
      <p class="quiet">
        <Text text={row.why} max={1_000} />
      </p>
    )}
    <div class="wide" tabIndex={0} role="region" aria-label="Signals and tiers">
      <Signals signals={row.signals} />
      <Tiers tiers={row.tiers} />
    </div>
  </section>
);

const Signals = ({ signals }: Pick<OverflowRow, "signals">): JSX.Element => (
  <table>
    <thead>
      <tr>
        <th scope="col">signal</th>
        <th scope="col">state</th>
        <th scope="col" class="num">
          value
        </th>
        <th scope="col" class="num">
          threshold
        </th>
        <th scope="col">why</th>
      </tr>
    </thead>
    <tbody>
      {signals.map((signal, index) => (
        <tr key={index}>
          <th scope="row">{signal.kind}</th>
          <td>
            <State mark={SIGNAL[signal.state]} />
          </td>
          <td class="num">{figure(signal.value)}</td>
          <td class="num">{figure(signal.threshold)}</td>
          <td>
            <Text text={signal.reason} />
          </td>
        </tr>
      ))}
    </tbody>
  </table>
);

const Tiers = ({ tiers }: Pick<OverflowRow, "tiers">): JSX.Element => (
  <table>
    <thead>
      <tr>
        <th scope="col">tier</th>
        <th scope="col">approval</th>
        <th scope="col" class="num">
          in flight
        </th>
        <th scope="col">breaker</th>
        <th scope="col">lacks</th>
      </tr>
    </thead>
    <tbody>
      {tiers.map((tier) => (
        <tr key={tier.id}>
          <th scope="row">
            <Text text={tier.id} max={80} />
          </th>
          <td>{tier.approved ? (tier.approval === "tier" ? "approved" : "per job") : "not approved"}</td>
          <td class="num">{tier.in_flight}</td>
          <td>
            <Text text={tier.breaker_reason === null ? tier.breaker : `${tier.breaker}: ${tier.breaker_reason}`} />
          </td>
          <td>
            <Text text={tier.missing.join(", ") || "nothing"} />
          </td>
        </tr>
      ))}
    </tbody>
  </table>
);

function Approvals({ rows }: { readonly rows: readonly ApprovalView[] }): JSX.Element | null {
  const { live } = useBoard();
  if (rows.length === 0) return null;
  const when = (iso: string): string => formatTime(iso, live.now, browserClock.offsetMinutes());
  return (
    <section>
      <h3>Approvals</h3>
      <ul class="cards">
        {rows.map((each) => (
          <li key={`${each.tier}/${each.job}`}>
            <p>
              <b>{each.state}</b>: job <Text text={each.job} max={80} /> may go to <Text text={each.tier} max={80} />{" "}
              for at most {formatMoney(each.max_price, each.currency)}, until {when(each.expires_at)}; by{" "}
              <Text text={each.by} max={80} />
            </p>
            {each.state === "open" && (
              <div class="buttons">
                <Act action="overflowRevoke" target={{ tier: each.tier, job: each.job }}>
                  Take back…
                </Act>
              </div>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
