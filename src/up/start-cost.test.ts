import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const loadedBy = (role: string): string[] => {
  const url = new URL(`./${role}-role.ts`, import.meta.url).href;
  const said = execFileSync(process.execPath, [
    "--disable-warning=ExperimentalWarning",
    "--input-type=module",
    "--eval",
    `await import(${JSON.stringify(url)}); console.log(process.moduleLoadList.join("\\n"));`,
  ]);
  return said.toString().split("\n");
};

// What a start pays for and nothing uses comes in by one import, and nobody sees it: a module of Node that reads all its exports, say.
for (const role of ["gateway", "control", "agent", "sim-engine", "up"]) {
  test(`the ${role} role starts without Node's implementation of fetch`, () => {
    const loaded = loadedBy(role);
    assert.ok(
      loaded.some((name) => name.endsWith(" net")),
      "the list names what was loaded",
    );
    assert.deepEqual(
      loaded.filter((name) => name.includes("deps/undici")),
      [],
    );
  });
}

test("a gateway starts without TLS as long as it speaks to nobody by it", () => {
  assert.deepEqual(
    loadedBy("gateway").filter((name) => / (?:tls|https)$/.test(name)),
    [],
  );
});
