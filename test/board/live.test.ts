import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { aGpu } from "../../src/testing/fake-nvidia-smi.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startCall } from "../e2e/support/calls.ts";
import { OUTSIDE_KEY } from "../e2e/support/overflow-world.ts";
import { CONTROL_ROUTES } from "../../src/contract/control-api.ts";
import { OPERATOR_KEY, reach } from "../e2e/support/program.ts";
import { BoardWorld, confirm, goTo, HOSTILE_MODEL, HOSTILE_TEXT } from "./support/board-world.ts";
import { assertAccessible, assertFits } from "./support/look.ts";

// The board as a person meets it: a real browser on a real `up`, with simulated engines and cards.

const START_MS = 45_000;

let world: BoardWorld;
let page: Page;
let troubles: readonly string[];
before(async () => {
  world = await BoardWorld.start();
});
after(async () => {
  await world?.[Symbol.asyncDispose]();
});

/** What the control plane says that happened, and who asked for it. */
async function events(kind: string): Promise<readonly { readonly by: string | null; readonly why: string }[]> {
  const answer = await fetch(`${world.control}/v1/events?limit=1000&kind=${kind}`, {
    headers: { authorization: `Bearer ${OPERATOR_KEY}` },
  });
  return ((await answer.json()) as { events: { by: string | null; why: string }[] }).events;
}

const replicas = (): ReturnType<Page["locator"]> => page.locator(".detail .cards > li", { hasText: "in flight" });
const readyReplicas = (): ReturnType<Page["locator"]> => replicas().filter({ hasText: "ready for" });

test("the link that `up` prints signs one browser in, once, and leaves nothing of itself in the address; a second one is told why not, and a wrong key by its code [60.W1 80.C49]", async () => {
  ({ page, troubles } = await world.browser.open(world.link));
  await page.locator(".shell").waitFor();
  assert.equal(new URL(page.url()).hash, "");
  assert.match(await page.locator(".who").innerText(), /local-operator \(admin\)/);
  const second = await world.browser.open(world.link);
  await second.page.locator(".notice").waitFor();
  assert.match(await second.page.locator(".notice").innerText(), /^UNAUTHORIZED: the link was used already/);
  await second.page.getByLabel("Key").fill("CANARY-no-such-key-0123456789abcdef0123456789");
  await second.page.getByRole("button", { name: "Sign in" }).click();
  await second.page.locator(".notice", { hasText: "UNAUTHORIZED" }).waitFor();
  await assertAccessible(second.page, "the sign-in");
  const made = await fetch(world.control + CONTROL_ROUTES.boardLinks, {
    method: "POST",
    headers: { authorization: `Bearer ${OPERATOR_KEY}` },
  });
  const { path } = (await made.json()) as { path: string };
  // In the page that is open already: nothing is loaded anew.
  await second.page.goto(world.control + path);
  await second.page.locator(".shell").waitFor();
  assert.equal(new URL(second.page.url()).hash, "");
  await second.page.context().close();
});

test("the first line says the worst that is wrong and leads to it; the fleet shows each card with who holds it, a sick one with its cause and what nobody measured as unknown [60.W1]", async () => {
  await page.locator("h1", { hasText: /broken is parked/ }).waitFor({ timeout: START_MS });
  const tiles = page.locator(".tile");
  await tiles.filter({ hasText: "chat" }).waitFor({ timeout: START_MS });
  assert.equal(await tiles.count(), 4);
  assert.match(await tiles.nth(2).innerText(), /–/, "its utilisation is not known");
  assert.equal(await tiles.nth(2).locator(".bar.is-slim.hatched").count(), 1);
  world.smi.set({ gpus: [aGpu(0), aGpu(1), aGpu(2), aGpu(3, { cells: { "remapped_rows.failure": "Yes" } })] });
  const sick = page.locator(".tile.is-sick");
  await sick.waitFor({ timeout: START_MS });
  assert.match(await sick.innerText(), /sick[\s\S]*row/);
  await page.locator(".sentence a").first().click();
  await page.locator(".detail h2", { hasText: "broken" }).waitFor();
  assert.match(await page.locator(".detail .notice").first().innerText(), /code 1/);
});

test("a parked model is retried, and one without room says what each node lacks [60.W1 60.W2]", async () => {
  const said = await confirm(page, "retry", page.locator(".detail"));
  assert.match(said, /Retry model broken\?[\s\S]*1 failure in a row[\s\S]*1 replica to start[\s\S]*Done/);
  assert.deepEqual(
    (await events("modelRetried")).map(({ by }) => by),
    ["local-operator"],
  );
  await goTo(page, "models/vast");
  await page.locator(".detail .lines", { hasText: "node-a" }).waitFor();
  assert.match(await page.locator(".detail .lines").innerText(), /b200/);
});

