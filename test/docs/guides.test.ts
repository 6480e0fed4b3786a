import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { startFakeComfy } from "../../src/testing/comfyui/fake-comfyui.ts";
import { anEngine } from "../e2e/support/an-engine.ts";
import { blocksOf, Guide, guidePath } from "./support/guide.ts";

// Each guide, followed as it is written in an empty folder: its files are written, its commands run, and what it says that will be seen is seen.

/** Guides, and what stands in them that a reader does elsewhere: installing, engines that need a card, keys that are put into variables. */
const GUIDES: Readonly<Record<string, readonly string[]>> = {
  "quickstart.md": ["npm ci"],
  "two-vllm-servers.md": ["export ROOT_KEY"],
  "from-a-reverse-proxy.md": ["upstream llm", "location /"],
  "from-litellm.md": ["export TEAM_KEY"],
  "from-llama-swap.md": ["yardmaster up"],
  "one-box.md": ["llama-server", "python main.py"],
};

for (const [name, elsewhere] of Object.entries(GUIDES)) {
  test(`the guide ${name}, followed as it is written, comes to what it promises`, async () => {
    const page = readFileSync(guidePath(name), "utf8");
    const blocks = blocksOf(page);
    const unmarked = blocks.filter(({ marker }) => marker === null).map(({ text }) => text);
    assert.ok(
      unmarked.length === elsewhere.length && elsewhere.every((begin, at) => unmarked[at]?.startsWith(begin)),
      `blocks that nothing is said of: ${unmarked.join("\n")}`,
    );
    await using engine =
      name === "one-box.md" ? await anEngine({ dialect: "llama.cpp", models: ["qwen3-8b"], slots: 4 }) : undefined;
    const comfy = name === "one-box.md" ? await startFakeComfy() : undefined;
    const known = new Map<string, number>();
    if (engine !== undefined) known.set("8080", Number(new URL(engine.url).port));
    if (comfy !== undefined) known.set("8188", Number(new URL(comfy.url).port));
    try {
      await using guide = await Guide.open(page, known);
      for (const block of blocks) await guide.follow(block);
    } finally {
      await comfy?.close();
    }
  });
}

const ROOT = join(import.meta.dirname, "../..");

test("each link of a page leads to a page, and to a heading that it has", () => {
  const anchors = (text: string): string[] =>
    [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    );
  const broken = globSync(["*.md", "docs/**/*.md", "test/**/*.md"], {
    cwd: ROOT,
    exclude: ["node_modules/**"],
  }).flatMap((file) => {
    const text = readFileSync(join(ROOT, file), "utf8").replaceAll(/```[\s\S]*?```/g, "");
    return [...text.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, link = ""]) => {
      if (/^[a-z]+:/.test(link)) return [];
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? file : join(dirname(file), path);
      const there = globSync(target, { cwd: ROOT }).length > 0;
      const leads =
        there &&
        (anchor === undefined ||
          !target.endsWith(".md") ||
          anchors(readFileSync(join(ROOT, target), "utf8")).includes(anchor));
      return leads ? [] : [`${file}: ${link}`];
    });
  });
  assert.deepEqual(broken, []);
});
