import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import type { AxeResults } from "axe-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe-core finds on the page as it is now, each with where. */
export async function findings(page: Page): Promise<readonly string[]> {
  if (!(await page.evaluate("typeof axe === 'object'"))) await page.evaluate(AXE);
  const results = (await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")) as AxeResults;
  return results.violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id} (${help}) at ${target.join(" ")}: ${failureSummary ?? ""}`),
  );
}

export async function assertAccessible(page: Page, what: string): Promise<void> {
  assert.deepEqual(await findings(page), [], what);
}

/** Text may run out of the screen to the side nowhere but where it can be scrolled. */
export async function assertFits(page: Page, what: string): Promise<void> {
  const [width, inner] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok((width ?? 0) <= (inner ?? 0), `${what}: ${width} px wide on a screen of ${inner}`);
}

export async function scriptSeconds(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const read = async (): Promise<number> => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find(({ name }) => name === "ScriptDuration")?.value ?? Number.NaN;
  };
  const before = await read();
  return async () => (await read()) - before;
}
