import type { JSX } from "preact";
import type { SpendView } from "../../../src/contract/overflow-view.ts";
import { formatMoney } from "../logic/format.ts";
import { Bar } from "../ui/bar.tsx";
import { Text } from "../ui/marks.tsx";
import { Act } from "../ui/parts.tsx";

type Tier = SpendView["tiers"][number];

/** Money against its budget, by tier: spent, held for what is under way, and what is left. */
export const Spend = ({ spend }: { readonly spend: SpendView }): JSX.Element => (
  <section>
    <h3>Spent against budget</h3>
    {spend.refuses !== null && (
      <p class="notice is-bad">
        Nothing is spent: <Text text={spend.refuses} max={1_000} />
      </p>
    )}
    <ul class="cards">
      {spend.tiers.map((tier) => (
        <li key={tier.tier}>
          <p>
            <b>
              <Text text={tier.tier} max={80} />
            </b>
          </p>
          <Budget what="today" spent={tier.spent_today} held={tier.reserved_today} limit={tier.per_day} tier={tier} />
          <Budget
            what="this month"
            spent={tier.spent_this_month}
            held={tier.reserved_this_month}
            limit={tier.per_month}
            tier={tier}
          />
          {tier.halted !== null && (
            <>
              <p class="notice is-bad">
                It has halted: <Text text={tier.halted.why} max={1_000} />
              </p>
              <div class="buttons">
                <Act action="overflowResume" target={{ tier: tier.tier }}>
                  Let it go on…
                </Act>
              </div>
            </>
          )}
        </li>
      ))}
    </ul>
    {spend.open.length > 0 && <p class="quiet">{spend.open.length} reservations are open.</p>}
  </section>
);

interface BudgetProps {
  readonly what: string;
  readonly spent: number;
  readonly held: number;
  readonly limit: number | null;
  readonly tier: Tier;
}

const Budget = ({ what, spent, held, limit, tier: { currency } }: BudgetProps): JSX.Element => (
  <div class="budget">
    <span>
      {what}: {formatMoney(spent, currency)} spent, {formatMoney(held, currency)} held
    </span>
    <span class="quiet">{limit === null ? "no limit of its own" : `of ${formatMoney(limit, currency)}`}</span>
    {limit !== null && limit > 0 && (
      <Bar
        parts={[
          { name: "own", share: spent / limit },
          { name: "warn", share: held / limit },
        ]}
      />
    )}
  </div>
);
