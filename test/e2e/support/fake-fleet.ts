import { FakeAgent } from "../../../src/testing/fake-agent.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { startTestControl, type TestControl } from "./test-control.ts";

/** A control plane that leads. */
export async function leadingControl(options: Parameters<typeof startTestControl>[0] = {}): Promise<TestControl> {
  const control = await startTestControl(options);
  await eventually(
    "the lead",
    () => control.plane.leading,
    (leading) => leading,
  );
  return control;
}

export async function tokenFor(control: TestControl, node: string, replace = false): Promise<string> {
  const { body } = await control.ask<{ token: string }>("POST", "/v1/enrolment-tokens", {
    body: JSON.stringify({ node, replace }),
  });
  return body.token;
}

/** Enrolled, connected and led. */
export async function enrolledAgent(control: TestControl, name: string): Promise<FakeAgent> {
  const agent = new FakeAgent(name, await tokenFor(control, name));
  agent.connect(control.url);
  await agent.until(`the lead of ${name}`, () => agent.highestEpoch !== null);
  return agent;
}

/** Puts the catalog in force, whatever it takes away. */
export async function applyCatalog(control: TestControl, models: readonly Record<string, unknown>[]): Promise<void> {
  const body = JSON.stringify({ models });
  const first = await control.ask("PUT", "/v1/catalog", { body });
  if (first.status === 200) return;
  const token = first.body.details?.diff?.token ?? "";
  const again = await control.ask("PUT", `/v1/catalog?confirm=${token}`, { body });
  if (again.status !== 200) throw new Error(`the catalog was refused: ${JSON.stringify(again.body)}`);
}
