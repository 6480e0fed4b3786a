import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { parse as parseYaml, stringify } from "yaml";
import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import { TestBrowser, type WatchedPage } from "../../../src/testing/board/browser.ts";
import type { FakeCloud } from "../../../src/testing/cloud/fake-cloud.ts";
import { aGpu, type FakeNvidiaSmi, fakeNvidiaSmi } from "../../../src/testing/fake-nvidia-smi.ts";
import { anEngine } from "../../e2e/support/an-engine.ts";
import { aCloud, aTier, ENV, OUTSIDE_KEY, signalPages, type SignalPages } from "../../e2e/support/overflow-world.ts";
import {
  configText,
  OPERATOR_KEY,
  type ProgramFolder,
  programFolder,
  type RunningProgram,
  runProgram,
} from "../../e2e/support/program.ts";
import { engineBlock, PORTS } from "../../e2e/support/test-agent.ts";

/** What an engine that means harm says: if any of it were more than text, a dialog would open. */
export const HOSTILE_TEXT = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u001B[31m";
export const HOSTILE_MODEL = "<img src=x onerror=alert(3)>";
const KEYS = {
  operator: "CANARY-board-operator-0123456789abcdef0123456789",
  approver: "CANARY-board-approver-0123456789abcdef012345678",
};

const hashOf = (key: string): string => `sha256:${createHash("sha256").update(key).digest("hex")}`;

/**
 * `yardmaster up` as a person starts it, with everything that a board can show: a node with cards, models that run, find no room or
 * fail, static upstreams, one of them with overflow to a cloud, and an engine that answers with markup.
 */
export class BoardWorld implements AsyncDisposable {
  readonly browser: TestBrowser;
  readonly folder: ProgramFolder;
  readonly program: RunningProgram;
  readonly smi: FakeNvidiaSmi;
  readonly engine: SimEngine;
  readonly pages: SignalPages;
  readonly cloud: FakeCloud;
  port = 0;
  /** The one-time link that was printed, and the page without it. */
  link = "";
  url = "";
  readonly #close: () => Promise<void>;

  static async start(): Promise<BoardWorld> {
    const [browser, folder, engine, pages, cloud, hostile] = await Promise.all([
      TestBrowser.start(),
      programFolder(),
      anEngine({ models: ["steady"], slots: 4 }),
      signalPages(),
      aCloud(),
      hostileEngine(),
    ]);
    const smi = fakeNvidiaSmi(folder.path, {
      gpus: [aGpu(0), aGpu(1), aGpu(2, { cells: { "utilization.gpu": "[N/A]" } }), aGpu(3)],
    });
    await writeFile(join(folder.path, "catalog.yaml"), stringify({ models: MODELS }));
    await writeFile(
      folder.config,
      configOf(folder.path, { smi, engine: engine.url, hostile: hostile.url, pages, cloud }),
      { mode: 0o600 },
    );
    const program = runProgram(["up", "--config", folder.config], { cwd: folder.path, env: ENV });
    const world = new BoardWorld({ browser, folder, program, smi, engine, pages, cloud, close: hostile.close });
    world.port = await program.ready();
    world.link = (await program.said(/^ {2}board +(http:\S+)$/m))[1] ?? "";
    world.url = world.link.split("#")[0] ?? "";
    return world;
  }

  private constructor(
    parts: Pick<BoardWorld, "browser" | "folder" | "program" | "smi" | "engine" | "pages" | "cloud"> & {
      readonly close: () => Promise<void>;
    },
  ) {
    this.browser = parts.browser;
    this.folder = parts.folder;
    this.program = parts.program;
    this.smi = parts.smi;
    this.engine = parts.engine;
    this.pages = parts.pages;
    this.cloud = parts.cloud;
    this.#close = parts.close;
  }

  /** Of the control plane that serves the board. */
  get control(): string {
    return new URL(this.url).origin;
  }

  /** Over the watched file, with these models alone. */
  writeCatalog(names: readonly (typeof MODELS)[number]["name"][]): Promise<void> {
    const models = MODELS.filter(({ name }) => names.includes(name));
    return writeFile(join(this.folder.path, "catalog.yaml"), stringify({ models }));
  }

  /** A browser of its own, signed in with a key. */
  async signIn(
    role: "operator" | "approver" | "admin",
    options: Parameters<TestBrowser["open"]>[1] = {},
  ): Promise<WatchedPage> {
    const watched = await this.browser.open(this.url, options);
    const { page } = watched;
    await page.getByLabel("Key").fill(role === "admin" ? OPERATOR_KEY : KEYS[role]);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator(".shell").waitFor();
    return watched;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.browser[Symbol.asyncDispose]();
    this.program.kill("SIGCONT");
    this.program.kill("SIGINT");
    await this.program.end().catch(() => {});
    await this.program[Symbol.asyncDispose]();
    await Promise.all([this.engine.close(), this.pages[Symbol.asyncDispose](), this.cloud.close(), this.#close()]);
    await this.folder[Symbol.asyncDispose]();
  }
}

const GPU = { class: ["h200"], count: 1, memory_gb: 20 };

const MODELS = [
  { name: "chat", replicas: { min: 1, max: 2 }, slots_per_replica: 4, profiles: [{ engine: "sim", gpu: GPU }] },
  { name: "vast", profiles: [{ engine: "sim", gpu: { class: ["b200"], count: 8, memory_gb: 170 } }] },
  {
    name: "broken",
    profiles: [
      {
        engine: "command",
        command: ["/bin/false"],
        cpu: { cores: 0.01, memory_gb: 0.001 },
      },
    ],
  },
] as const;

interface Places {
  readonly smi: FakeNvidiaSmi;
  readonly engine: string;
  readonly hostile: string;
  readonly pages: SignalPages;
  readonly cloud: FakeCloud;
}

function configOf(folder: string, { smi, engine, hostile, pages, cloud }: Places): string {
  const first = engineBlock();
  const { auth, ...rest } = parseYaml(configText(folder, {})) as {
    readonly auth: { readonly keys: readonly unknown[] };
  };
  const keys = [
    ...auth.keys,
    { id: "night", hash: hashOf(KEYS.operator), role: "operator" },
    { id: "purse", hash: hashOf(KEYS.approver), role: "approver" },
    {
      id: "outside",
      hash: hashOf(OUTSIDE_KEY),
      role: "client",
      classes: ["batch", "interactive"],
      allow_external: true,
    },
  ];
  return stringify({
    ...rest,
    auth: { ...auth, keys },
    control: {
      listen: "127.0.0.1:0",
      catalog: { file: join(folder, "catalog.yaml") },
      park_after: 1,
      stop_grace_s: 1,
      drain_grace_s: 1,
      settle_s: 2,
    },
    agent: {
      name: "node-a",
      nvidia_smi: smi.path,
      engine_ports: `${first}-${first + PORTS - 1}`,
      commands: ["/bin/false"],
    },
    upstreams: [
      { id: "steady", models: ["steady"], engine: "vllm", slots: 4, batch_max: 3, endpoints: [{ url: engine }] },
      { id: "hostile", models: [HOSTILE_MODEL], engine: "generic", slots: 2, endpoints: [{ url: hostile }] },
    ],
    overflow: [
      {
        upstream: "steady",
        signals: [{ kind: "comfyui_vram", url: `${pages.url}/system_stats`, busy_pct: 40 }],
        signal_memory_ms: 0,
        hold_s: 600,
        tiers: [{ ...aTier(cloud), approval: "per_job" }],
      },
    ],
  });
}

async function hostileEngine(): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const json = (res: ServerResponse, body: unknown): void => {
    res.setHeader("content-type", "application/json");
    res.end(JSON.stringify(body));
  };
  const server = createServer((req, res) => {
    if (req.url === "/v1/models") return json(res, { object: "list", data: [{ id: HOSTILE_MODEL, object: "model" }] });
    if (req.method !== "POST") return json(res, { status: "ok" });
    res.setHeader("content-type", "text/event-stream");
    const chunk = (delta: unknown, finish: string | null): string =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: HOSTILE_MODEL, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
    res.end(`${chunk({ role: "assistant", content: HOSTILE_TEXT }, null)}${chunk({}, "stop")}data: [DONE]\n\n`);
    return undefined;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export const goTo = async (page: Page, place: string): Promise<void> => {
  await page.evaluate((hash) => void (location.hash = hash), `#/${place}`);
  await page
    .locator(place.includes("/") ? ".detail h2" : ".pane h2")
    .first()
    .waitFor();
};

/** Clicks the action, and confirms it. What the confirmation said. */
export async function confirm(page: Page, action: string, within = page.locator("body")): Promise<string> {
  await within.locator(`[data-action="${action}"]`).first().click();
  const dialog = page.locator("dialog[open]");
  await dialog.waitFor();
  const said = await dialog.innerText();
  await dialog.locator(".buttons .button").last().click();
  await dialog.locator(".notice").waitFor();
  const outcome = await dialog.locator(".notice").innerText();
  await dialog.locator(".buttons .button").first().click();
  await dialog.waitFor({ state: "detached" });
  return `${said}\n${outcome}`;
}
