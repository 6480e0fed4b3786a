import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import type { BoardTables } from "../../src/contract/board.ts";
import { TestBrowser } from "../../src/testing/board/browser.ts";
import { StandInServer } from "../../src/testing/board/stand-in-server.ts";
import { LARGE, SMALL, SyntheticBoard } from "../../src/testing/board/synthetic-board.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { goTo } from "./support/board-world.ts";
import { assertAccessible, assertFits, scriptSeconds } from "./support/look.ts";

// The page alone, in a real browser, over made-up data: what no fleet on one machine can show.

const DIST = join(import.meta.dirname, "../../dashboard/dist");
const VIEWS = ["fleet", "models", "queues", "jobs", "overflow", "events", "usage", "try"] as const;
const TICKS = 5;
const DETAILS = ["fleet/n4", "models/whisper-large"] as const;

let browser: TestBrowser;
before(async () => {
  browser = await TestBrowser.start();
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
});

for (const theme of ["dark", "light"] as const)
  for (const width of [360, 1_280])
    test(`every view on ${width} px in ${theme} has no finding of axe-core, breaks no rule of its policy and runs out of the screen nowhere [60.W5 80.D35]`, async () => {
      await using server = await StandInServer.start(new SyntheticBoard(SMALL));
      const { page, troubles } = await browser.open(server.url, { width, height: 800, theme });
      await page.locator(".shell").waitFor();
      for (const place of [...VIEWS, ...DETAILS]) {
        await goTo(page, place);
        await assertAccessible(page, place);
        await assertFits(page, place);
      }
      await page.locator('[data-action="retry"]').click();
      await page.locator("dialog[open]").waitFor();
      await assertAccessible(page, "a confirmation");
      await page.context().close();
      assert.deepEqual(troubles, []);
    });

test("a fleet of 1 000 nodes with 8 cards each and 2 000 models draws what is seen alone, and an update of all cards and queues costs less than 50 ms of script [60.W4]", async (t) => {
  const board = new SyntheticBoard(LARGE);
  await using server = await StandInServer.start(board);
  const { page, troubles } = await browser.open(server.url, { width: 1_920, height: 1_080 });
  const shown = async (): Promise<void> =>
    page.locator(`.shell[data-at="${board.snapshot.at}"]`).waitFor({ state: "attached" });
  await shown();
  for (const place of ["fleet", "models", "queues"]) {
    await goTo(page, place);
    const list = page.locator(".scroll");
    assert.equal(
      await list.getAttribute("data-rows"),
      String(place === "queues" ? LARGE.upstreams : place === "fleet" ? LARGE.nodes : LARGE.models),
    );
    const rows = await page.locator(".row").count();
    assert.ok(rows > 4 && rows < 60, `${rows} rows of ${place} are drawn`);
    // The least of some rounds: a machine that does something else meanwhile only adds to it.
    const rounds: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      const ended = await scriptSeconds(page);
      for (let tick = 0; tick < TICKS; tick += 1) {
        server.tick();
        await shown();
      }
      rounds.push(((await ended()) / TICKS) * 1_000);
    }
    const ms = Math.min(...rounds);
    t.diagnostic(`${place}: ${ms.toFixed(1)} ms of script for an update, ${rows} rows drawn`);
    assert.ok(ms < 50, `${place}: ${ms} ms`);
    await list.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await page
      .locator(
        place === "models"
          ? `[aria-rowindex="${LARGE.models + 1}"]`
          : `[aria-posinset="${place === "fleet" ? LARGE.nodes : LARGE.upstreams}"]`,
      )
      .waitFor();
  }
  assert.deepEqual(troubles, []);
  await page.context().close();
});

