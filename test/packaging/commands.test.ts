import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { CTL_AUDIT_COMMANDS } from "../../src/cli/ctl-audit.ts";
import { ctlVerify } from "../../src/cli/ctl-verify.ts";
import { cliCommands } from "../../src/cli/commands.ts";
import { ran, read, ROOT } from "./support/tools.ts";

// Whatever is shipped or told to be typed exists: commands, and flags of roles.

const ROLES = ["gateway", "control", "agent", "up"];

/** Words of `yardmaster …` up to the first that is no plain word. */
const commandIn = (text: string): string[] => {
  const words = text.trim().split(/\s+/);
  const end = words.findIndex((word) => !/^[a-z][a-z-]*$/.test(word));
  return end < 0 ? words : words.slice(0, end);
};

test("every command that the pages on packaging and the runbook tell to type exists", () => {
  const known = [
    ...[...cliCommands, ...CTL_AUDIT_COMMANDS, ctlVerify].map(({ words }) => words.join(" ")),
    ...ROLES,
    "sim-engine",
  ];
  const pages = ["docs/operating/runbook.md", "docs/operating/packaging.md", "deploy/compose/setup.sh"];
  for (const page of pages) {
    const found = [
      ...read(page).matchAll(/(?:^|[`/ (])yardmaster ((?:ctl|config|key|up|gateway|control|agent)\b[^`\n|]*)/gm),
    ];
    assert.ok(found.length > 0, page);
    for (const [, text = ""] of found) {
      const words = commandIn(text);
      const there = known.some((command) => words.join(" ") === command || words.join(" ").startsWith(`${command} `));
      assert.ok(there, `${page}: yardmaster ${text}`);
    }
  }
});

test("every flag that units, containers and the chart start a role with is one of that role's", () => {
  const compose = parse(read("deploy/compose/compose.yaml"), { merge: true }) as {
    services: Record<string, { command?: string[] }>;
  };
  const lines = [
    ...globSync("deploy/systemd/*.service", { cwd: ROOT }).flatMap(
      (path) => /^ExecStart=\S+ (.*)$/m.exec(read(path))?.[1] ?? assert.fail(path),
    ),
    ...Object.values(compose.services).map(({ command = [] }) => command.join(" ")),
    ...globSync("deploy/helm/yardmaster/templates/*.yaml", { cwd: ROOT }).flatMap((path) => [
      ...[...read(path).matchAll(/args: \[((?:gateway|control).*)\]$/gm)].map(([, words = ""]) =>
        words.replaceAll(",", ""),
      ),
      ...[...read(path).matchAll(/bin\/yardmaster (agent .*)$/gm)].map(([, words = ""]) => words),
    ]),
    ...[...read("Dockerfile").matchAll(/^CMD \["(agent.*)"\]$/gm)].map(([, words = ""]) =>
      words.replaceAll('", "', " "),
    ),
  ].filter((line) => ROLES.some((role) => line.startsWith(role)));
  assert.ok(lines.length >= 12, lines.join("\n"));
  const helps = new Map(ROLES.map((role) => [role, ran(join(ROOT, "bin/yardmaster"), [role, "--help"]).text] as const));
  for (const line of lines) {
    const [role = "", ...words] = line.split(" ");
    for (const word of words)
      if (word.startsWith("--")) assert.ok(helps.get(role)?.includes(`  ${word} `), `${line}: ${word}`);
  }
});