test("a model is scaled, its replica restarted beside and in its place, and rolled out, each behind a confirmation in numbers and on record under the key that asked [60.W2]", async () => {
  await goTo(page, "models/chat");
  await readyReplicas().first().waitFor({ timeout: START_MS });
  await page.getByLabel("How many replicas").fill("2");
  assert.match(
    await confirm(page, "scale"),
    /Scale chat to 2 replicas\?[\s\S]*1 replica is started[\s\S]*allows 1 to 2[\s\S]*Done/,
  );
  await eventually(
    "two ready replicas",
    () => readyReplicas().count(),
    (count) => count === 2,
    START_MS,
  );
  const [first] = await replicaIds();
  const restarted = await confirm(page, "restart", replicas().first());
  assert.match(restarted, /A replacement is placed beside it where there is room[\s\S]*Done/);
  await eventually("its replacement", replicaIds, (ids) => ids.length === 2 && !ids.includes(first ?? ""), START_MS);
  await eventually(
    "two ready replicas",
    () => readyReplicas().count(),
    (count) => count === 2,
    START_MS,
  );
  await page.locator(".detail").getByRole("button", { name: "Log" }).first().click();
  await page.locator(".detail .log").waitFor();
  const inPlace = page.locator(".detail").getByRole("button", { name: "Restart in place…" }).first();
  await inPlace.click();
  assert.match(await page.locator("dialog[open]").innerText(), /It stops first: 0 requests run there now/);
  await page.locator("dialog[open]").getByRole("button", { name: "Leave it" }).click();
  assert.match(
    await confirm(page, "rollout", page.locator(".detail")),
    /Roll out chat\?[\s\S]*2 ready replicas are replaced[\s\S]*2 replicas are asked to restart/,
  );
  for (const kind of ["modelScaled", "restartAsked"])
    assert.ok(
      (await events(kind)).every(({ by }) => by === "local-operator"),
      kind,
    );
});

const replicaIds = (): Promise<string[]> => page.locator(".detail .cards > li .mono").allInnerTexts();

test("a node is cordoned, let go again and drained; a refusal shows the code that ctl prints [60.W2]", async () => {
  await goTo(page, "fleet");
  await page.getByRole("link", { name: "node-a" }).click();
  await page.locator(".detail h2", { hasText: "node-a" }).waitFor();
  assert.match(
    await confirm(page, "cordon"),
    /Cordon node node-a\?[\s\S]*Nothing new is placed there[\s\S]*\d+ replicas? there \(\d+ requests run there now\)[\s\S]*Done/,
  );
  await page.locator(".node .state", { hasText: "cordoned" }).waitFor();
  assert.match(await confirm(page, "uncordon"), /Uncordon node node-a\?[\s\S]*Done/);
  await page.locator(".node .state", { hasText: "ready" }).waitFor();
  assert.match(await confirm(page, "drain"), /Drain node node-a\?[\s\S]*(is|are) moved to other nodes[\s\S]*Done/);
  await page.locator(".node .state", { hasText: "draining" }).waitFor();
  await confirm(page, "uncordon");
  for (const kind of ["nodeCordoned", "nodeDraining", "nodeUncordoned"])
    assert.equal((await events(kind))[0]?.by, "local-operator", kind);
  await page.route("**/v1/nodes/*/cordon", (route) =>
    route.continue({ url: `${world.control}/v1/nodes/nobody/cordon` }),
  );
  assert.match(await confirm(page, "cordon"), /NODE_UNKNOWN: /);
  await page.unroute("**/v1/nodes/*/cordon");
});

test("queues show slots in use and waiting requests by class as they are, with the line of batch_max and times of the last minute [60.W1]", async () => {
  const running = Array.from({ length: 6 }, () =>
    startCall(
      { ...reach(world.port), keys: { ...reach(world.port).keys, client: OUTSIDE_KEY } },
      {
        body: {
          model: "steady",
          stream: true,
          messages: [{ role: "user", content: "hi" }],
          sim: { tokens: 400, delayBetweenMs: 20 },
        },
        headers: { "x-yardmaster-class": "interactive" },
      },
    ),
  );
  await goTo(page, "queues");
  const queue = page.locator(".queue", { has: page.locator("h3", { hasText: "steady" }) });
  const cells = (): Promise<string[]> => queue.locator("tbody tr").first().locator("td").allInnerTexts();
  await eventually("four run and two wait", cells, ([used, waiting]) => used === "4" && waiting === "2");
  assert.match(
    (await queue.locator(".plot").getAttribute("aria-label")) ?? "",
    /now 4 of 4: 4 interactive, 0 system, 0 batch/,
  );
  assert.match(await queue.locator(".queue-head").innerText(), /people wait[\s\S]*4 slots, batch_max 3/);
  assert.match(await queue.locator(".times").innerText(), /longest wait\s+\d/);
  for (const call of running) call.leave();
  await eventually("nobody waits", cells, ([used, waiting]) => used === "0" && waiting === "0");
});

