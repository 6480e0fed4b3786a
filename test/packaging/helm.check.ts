import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { parse, parseAllDocuments, stringify } from "yaml";
import { newKey } from "../../src/contract/key-hash.ts";
import { helm, kubeconform, pythonPackage, ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

// `npm run check:packaging`: the chart, by Helm and kubeconform. To build them takes minutes of both cores, which is why this is no part
// of `npm test`.

/** The oldest that the chart takes, and newer ones. Their schemas come with a Python package. */
const KUBERNETES = ["1.27.0", "1.32.0", "1.37.0"];
const KUBERNETES_VALIDATE = "1.37.0";
const CHART = join(ROOT, "deploy/helm/yardmaster");

const home = temporaryFolder("helm");
after(() => rmSync(home, { recursive: true, force: true }));

interface Container {
  readonly name: string;
  readonly image: string;
  readonly resources: { readonly requests: Record<string, string> };
  readonly securityContext: {
    readonly allowPrivilegeEscalation: boolean;
    readonly readOnlyRootFilesystem: boolean;
    readonly capabilities: { readonly drop: readonly string[]; readonly add?: readonly string[] };
    readonly runAsUser?: number;
  };
  readonly livenessProbe?: object;
  readonly readinessProbe?: object;
}
interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly data?: Readonly<Record<string, string>>;
  readonly spec: {
    readonly updateStrategy?: { readonly type: string };
    readonly template?: {
      readonly spec: {
        readonly automountServiceAccountToken: boolean;
        readonly securityContext: { readonly runAsNonRoot: boolean };
        readonly containers: readonly Container[];
        readonly initContainers?: readonly Container[];
      };
    };
  };
}

const aKey = (id: string, role: string) => ({ id, hash: `sha256:${newKey().hash}`, role });
const VALUES = {
  auth: { keys: [aKey("root", "admin"), aKey("gateways", "gateway")] },
  catalog: parse(read("deploy/compose/config/catalog.yaml")) as object,
  secrets: { gatewayEnv: "clouds" },
  networkPolicy: { gatewayFrom: [{ namespaceSelector: { matchLabels: { name: "apps" } } }] },
};
const values = join(home, "values.yaml");
const rendered = join(home, "rendered.yaml");
let resources: readonly Resource[];

const template = (version: string, ...args: string[]) =>
  ran(helm(), ["template", "ym", CHART, "--kube-version", version, ...args]);

before(() => {
  writeFileSync(values, stringify(VALUES));
  const { code, out, text } = template(KUBERNETES[0] ?? "", "-f", values);
  assert.equal(code, 0, text);
  writeFileSync(rendered, out);
  resources = parseAllDocuments(out).flatMap((document) => {
    const resource = document.toJS() as Resource | null;
    return resource === null ? [] : [resource];
  });
});

const workloads = (): { readonly name: string; readonly kind: string; readonly spec: Resource["spec"] }[] =>
  resources
    .filter(({ spec }) => spec?.template !== undefined)
    .map(({ kind, metadata: { name }, spec }) => ({ kind, name, spec }));

/** One kind's schema for kubeconform: the package's refers to a file beside it, by an address that only its own reader knows. */
function standAlone(folder: string, kinds: readonly string[], into: string): void {
  const local = (name: string): Record<string, unknown> => {
    const text = readFileSync(join(folder, `${name}.json`), "utf8").replaceAll("/api/_definitions.json#", "#");
    const { $id: _, ...schema } = JSON.parse(text) as Record<string, unknown>;
    return schema;
  };
  const { $defs } = local("_definitions");
  mkdirSync(into, { recursive: true });
  for (const kind of kinds) writeFileSync(join(into, `${kind}.json`), JSON.stringify({ ...local(kind), $defs }));
}

test("helm lint has no complaint, and what is rendered is valid for each of several versions of Kubernetes", () => {
  const lint = ran(helm(), ["lint", "--strict", CHART, "-f", values]);
  assert.equal(lint.code, 0, lint.text);
  const schemas = pythonPackage("kubernetes-validate", KUBERNETES_VALIDATE);
  const kinds = [
    "configmap-v1",
    "service-v1",
    "deployment-apps-v1",
    "statefulset-apps-v1",
    "daemonset-apps-v1",
    "networkpolicy-networking-v1",
    "poddisruptionbudget-policy-v1",
  ];
  const broken = join(home, "broken.yaml");
  writeFileSync(broken, readFileSync(rendered, "utf8").replaceAll("containerPort:", "contanerPort:"));
  for (const version of KUBERNETES) {
    assert.equal(template(version, "-f", values).code, 0, version);
    const into = join(home, version);
    standAlone(join(schemas, `kubernetes_validate/kubernetes-json-schema/v${version}-local-strict`), kinds, into);
    const args = [
      "-strict",
      "-kubernetes-version",
      version,
      "-schema-location",
      `${into}/{{ .ResourceKind }}{{ .KindSuffix }}.json`,
    ];
    const { code, text } = ran(kubeconform(), [...args, rendered]);
    assert.equal(code, 0, `${version}: ${text}`);
    assert.equal(ran(kubeconform(), [...args, broken]).code, 1, `${version}: a wrong key was not found`);
  }
});

