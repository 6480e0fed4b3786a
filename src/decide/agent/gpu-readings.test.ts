import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { gpuReport, GPUS_MAX } from "../../contract/agent-link.ts";
import { parseAmdGpus, parseAmdProcesses } from "./amd-smi.ts";
import { gpuClass } from "./gpu-class.ts";
import {
  describeForeign,
  rememberGpus,
  reportGpus,
  unknownGpus,
  type GpuReading,
  type KnownGpu,
} from "./gpu-inventory.ts";
import {
  parseComputeApps,
  parseGpuList,
  parseGpuRows,
  parseNvlinkDomain,
  parseOptionalRows,
  refusedField,
  type GpuRow,
} from "./nvidia-csv.ts";

const row = (index: number, used = "10"): string => `${index}, GPU-${index}, 143771, ${used}, 0, 35, NVIDIA H200`;
const NOBODY = { pids: new Set<number>(), uuids: new Set<string>() };
const reading = (rows: readonly GpuRow[], over: Partial<GpuReading> = {}): GpuReading => ({
  rows,
  apps: [],
  sickness: new Map(),
  ...over,
});

test("a plain page is read, figures and names with commas in them", () => {
  const [first, second] = parseGpuRows(`${row(0)}\n1, GPU-1, 81559, 512, 97, 71, NVIDIA Odd, Card\n`);
  assert.deepEqual(first, {
    index: 0,
    uuid: "GPU-0",
    name: "NVIDIA H200",
    memoryMib: 143_771,
    usedMib: 10,
    utilization: 0,
    temperatureC: 35,
    fault: null,
  });
  assert.deepEqual([second?.name, second?.utilization, second?.usedMib], ["NVIDIA Odd, Card", 0.97, 512]);
});

for (const cell of ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "", "-", "12 MiB", "1e3", "0x10"]) {
  test(`\`${cell}\` in place of a figure is unknown, never 0, and says nothing against the card [40.N2]`, () => {
    const [found] = parseGpuRows(`0, GPU-0, ${cell}, ${cell}, ${cell}, ${cell}, NVIDIA H200`);
    assert.deepEqual(
      [found?.memoryMib, found?.usedMib, found?.utilization, found?.temperatureC, found?.fault],
      [null, null, null, null, null],
    );
  });
}

for (const words of ["[GPU is lost]", "[Unknown Error]", "[GPU requires reset]", "ERR!"]) {
  test(`a card that shows ${words} is sick, its use unknown though 0 stands there, and the others stand [40.N2]`, () => {
    const rows = parseGpuRows(`${row(0)}\n1, GPU-1, 143771, 0, ${words}, 40, NVIDIA H200\n${row(2)}`);
    const reports = reportGpus(reading(rows), rememberGpus([], rows), NOBODY);
    assert.deepEqual(
      reports.map((gpu) => [gpu.health, gpu.usedMib]),
      [
        ["ok", 10],
        ["sick", null],
        ["ok", 10],
      ],
    );
    assert.equal(reports[1]?.healthWhy, words);
  });
}

test("a failing query's sentence on standard output costs no row, and a lost card is known by its index", () => {
  const before = rememberGpus([], parseGpuRows([0, 1, 2, 3].map((index) => row(index)).join("\n")));
  const page = `${row(0)}\n${row(1)}\nUnable to determine the device handle for GPU0000:BA:00.0: GPU is lost.\n${row(3)}\n`;
  const reports = reportGpus(reading(parseGpuRows(page)), before, NOBODY);
  assert.deepEqual(
    reports.map((gpu) => [gpu.uuid, gpu.health]),
    [
      ["GPU-0", "ok"],
      ["GPU-1", "ok"],
      ["GPU-2", "sick"],
      ["GPU-3", "ok"],
    ],
  );
  const shown = parseGpuRows(
    `2, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]`,
  );
  const [, , lost] = reportGpus(reading(shown), before, NOBODY);
  assert.deepEqual([lost?.uuid, lost?.index, lost?.healthWhy, lost?.memoryMib], ["GPU-2", 2, "[GPU is lost]", 143_771]);
});

test("any page gives rows with figures that can be right, and never an error [40.N2]", () => {
  const cell = fc.oneof(
    fc.constantFrom("[N/A]", "ERR!", "0", "97", "GPU-1", "[GPU is lost]", "-1", "1e9"),
    fc.string(),
  );
  const page = fc.array(fc.array(cell).map((cells) => cells.join(", "))).map((lines) => lines.join("\n"));
  fc.assert(
    fc.property(page, (text) => {
      for (const found of parseGpuRows(text)) {
        assert.ok(found.uuid !== null || found.index !== null);
        for (const value of [found.memoryMib, found.usedMib, found.temperatureC])
          assert.ok(value === null || (Number.isFinite(value) && value >= 0));
        assert.ok(found.utilization === null || (found.utilization >= 0 && found.utilization <= 1));
      }
      parseComputeApps(text);
      parseGpuList(text);
      parseOptionalRows(text, ["gpu_recovery_action"]);
      parseAmdGpus({ list: text, static: text, metric: text });
      const rows = parseGpuRows(text);
      const known = rememberGpus([{ uuid: "GPU-1", index: 0, name: "x", memoryMib: 1 }], rows);
      assert.ok(reportGpus(reading(rows), known, NOBODY).some((gpu) => gpu.uuid === "GPU-1"));
    }),
  );
});

