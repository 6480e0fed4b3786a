import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { allPages } from "../../scripts/reference/all-pages.ts";
import { UnknownOption } from "../../src/cli/args.ts";
import { API_ROUTES } from "../../src/control/api/routes.ts";
import { ROUTES } from "../../src/gateway/http/routes.ts";
import { parseSimArguments } from "../../src/sim-engine/serve.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { commandsFor } from "../../src/up/commands-for.ts";

const REFERENCE = join(import.meta.dirname, "../../docs/reference");
const commands = await commandsFor(undefined, () => assert.fail("no role is run here"));

test("every page of the reference that is made from the code is what the code makes", async () => {
  for (const { file, text } of await allPages())
    assert.ok(readFileSync(join(REFERENCE, file), "utf8") === text, `docs/reference/${file}: run \`npm run docs\``);
});

const flagsIn = (help: string): string[] => [
  ...new Set([...help.matchAll(/(?<![\w-])--([a-z][a-z-]*)/g)].map(([, name]) => name ?? "")),
];

for (const command of commands) {
  const name = command.words.join(" ");
  test(`the help of ${name} says what it is for, and names the flags that it takes and no other`, async () => {
    assert.match(command.help, new RegExp(`^usage: yardmaster ${name}\\b`));
    assert.ok(command.summary.length > 0 && !/^[A-Z]|\.$/.test(command.summary), command.summary);
    const named = flagsIn(command.help).filter((flag) => flag !== "help");
    if (name === "sim-engine") {
      for (const flag of named) {
        const outcome = parseSimArguments([`--${flag}=x`]);
        assert.ok(outcome.kind === "ok" || !/[Uu]nknown/.test(outcome.message), flag);
      }
      return;
    }
    const refusal: unknown = await Promise.resolve()
      .then(() => command.run(["--no-such-flag"], captureIo().io))
      .then(() => assert.fail("an unknown flag was taken"))
      .catch((error: unknown) => error);
    assert.ok(refusal instanceof UnknownOption, String(refusal));
    const takes = new Set(refusal.options);
    // `--json` is the older spelling of `-o json`, and is shown where there is no other.
    for (const flag of takes) if (flag !== "json") assert.ok(named.includes(flag), `--${flag} is not in the help`);
    const ofItself = command.help
      .split("\n")
      .filter((line) => /^ {2}-/.test(line))
      .map((line) => line.trimStart().split(/ {2,}/)[0]);
    for (const flag of flagsIn(ofItself.join("\n")))
      assert.ok(flag === "help" || takes.has(flag), `--${flag} is in the help, and not taken`);
  });
}

interface Operation {
  readonly operationId: string;
  readonly responses: Readonly<Record<string, unknown>>;
}
interface OpenApi {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: unknown;
}

const read = (file: string): OpenApi => JSON.parse(readFileSync(join(REFERENCE, file), "utf8")) as OpenApi;
/** What no path can say: see the document's description. */
const NOT_SAID = ["/v1/*", "/upstreams/*"];

/** What is between the board and its own page is no part of the API. */
const isOfBoard = (pattern: string): boolean => ["/", "/board"].includes(pattern) || pattern.startsWith("/board/");

for (const [file, routes] of [
  ["openapi-gateway.json", ROUTES],
  ["openapi-control.json", API_ROUTES],
] as const) {
  test(`${file} has each route of the table with each method, and nothing else`, () => {
    const document = read(file);
    assert.equal(document.openapi, "3.1.0");
    const said = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path.replaceAll(/\{\w+\}/g, "*")}`),
    );
    const wanted = routes
      .filter(({ pattern }) => !NOT_SAID.includes(pattern) && !isOfBoard(pattern))
      .flatMap(({ pattern, methods }) => (methods === "any" ? [] : methods.map((method) => `${method} ${pattern}`)));
    const asPattern = (entry: string): string =>
      entry
        .replace("/documentModels/*/analyzeResults/*", "/documentModels/*")
        .replace("/approvals/*/*", "/approvals/*");
    assert.deepEqual(said.map(asPattern).toSorted(), [...wanted].toSorted());
  });

  test(`each operation of ${file} has an id of its own, and each reference leads somewhere`, () => {
    const document = read(file);
    const ids = Object.values(document.paths).flatMap((operations) =>
      Object.values(operations).map(({ operationId }) => operationId),
    );
    assert.equal(new Set(ids).size, ids.length);
    for (const [, reference = ""] of JSON.stringify(document).matchAll(/"\$ref":"#([^"]+)"/g)) {
      const target = reference
        .split("/")
        .slice(1)
        .reduce<unknown>((value, step) => (value as Record<string, unknown> | undefined)?.[step], document);
      assert.notEqual(target, undefined, reference);
    }
  });
}
