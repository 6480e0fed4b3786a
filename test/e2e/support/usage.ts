import { usageView, type UsageRowView, type UsageView } from "../../../src/contract/usage-view.ts";
import type { TestGateway } from "./test-gateway.ts";

/** What `GET /usage` says, to an operator unless another key is given. */
export async function usageOf(
  gateway: Pick<TestGateway, "port" | "keys">,
  query = "",
  key: string = gateway.keys.operator,
): Promise<UsageView> {
  const answer = await fetch(`http://127.0.0.1:${gateway.port}/usage${query}`, {
    headers: { authorization: `Bearer ${key}` },
  });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`${answer.status} ${text}`);
  return usageView.parse(JSON.parse(text));
}

/** By key and model, without the days: a test may run over midnight. */
export async function rowsOf(
  gateway: Pick<TestGateway, "port" | "keys">,
  query = "",
): Promise<ReadonlyMap<string, UsageRowView>> {
  const { rows } = await usageOf(gateway, `?group=key,model${query}`);
  return new Map(rows.map((row) => [`${row.key} ${row.model}`, row]));
}