test("the built page has at most 120 KB of script, compressed, nothing inline, and names no place outside [60.W4 80.D35]", async () => {
  await using _server = await StandInServer.start(new SyntheticBoard(SMALL));
  const files = new Map(
    readdirSync(DIST, { recursive: true, encoding: "utf8" })
      .filter((path) => /\.(js|css|html|svg)$/.test(path))
      .map((path) => [path, readFileSync(join(DIST, path), "utf8")]),
  );
  const scripts = [...files].filter(([path]) => path.endsWith(".js"));
  const bytes = scripts.reduce((sum, [, text]) => sum + gzipSync(text, { level: 9 }).length, 0);
  assert.ok(bytes > 0 && bytes <= 120 * 1_024, `${bytes} bytes`);
  const page = files.get("index.html") ?? "";
  assert.doesNotMatch(page, /<script(?![^>]* src="\.\/)|<style|\sstyle=|\son[a-z]+=/i);
  for (const [path, text] of files)
    for (const [url] of text.matchAll(/(?:https?:)?\/\/[a-z0-9-]+\.[a-z]{2,}[^\s"'`)]*/gi))
      assert.match(url, /www\.w3\.org/, `${path} names ${url}`);
});

test("a lost link is told with the age of what is shown, which counts up, and ends when news comes again, with nothing lost [60.W3]", async () => {
  await using server = await StandInServer.start(new SyntheticBoard(SMALL));
  const { page } = await browser.open(server.url);
  await page.locator(".link-state", { hasText: "live" }).waitFor();
  server.pause();
  const banner = page.locator(".lost");
  await banner.waitFor();
  assert.match(await banner.innerText(), /No news from the control plane\. What you see is \d+ s old/);
  await page.locator(".shell.is-stale").waitFor();
  assert.match(await page.title(), /no news/);
  const age = async (): Promise<number> => Number(/(\d+) s old/.exec(await banner.innerText())?.[1]);
  const first = await age();
  await eventually("an older page", age, (now) => now > first + 1);
  await assertAccessible(page, "a page without news");
  server.resume();
  await banner.getByRole("button", { name: "Try now" }).click();
  await banner.waitFor({ state: "detached" });
  assert.deepEqual(server.resumedFrom.at(-1), "s.0", "it says what it has taken");
  await page.context().close();
});

test("the board is worked by the keyboard alone: a node is found, opened, and drained behind a confirmation that says in numbers what will happen [60.W5 60.W2]", async () => {
  await using server = await StandInServer.start(new SyntheticBoard(SMALL));
  const { page } = await browser.open(server.url);
  await page.locator(".shell").waitFor();
  const focused = (): Promise<string> => page.evaluate(() => document.activeElement?.textContent ?? "");
  const tabTo = async (wanted: RegExp): Promise<void> => {
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("Tab");
      const seen = await page.evaluate(() => {
        const style = getComputedStyle(document.activeElement ?? document.body);
        return style.outlineStyle !== "none" && Number.parseFloat(style.outlineWidth) >= 2;
      });
      assert.ok(seen, `the focus is not seen on ${await focused()}`);
      if (wanted.test(await focused())) return;
    }
    assert.fail(`never came to ${String(wanted)}`);
  };
  await tabTo(/^gpu-05$/);
  await page.keyboard.press("Enter");
  await page.locator(".detail h2", { hasText: "gpu-05" }).waitFor();
  await eventually("the focus in the detail", focused, (text) => text === "gpu-05");
  await tabTo(/^Drain…$/);
  await page.keyboard.press("Enter");
  const dialog = page.locator("dialog[open]");
  await dialog.waitFor();
  assert.match(await dialog.innerText(), /1 replica is moved to other nodes: \d+ requests? runs? there now/);
  assert.equal(await focused(), "Leave it");
  await tabTo(/^Drain$/);
  await page.keyboard.press("Enter");
  await dialog.getByText(/NODE_SILENT: nothing stands behind this board/).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await eventually("the focus back on the button", focused, (text) => text === "Drain…");
  await page.context().close();
});

const HOSTILE = [
  "<img src=x onerror=alert(1)>",
  "'-alert(1)-'",
  "</script><script>alert(2)</script>",
  "javascript:alert(3)",
  "\u001B[31mred\u001B]0;x\u0007",
  "abc\u202Egpj.exe",
  `long-${"x".repeat(100_000)}`,
];

test("names of nodes, models, cards, jobs and events that are markup, escapes or 100 kB long stay short inert text on every page [80.D36 80.C49]", async () => {
  const board = new SyntheticBoard(SMALL);
  await using server = await StandInServer.start(board);
  const { page, troubles } = await browser.open(server.url);
  await page.locator(".shell").waitFor();
  const { tables } = board.snapshot;
  const spoilt = <T extends keyof BoardTables>(
    table: T,
    change: (row: BoardTables[T], name: string) => BoardTables[T],
  ): Record<string, BoardTables[T]> =>
    Object.fromEntries(
      Object.entries(tables[table] as Record<string, BoardTables[T]>)
        .slice(0, HOSTILE.length)
        .map(([key, row], index) => [key, change(row, HOSTILE[index] ?? "")]),
    );
  const [name = ""] = HOSTILE;
  server.tell({
    at: board.snapshot.at + 1_000,
    top: {
      severity: "critical",
      sentence: HOSTILE.join(" "),
      action: { view: "fleet", id: "n2", words: name, does: null },
      others: [],
      more: 0,
    },
    set: {
      nodes: spoilt("nodes", (row, text) => ({
        ...row,
        name: text,
        state: "unreachable",
        gpu_discovery: text,
        labels: { [text]: text },
      })),
      models: spoilt("models", (row, text) => ({ ...row, state: "parked", why: text, aliases: [text] })),
      replicas: spoilt("replicas", (row, text) => ({
        ...row,
        model: "qwen3.8-35b",
        state: "failed",
        why: text,
        restart: text,
      })),
      upstreams: spoilt("upstreams", (row, text) => ({ ...row, engine: text, away: text })),
      jobs: spoilt("jobs", (row, text) => ({ ...row, model: text, key: text, error: { code: text, message: text } })),
      events: spoilt("events", (row, text) => ({ ...row, kind: text, why: text, by: text })),
      gpus: spoilt("gpus", (row, text) => ({
        ...row,
        gpus: row.gpus.map((gpu) => ({ ...gpu, health: "sick" as const, why: text, class: text })),
      })),
    },
  });
  await page.locator(".shell", { hasText: "<img src=x" }).waitFor();
  for (const place of [
    ...VIEWS,
    "fleet/n0",
    "models/qwen3.8-35b",
    `jobs/${Object.keys(tables.jobs)[0]}`,
    `models/${encodeURIComponent(name)}`,
  ]) {
    await goTo(page, place);
    const text = await page.locator("body").innerText();
    // oxlint-disable-next-line no-control-regex -- what must not be there
    assert.doesNotMatch(text, /[\u001B\u202E\u0007]/, place);
    assert.ok(!text.includes("x".repeat(2_000)), `${place}: long names are cut`);
    assert.equal(await page.locator("img, body script, iframe, object, embed").count(), 0, place);
    assert.equal(await page.locator('a[href^="javascript:"]').count(), 0, place);
    await assertFits(page, place);
  }
  assert.deepEqual(troubles, []);
  await page.context().close();
});