test("a comma inside a cell moves none of the cells behind it, with and without blanks between cells [40.N2]", () => {
  const [card] = parseGpuRows("0, GPU-0, 143771, 1,5, 0, 35, NVIDIA H200");
  assert.deepEqual([card?.usedMib, card?.temperatureC, card?.name], [null, 35, "NVIDIA H200"]);
  assert.equal(parseGpuRows("0,GPU-0,143771,15,0,35,NVIDIA H200")[0]?.usedMib, 15);
  assert.deepEqual(parseGpuRows("0, GPU-0, 143771, 15, 0, 35, ")[0]?.name, null);
});

test("one broken line among good ones loses only itself [40.N2]", () => {
  fc.assert(
    fc.property(
      fc.string().filter((text) => !/[\r\n]/.test(text)),
      fc.nat(3),
      (broken, place) => {
        const lines = [0, 1, 2].map((index) => row(index));
        const uuids = parseGpuRows(lines.toSpliced(place, 0, broken).join("\n")).map((found) => found.uuid);
        assert.deepEqual(
          uuids.filter((uuid) => /^GPU-[012]$/.test(uuid ?? "")),
          ["GPU-0", "GPU-1", "GPU-2"],
        );
      },
    ),
  );
});

test("the field that an old driver refuses is named", () => {
  assert.equal(refusedField('Field "gpu_recovery_action" is not a valid field to query.\n'), "gpu_recovery_action");
  assert.equal(refusedField("No devices were found"), null);
});

test("optional fields tell of a card that needs a reset or has no spare rows left", () => {
  const fields = ["remapped_rows.failure", "gpu_recovery_action"];
  const found = parseOptionalRows("GPU-0, No, None\nGPU-1, Yes, None\nGPU-2, [N/A], Reset\nGPU-3, No\n", fields);
  assert.deepEqual(
    [...found],
    [
      ["GPU-0", null],
      ["GPU-1", "a memory row can't be remapped"],
      ["GPU-2", "the driver asks for: Reset"],
    ],
  );
});

const CARD: KnownGpu = { uuid: "GPU-0", index: 0, name: "NVIDIA A40", memoryMib: 46_068 };
const foreign: readonly {
  readonly name: string;
  readonly used: string;
  readonly apps: string | null;
  readonly own?: { pids: number[]; here: boolean };
  readonly expect: number | null;
}[] = [
  { name: "no process, driver's own memory", used: "600", apps: "", expect: 0 },
  { name: "another's process", used: "20600", apps: "GPU-0, 77, 20000, python", expect: 20_000 },
  {
    name: "an own engine",
    used: "20600",
    apps: "GPU-0, 77, 20000, python",
    own: { pids: [77], here: true },
    expect: 0,
  },
  {
    name: "both",
    used: "30600",
    apps: "GPU-0, 77, 20000, python\nGPU-0, 78, 10000, x",
    own: { pids: [77], here: true },
    expect: 10_000,
  },
  { name: "processes hidden by a container, no own engine", used: "20600", apps: "", expect: 20_600 },
  { name: "processes hidden, own engine there", used: "20600", apps: "", own: { pids: [77], here: true }, expect: 0 },
  { name: "memory of a process unknown", used: "20600", apps: "GPU-0, 77, [N/A], python", expect: null },
  {
    name: "processes can't be told, own engine there",
    used: "20600",
    apps: null,
    own: { pids: [], here: true },
    expect: null,
  },
  { name: "processes can't be told, no own engine", used: "20600", apps: null, expect: 20_600 },
  { name: "use unknown", used: "[N/A]", apps: "GPU-0, 77, 20000, python", expect: 20_000 },
];
for (const { name, used, apps, own, expect } of foreign) {
  test(`foreign memory: ${name}`, () => {
    const rows = parseGpuRows(`0, GPU-0, 46068, ${used}, 0, 30, NVIDIA A40`);
    const use = { pids: new Set(own?.pids ?? []), uuids: new Set(own?.here === true ? ["GPU-0"] : []) };
    const [gpu] = reportGpus(reading(rows, { apps: apps === null ? null : parseComputeApps(apps) }), [CARD], use);
    assert.equal(gpu?.foreignMib, expect);
  });
}

test("who stands in the way is named by process, the largest first", () => {
  const apps = parseComputeApps("GPU-0, 77, 100, small\nGPU-0, 78, 9000, large\nGPU-1, 79, 90000, elsewhere");
  assert.match(
    describeForeign("GPU-0", apps, NOBODY) ?? "",
    /^blocked by PID 78 \(large\), which holds 9000 MiB of GPU-0$/,
  );
  assert.equal(describeForeign("GPU-2", apps, NOBODY), null);
});