test("every container runs without rights on a root that it can't write to, says what it needs, and what serves says whether it can", () => {
  assert.deepEqual(
    workloads()
      .map(({ kind }) => kind)
      .toSorted(),
    ["DaemonSet", "Deployment", "StatefulSet"],
  );
  for (const { name, spec } of workloads()) {
    const pod = spec.template?.spec ?? assert.fail(name);
    assert.equal(pod.automountServiceAccountToken, false, name);
    assert.equal(pod.securityContext.runAsNonRoot, true, name);
    for (const { name: container, image, resources: needs, securityContext } of [
      ...pod.containers,
      ...(pod.initContainers ?? []),
    ]) {
      const what = `${name} ${container}`;
      assert.equal(securityContext.allowPrivilegeEscalation, false, what);
      assert.equal(securityContext.readOnlyRootFilesystem, true, what);
      assert.deepEqual(securityContext.capabilities.drop, ["ALL"], what);
      assert.ok(Object.keys(needs.requests).length === 2, what);
      assert.match(image, /:\d+\.\d+\.\d+$/, what);
      // One init container gives the node's folder to the agent's user, and has the right to do that alone.
      if (securityContext.runAsUser === 0)
        assert.deepEqual([container, securityContext.capabilities.add], ["own-folder", ["CHOWN"]]);
      else assert.equal(securityContext.capabilities.add, undefined, what);
    }
  }
  for (const { kind, spec } of workloads())
    if (kind !== "DaemonSet")
      for (const { livenessProbe, readinessProbe } of spec.template?.spec.containers ?? [])
        assert.ok(livenessProbe !== undefined && readinessProbe !== undefined, kind);
  const agent = workloads().find(({ kind }) => kind === "DaemonSet");
  assert.equal(agent?.spec.updateStrategy?.type, "OnDelete", "an upgrade would end every engine");
  const kinds = resources.map(({ kind }) => kind);
  for (const [kind, count] of [
    ["PodDisruptionBudget", 2],
    ["NetworkPolicy", 3],
    ["Secret", 0],
  ] as const)
    assert.equal(kinds.filter((one) => one === kind).length, count, kind);
});

test("each configuration that the chart writes is one that the product takes, without a warning", () => {
  const env = {
    PATH: process.env["PATH"],
    YARDMASTER_TOKEN: "x",
    YARDMASTER_REDIS_URL: "redis://:x@redis:6379/0",
    YARDMASTER_DATABASE_URL: "postgres://u:x@postgres/y",
    YARDMASTER_NODE: "node-1",
    YARDMASTER_ADDRESS: "10.0.0.7",
  };
  const maps = resources.filter(({ kind }) => kind === "ConfigMap");
  assert.equal(maps.length, 3);
  for (const { metadata, data = {} } of maps) {
    const file = join(home, "yardmaster.yaml");
    writeFileSync(file, data["yardmaster.yaml"] ?? "");
    const { code, text } = ran(join(ROOT, "bin/yardmaster"), ["config", "check", file], { env });
    assert.equal(code, 0, `${metadata.name}: ${text}${data["yardmaster.yaml"]}`);
    // Control planes and agents need no upstreams.
    const warnings = text.split("\n").filter((line) => /^warning: (?!.*upstreams: is empty)/.test(line));
    assert.deepEqual(warnings, [], metadata.name);
    if (data["catalog.yaml"] === undefined) continue;
    const catalog = join(home, "catalog.yaml");
    writeFileSync(catalog, data["catalog.yaml"]);
    const checked = ran(join(ROOT, "bin/yardmaster"), ["ctl", "catalog", "check", catalog]);
    assert.equal(checked.code, 0, checked.text);
  }
});

test("without keys, with a floating tag and with a value that the chart does not know it renders nothing, and says why", () => {
  const [version = ""] = KUBERNETES;
  assert.match(template(version).text, /auth\.keys is empty/);
  assert.match(template(version, "-f", values, "--set", "image.tag=latest").text, /image[./]tag/);
  assert.match(template(version, "-f", values, "--set", "gatway.replicas=3").text, /gatway/);
  assert.notEqual(template("1.20.0", "-f", values).code, 0);
});

test("the chart is of the product's version", () => {
  const { version } = JSON.parse(read("package.json")) as { version: string };
  const chart = parse(read("deploy/helm/yardmaster/Chart.yaml")) as { version: string; appVersion: string };
  assert.deepEqual([chart.version, chart.appVersion], [version, version]);
});
