// Imports go one way:
//   kernel <- contract <- decide <- config | coord | access | audit | link | metrics | trace <- gateway | control | agent | sim-engine | cli <- up | main
// Roles never import each other. Production files only: tests may reach anywhere, and only they reach src/testing/.
const ROLES = "gateway|control|agent|sim-engine|cli";
const only = (name, layer, allowed, comment) => ({
  name,
  comment,
  severity: "error",
  from: { path: `^src/${layer}/` },
  to: { path: `^src/(?!(${[layer, ...allowed].join("|")})/)` },
});

module.exports = {
  forbidden: [
    { name: "no-cycle", severity: "error", from: {}, to: { circular: true } },
    only("kernel-is-the-bottom", "kernel", [], "kernel/ imports nothing of ours."),
    only("contract-sees-kernel", "contract", ["kernel"], "What crosses a process knows nothing of who sends it."),
    only("decide-is-pure", "decide", ["kernel", "contract"], "Decisions are functions of their arguments."),
    {
      name: "decide-does-no-io",
      comment: "Pass what was read, and the time, as arguments.",
      severity: "error",
      from: { path: "^src/decide/" },
      to: { dependencyTypes: ["core"] },
    },
    only("config-is-below-roles", "config", ["kernel", "contract", "decide"]),
    only("coord-is-below-roles", "coord", ["kernel", "contract", "decide"]),
    only("access-is-below-roles", "access", ["kernel", "contract", "decide"]),
    only("audit-is-below-roles", "audit", ["kernel", "contract", "decide"]),
    only("metrics-is-below-roles", "metrics", ["kernel"]),
    only("trace-is-below-roles", "trace", ["kernel", "contract"]),
    only("link-is-below-roles", "link", ["kernel", "contract", "decide"]),
    {
      name: "roles-do-not-meet",
      comment: "Roles meet in contract/; the process that holds several of them is up/.",
      severity: "error",
      from: { path: `^src/(${ROLES})/` },
      to: { path: `^src/(${ROLES})/`, pathNot: "^src/$1/" },
    },
    {
      name: "nobody-imports-the-top",
      comment: "up/ and main.ts put the parts together.",
      severity: "error",
      from: { path: "^src/(?!up/|testing/|main\\.ts)" },
      to: { path: "^src/(up/|main\\.ts)" },
    },
    {
      name: "up-does-not-import-main",
      severity: "error",
      from: { path: "^src/up/" },
      to: { path: "^src/main\\.ts" },
    },
    {
      name: "only-tests-import-testing",
      severity: "error",
      from: { path: "^src/(?!testing/)" },
      to: { path: "^src/testing/" },
    },
    {
      name: "no-development-package",
      comment: "What runs at a user's place may only import what package.json installs there.",
      severity: "error",
      from: { path: "^src/(?!testing/)" },
      to: { dependencyTypes: ["npm-dev", "npm-no-pkg", "npm-unknown"] },
    },
    {
      name: "the-board-sees-the-contract",
      comment: "The browser's part meets the program in contract/, and nothing runs there that Node brings.",
      severity: "error",
      from: { path: "^dashboard/" },
      to: { path: "^src/(?!contract/)|^bench/|^test/" },
    },
    { name: "nothing-unresolved", severity: "error", from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "(\\.test|\\.conformance)\\.ts$" },
    tsConfig: { fileName: "tsconfig.json" },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      extensions: [".ts", ".tsx", ".js", ".mjs", ".json", ".d.ts"],
      exportsFields: ["exports"],
      conditionNames: ["import", "node", "default", "types"],
    },
  },
};