test("a tool that does not answer makes cards unknown, neither sick nor well", () => {
  const [gpu] = unknownGpus([CARD], "nvidia-smi has not answered");
  assert.deepEqual([gpu?.health, gpu?.usedMib, gpu?.memoryMib, gpu?.class], ["unknown", null, 46_068, "a40"]);
});

const classes: readonly [name: string, kind: string][] = [
  ["NVIDIA H200", "h200"],
  ["NVIDIA H100 80GB HBM3", "h100"],
  ["NVIDIA A100-SXM4-80GB", "a100"],
  ["NVIDIA A40", "a40"],
  ["NVIDIA B200", "b200"],
  ["NVIDIA GB200", "gb200"],
  ["NVIDIA GH200 480GB", "gh200"],
  ["NVIDIA L40S", "l40s"],
  ["Tesla T4", "t4"],
  ["Tesla V100-SXM2-16GB", "v100"],
  ["NVIDIA GeForce RTX 4090", "rtx4090"],
  ["NVIDIA GeForce RTX 3060 Ti", "rtx3060ti"],
  ["NVIDIA RTX A6000", "a6000"],
  ["NVIDIA RTX 6000 Ada Generation", "rtx6000ada"],
  ["AMD Instinct MI300X OAM", "mi300x"],
  ["", "unknown"],
];
for (const [name, kind] of classes) test(`"${name}" is of class ${kind}`, () => assert.equal(gpuClass(name), kind));

test("AMD's pages are read in both forms, behind warnings, with what is missing unknown [40.N2]", () => {
  const list = 'WARNING: something\n[{"gpu":0,"bdf":"0000:03:00.0","uuid":"ff-1"},{"gpu":1,"uuid":"ff-2"}]';
  const statics =
    '[{"gpu":0,"asic":{"market_name":"AMD Instinct MI300X OAM"},"vram":{"size":{"value":196608,"unit":"MB"}}}]';
  const metric = `{"gpu_data":[{"gpu":0,"usage":{"gfx_activity":{"value":50,"unit":"%"}},"temperature":{"hotspot":{"value":61,"unit":"C"},"edge":"N/A"},"mem_usage":{"used_vram":{"value":2,"unit":"GB"}}},{"gpu":1,"usage":"N/A"}]}`;
  const [first, second] = parseAmdGpus({ list, static: statics, metric });
  assert.deepEqual(
    [first?.uuid, first?.memoryMib, first?.usedMib, first?.utilization, first?.temperatureC],
    ["ff-1", 196_608, 2_048, 0.5, 61],
  );
  assert.deepEqual([second?.uuid, second?.memoryMib, second?.usedMib, second?.name], ["ff-2", null, null, null]);
  const processes = `{"gpu_data":[{"gpu":0,"process_list":[{"process_info":{"name":"python","pid":77,"mem_usage":{"value":1073741824,"unit":"B"}}},"No running processes"]}]}`;
  assert.deepEqual(parseAmdProcesses(processes, new Map([[0, "ff-1"]])), [
    { gpuUuid: "ff-1", pid: 77, usedMib: 1_024, name: "python" },
  ]);
});

test("cards that are listed, and the NVLink domain, are read; a domain of zeros is none", () => {
  const list =
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa-1)\n  MIG 1g.10gb     Device  0: (UUID: MIG-2)\nGPU 1: X (UUID: GPU-bb)";
  assert.deepEqual(
    parseGpuList(list).map((card) => card.uuid),
    ["GPU-aa-1", "GPU-bb"],
  );
  const xml = (uuid: string): string => `<fabric><cliqueId>3</cliqueId><clusterUuid>${uuid}</clusterUuid></fabric>`;
  assert.equal(parseNvlinkDomain(xml("AB12-34cd-99")), "nvlink-ab12-34cd-99-3");
  assert.equal(parseNvlinkDomain(xml("00000000-0000-0000-0000-000000000000")), null);
  assert.equal(parseNvlinkDomain(""), null);
});

test("whatever a tool says of a card or how many it tells of, the report can be read: words are cut short, and cards that are there go before those that were [40.N2]", () => {
  const rows = parseGpuRows(
    Array.from(
      { length: 71 },
      (_, at) => `${at}, GPU-${at}, 143771, 10, [Unknown Error: ${"x".repeat(5_000)}], 35, NVIDIA H200`,
    ).join("\n"),
  );
  const before = rememberGpus([], rows);
  const lastOf = parseGpuRows(row(70));
  const known = rememberGpus(before, lastOf);
  assert.equal(known.length, GPUS_MAX);
  assert.ok(known.some(({ uuid }) => uuid === lastOf[0]?.uuid));
  for (const report of [...reportGpus(reading(rows), known, NOBODY), ...unknownGpus(known, "y".repeat(5_000))])
    assert.ok(gpuReport.safeParse(report).success, report.healthWhy ?? "");
});