async function submitJob(): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${world.port}/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${OUTSIDE_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({
      path: "/v1/chat/completions",
      class: "batch",
      body: { model: "steady", messages: [{ role: "user", content: "hi" }], sim: { tokens: 2 } },
    }),
  });
  const job = (await answer.json()) as { id: string };
  assert.equal(answer.status, 202, JSON.stringify(job));
  return job.id;
}

test("a job that waits for somebody's word shows what its tier lacks, and an administrator lets it go for at most so much; an approver, who is told of no jobs, does so by an id; another one is cancelled [60.W2]", async () => {
  const [held, named, other] = [await submitJob(), await submitJob(), await submitJob()];
  await goTo(page, "overflow");
  const card = page.locator(".cards > li", { hasText: held });
  await card.waitFor();
  assert.match(await card.innerText(), /cloud lacks no_job_approval/);
  assert.match(await page.locator(".trigger").innerText(), /steady[\s\S]*card is loaded[\s\S]*42\.4\s+40/);
  await card.getByLabel("at most").fill("0.75");
  const said = await confirm(page, "overflowApprove", card);
  assert.match(
    said,
    /Let job \S+ go to cloud\?[\s\S]*leaves the house, and up to 0\.75[\s\S]*ends after 60 minutes[\s\S]*Done/,
  );
  const approver = await world.signIn("approver");
  assert.deepEqual(await approver.page.locator(".tabs a").allInnerTexts(), ["Overflow"]);
  await approver.page.getByLabel("Job").fill(named);
  await approver.page.getByLabel("at most").fill("0,80");
  assert.match(await confirm(approver.page, "overflowApprove"), /up to 0\.80[\s\S]*Done/);
  await approver.page.context().close();
  await world.cloud.until("work for money", ({ tasks }) => tasks.length >= 2);
  await goTo(page, `jobs/${other}`);
  await page.locator(".detail .plan", { hasText: "held" }).waitFor();
  assert.match(
    await confirm(page, "jobCancel"),
    /Cancel job \S+\?[\s\S]*0 of 1 done[\s\S]*No engine is working on it[\s\S]*Done/,
  );
  await page.locator(".detail .state", { hasText: "cancelled" }).waitFor();
  assert.equal(await page.locator('.detail [data-action="jobCancel"]').count(), 0);
});

test("all spending is stopped with one button, and allowed again [60.W2]", async () => {
  await goTo(page, "overflow");
  assert.match(await confirm(page, "overflowStop"), /Stop all spending\?[\s\S]*any of 1 tier[\s\S]*Done/);
  await page.locator(".notice", { hasText: "All spending was stopped by local-operator" }).waitFor();
  await confirm(page, "overflowGo");
  await page.locator('[data-action="overflowStop"]').waitFor();
});

test("a button that the role may not use isn't there [60.W2]", async () => {
  const operator = await world.signIn("operator");
  const shows = async (place: string): Promise<readonly string[]> => {
    await goTo(operator.page, place);
    return operator.page
      .locator("[data-action]")
      .evaluateAll((buttons) => buttons.map((button) => button.getAttribute("data-action") ?? ""));
  };
  assert.deepEqual(await shows("overflow"), ["overflowStop"], "an operator may stop, and not spend");
  await goTo(operator.page, "fleet");
  await operator.page.getByRole("link", { name: "node-a" }).click();
  await operator.page.locator('[data-action="drain"]').waitFor();
  assert.equal(await operator.page.locator('[data-action="nodeRemove"]').count(), 0);
  await operator.page.context().close();
});

async function tryIt(model: string, prompt: string): Promise<void> {
  await goTo(page, "try");
  await page.getByLabel("Model", { exact: true }).fill(model);
  await page.getByLabel("Prompt", { exact: true }).fill(prompt);
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByText(/^Finished\./).waitFor({ timeout: START_MS });
}

