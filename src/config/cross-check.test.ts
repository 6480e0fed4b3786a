import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConfigOverrides } from "../contract/resolve-config.ts";
import { parseConfigText } from "./load-config.ts";

const warnings = (text: string, overrides: ConfigOverrides = {}): readonly string[] => {
  const loaded = parseConfigText(text, "y.yaml", {}, overrides);
  assert.ok(loaded.kind === "valid", JSON.stringify(loaded));
  return loaded.warnings;
};

const WITH_CATALOG = "control: {catalog: {file: catalog.yaml}}\nupstreams: []";

test("no upstreams are a warning, except where a catalog or a control plane may say what is served", () => {
  assert.match(warnings("upstreams: []").join("\n"), /upstreams: is empty: every request will be answered 404/);
  assert.deepEqual(warnings(WITH_CATALOG), []);
  assert.match(
    warnings(WITH_CATALOG, { standIn: false }).join("\n"),
    /answered 404/,
    "a gateway with nothing beside it",
  );
});