test("a model is tried: its answer streams in, with queue time, first byte and speed beside it, and counts as a request of the key [60.W6]", async () => {
  await tryIt("steady", "Say hello.");
  const figures = await page.locator(".big-figures dd").allInnerTexts();
  assert.match(figures[0] ?? "", /^\d+ ms$/);
  assert.match(figures[1] ?? "", /^[\d.]+ m?s$/);
  assert.match(figures[2] ?? "", /^[\d.\u2009]+ tokens\/s$/);
  assert.ok((await page.locator("[data-answer]").innerText()).length > 10);
  await goTo(page, "usage");
  await eventually(
    "its usage",
    async () => {
      await page.getByLabel("Parted by").selectOption("model");
      await page.getByLabel("Parted by").selectOption("key,model");
      return page.locator(".usage tr", { hasText: "local-operator" }).filter({ hasText: "steady" }).count();
    },
    (count) => count === 1,
    START_MS,
  );
});

test("on a phone usage shows whom it is of in one line each and every figure with its name, and events say of what they are [60.W5]", async () => {
  const { width, height } = page.viewportSize() ?? { width: 1_280, height: 800 };
  await page.setViewportSize({ width: 360, height: 740 });
  const row = page.locator(".usage tbody tr", { hasText: "local-operator" }).first();
  const [name, figure] = [row.locator("td").first(), row.locator("td.num").first()];
  assert.ok(((await name.boundingBox())?.height ?? 0) < 40);
  assert.ok(((await figure.boundingBox())?.width ?? 0) > 60);
  assert.equal(await figure.evaluate((element) => getComputedStyle(element, "::before").content), '"requests"');
  await assertFits(page, "usage");
  await goTo(page, "events");
  assert.match(await page.locator(".of-events .row", { hasText: "replicaReady" }).first().innerText(), /steady|chat/);
  await page.setViewportSize({ width, height });
});

test("what a hostile engine answers, and a model that is named like markup, stay text: no dialog, no element, no rule of the policy broken [80.D36 80.C49]", async () => {
  await tryIt(HOSTILE_MODEL, "<b>hello</b>");
  assert.equal(await page.locator("[data-answer]").innerText(), HOSTILE_TEXT.replace("\u001B", "⟨001B⟩"));
  await goTo(page, "queues");
  await page.locator(".queue", { hasText: "hostile" }).waitFor();
  await goTo(page, "events");
  assert.equal(await page.locator("img, body script, iframe").count(), 0);
  assert.deepEqual(troubles, []);
});

test("events are filtered by kind and words, and say who asked [60.W1]", async () => {
  await goTo(page, "events");
  await page.getByLabel("Kind of event").selectOption("nodeDraining");
  const row = page.locator(".of-events .row", { hasText: "nodeDraining" }).last();
  await row.waitFor();
  assert.match(await row.innerText(), /node-a[\s\S]*local-operator/);
  await page.getByLabel("Find an event").fill("no such words");
  await page.getByText("No event fits what you look for").waitFor();
});

test("a control plane that says nothing is told by the age of the page, and the page goes on by itself when it is back [60.W3]", async () => {
  await goTo(page, "fleet");
  world.program.kill("SIGSTOP");
  await page.locator(".lost").waitFor();
  assert.match(await page.locator(".lost").innerText(), /What you see is \d+ s old/);
  world.program.kill("SIGCONT");
  await page.locator(".lost").waitFor({ state: "detached" });
  await page.locator(".link-state", { hasText: "live" }).waitFor();
});

test("every view of the real system has no finding of axe-core [60.W5]", async () => {
  for (const place of ["fleet", "models/chat", "queues", "jobs", "overflow", "events", "usage", "try"]) {
    await goTo(page, place);
    await assertAccessible(page, place);
  }
});

test("a change of the catalog that takes models away waits under the first line until it is put in force there, and a node is removed with its credential [60.W2]", async () => {
  await goTo(page, "models");
  await world.writeCatalog(["vast"]);
  assert.match(await confirm(page, "catalogConfirm", page.locator(".sentence")), /held change[\s\S]*chat[\s\S]*Done/);
  await eventually(
    "the new catalog",
    () => page.locator(".of-models .row", { hasText: "broken" }).count(),
    (count) => count === 0,
  );
  await goTo(page, "fleet");
  await page.getByRole("link", { name: "node-a" }).click();
  assert.match(await confirm(page, "nodeRemove"), /Remove node node-a\?[\s\S]*Its credential ends[\s\S]*Done/);
  await page.getByText("No node has enrolled yet").waitFor();
  await assertAccessible(page, "a fleet without a node");
});

test("signing out ends the session in every tab [60.W1]", async () => {
  const tab = await page.context().newPage();
  await tab.goto(world.url);
  await tab.locator(".shell").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key").waitFor();
  await tab.getByLabel("Key").waitFor();
  assert.deepEqual(troubles, []);
});
