import assert from "node:assert/strict";
import { test } from "node:test";
import { aGpu } from "../../testing/fleet-builders.ts";
import { parseMetricsText } from "../telemetry/prometheus-text.ts";
import { isGpuSignal, readGpuPage, sampleOfReport, type GpuSample } from "./gpu-sample.ts";

const CARD = 'gpu="0",UUID="GPU-a"';

function read(text: string, host: string | null = null): GpuSample[] {
  const page = parseMetricsText(text, { want: isGpuSignal });
  assert.ok(page.kind === "parsed");
  return readGpuPage(page.samples, host, "address");
}
const one = (text: string): GpuSample => {
  const [sample, ...others] = read(text);
  assert.ok(sample !== undefined && others.length === 0);
  return sample;
};

const fields: readonly { readonly line: string; readonly field: keyof GpuSample; readonly value: unknown }[] = [
  { line: `DCGM_FI_DEV_GPU_UTIL{${CARD}} 97`, field: "utilization", value: 97 },
  { line: `DCGM_FI_DEV_GPU_UTIL_RATIO{${CARD}} 0.97`, field: "utilization", value: undefined },
  { line: `DCGM_FI_PROF_GR_ENGINE_ACTIVE{${CARD}} 0.5`, field: "utilization", value: 50 },
  { line: `DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{${CARD}} 0.25`, field: "utilization", value: 25 },
  { line: `DCGM_FI_PROF_GR_ENGINE_ACTIVE{${CARD}} 50`, field: "utilization", value: null },
  { line: `DCGM_FI_DEV_FB_USED{${CARD}} 1024`, field: "memoryUsedMib", value: 1024 },
  { line: `DCGM_FI_DEV_FB_FREE{${CARD}} 10`, field: "memoryFreeMib", value: 10 },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} 91`, field: "temperatureC", value: 91 },
  { line: `DCGM_FI_DEV_GPU_TEMP_CELSIUS{${CARD}} 91`, field: "temperatureC", value: 91 },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} 0`, field: "temperatureC", value: 0 },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} NaN`, field: "temperatureC", value: null },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} +Inf`, field: "temperatureC", value: null },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} 9223372036854775794`, field: "temperatureC", value: null },
  { line: `DCGM_FI_DEV_GPU_UTIL{${CARD}} 2147483632`, field: "utilization", value: null },
  { line: `DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{${CARD}} 2147483632`, field: "eccDoubleBit", value: null },
  { line: `DCGM_FI_DEV_POWER_USAGE{${CARD}} 312.5`, field: "powerW", value: 312.5 },
  { line: `DCGM_FI_DEV_BOARD_POWER_WATTS{${CARD}} 312.5`, field: "powerW", value: 312.5 },
  { line: `DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{${CARD}} 2`, field: "eccDoubleBit", value: 2 },
  { line: `DCGM_FI_DEV_ROW_REMAP_FAILURE{${CARD}} 1`, field: "rowRemapFailed", value: true },
  { line: `DCGM_FI_DEV_ROW_REMAP_FAILED{${CARD}} 0`, field: "rowRemapFailed", value: false },
  { line: `DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{${CARD}} 4`, field: "throttleReasons", value: 4 },
  { line: `DCGM_FI_DEV_XID_ERRORS{${CARD}} 0`, field: "xids", value: [] },
  {
    line: `DCGM_FI_DEV_XID_ERRORS{${CARD},err_code="48"} 48\nDCGM_FI_DEV_XID_ERRORS{${CARD},err_code="64"} 64`,
    field: "xids",
    value: [48, 64],
  },
  { line: `DCGM_FI_DEV_XID_ERROR{${CARD}} 79`, field: "xids", value: [79] },
  {
    line: `DCGM_EXP_XID_ERRORS_COUNT{${CARD},window_size_in_ms="300000",xid="79"} 2\nDCGM_EXP_XID_ERRORS_COUNT{${CARD},window_size_in_ms="300000",xid="31"} 1`,
    field: "xidsOfWindow",
    value: { 31: 1, 79: 2 },
  },
  { line: `DCGM_EXP_XID_ERRORS_COUNT{${CARD},window_size_in_ms="300000"} 0`, field: "xidsOfWindow", value: {} },
  { line: `DCGM_EXP_XID_ERRORS_COUNT{${CARD},xid="0"} 4`, field: "xidsOfWindow", value: {} },
  { line: `DCGM_EXP_XID_ERRORS_COUNT{${CARD},xid="x"} 4`, field: "xidsOfWindow", value: {} },
  {
    line: `DCGM_EXP_XID_ERRORS_COUNT{${CARD},xid="48",pod="a"} 3\nDCGM_EXP_XID_ERRORS_COUNT{${CARD},xid="48",pod="b"} 3`,
    field: "xidsOfWindow",
    value: { 48: 3 },
  },
  {
    line: `DCGM_EXP_XID_ERRORS_COUNT{${CARD},xid="48"} NaN\nDCGM_FI_DEV_GPU_TEMP{${CARD}} 5`,
    field: "xidsOfWindow",
    value: null,
  },
  { line: `DCGM_EXP_XID_ERRORS_TOTAL{${CARD},xid="48"} 3`, field: "xidsInTotal", value: { 48: 3 } },
  { line: `DCGM_FI_DEV_XID_ERRORS{${CARD}} NaN\nDCGM_FI_DEV_GPU_TEMP{${CARD}} 5`, field: "xids", value: null },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} 5 1796000000000`, field: "stampMs", value: 1_796_000_000_000 },
  { line: `DCGM_FI_DEV_GPU_TEMP{gpu="3",uuid="GPU-a"} 5`, field: "uuid", value: "GPU-a" },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD},hostname="b02"} 5`, field: "host", value: "b02" },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD},Hostname="a01"} 5`, field: "host", value: "a01" },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD}} 5`, field: "host", value: "address" },
  { line: `DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID=""} 5`, field: "index", value: 3 },
  { line: `DCGM_FI_DEV_GPU_TEMP{${CARD},GPU_I_ID="7"} 5`, field: "instance", value: "7" },
];
for (const { line, field, value } of fields)
  test(`a page's ${field}: ${line.replaceAll("\n", " + ")} [30.T3]`, () => {
    if (value === undefined) assert.deepEqual(read(`${line}\n`), []);
    else assert.deepEqual(one(`${line}\n`)[field], value);
  });

test("what a page does not tell is null, never 0 [30.T3]", () => {
  const { teller, host, index, uuid, temperatureC, ...rest } = one(`DCGM_FI_DEV_GPU_TEMP{${CARD}} 41\n`);
  assert.deepEqual([teller, host, index, uuid, temperatureC], ["exporter", "address", 0, "GPU-a", 41]);
  assert.ok(Object.values(rest).every((value) => value === null));
});

test("rows that name no card are none, and labels are cut to a bounded length [30.T2]", () => {
  assert.deepEqual(
    read('DCGM_FI_DEV_GPU_TEMP{gpu="x"} 5\nDCGM_FI_DEV_GPU_TEMP 6\nDCGM_FI_DEV_GPU_TEMP{gpu="-1"} 6\n'),
    [],
  );
  assert.equal(one(`DCGM_FI_DEV_GPU_TEMP{UUID="${"x".repeat(5_000)}"} 5\n`).uuid?.length, 128);
});

test("what a split card tells of itself goes to each of its instances, which stay what they are [30.T3 30.T4]", () => {
  const instance = (id: number): string => `DCGM_FI_PROF_GR_ENGINE_ACTIVE{${CARD},GPU_I_ID="${id}"} 0.5\n`;
  const other = 'DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b"} 40\n';
  const own =
    `DCGM_FI_DEV_GPU_TEMP{${CARD}} 91\nDCGM_FI_DEV_XID_ERRORS{${CARD}} 79\n` +
    `DCGM_FI_DEV_GPU_UTIL{${CARD}} 99\nDCGM_FI_DEV_XID_ERRORS{${CARD},GPU_I_ID="2"} 31\n` +
    `DCGM_FI_DEV_ROW_REMAP_FAILURE{${CARD}} 1\nDCGM_FI_DEV_ROW_REMAP_FAILURE{${CARD},GPU_I_ID="2"} 0\n`;
  assert.deepEqual(
    read(own + instance(1) + other + instance(2)).map((each) => [
      each.uuid,
      each.instance,
      each.temperatureC,
      each.utilization,
      each.xids,
      each.rowRemapFailed,
    ]),
    [
      ["GPU-a", "2", 91, 50, [31, 79], true],
      ["GPU-a", "1", 91, 50, [79], true],
      ["GPU-b", null, 40, null, null, null],
    ],
  );
});

test("a source's configured host names its cards, but not those of a page of several hosts [30.G1]", () => {
  const row = (host: string): string => `DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="${host}"} 5\n`;
  assert.deepEqual(
    read(row("pod-1"), "a01").map(({ host }) => host),
    ["a01"],
  );
  assert.deepEqual(
    read(row("x") + row("y"), "a01").map(({ host }) => host),
    ["x", "y"],
  );
});

test("what an agent read needs no exporter: parts become per cent, and what it does not know stays unknown [30.T1]", () => {
  const sample = sampleOfReport(
    "node-a",
    aGpu("GPU-1", { index: 2, utilization: 0.5, usedMib: 40_960, memoryMib: 81_920 }),
  );
  assert.deepEqual(
    [
      sample.host,
      sample.index,
      sample.uuid,
      sample.utilization,
      sample.memoryUsedMib,
      sample.memoryFreeMib,
      sample.sick,
    ],
    ["node-a", 2, "GPU-1", 50, 40_960, 40_960, false],
  );
  const unknown = aGpu("GPU-1", { utilization: null, usedMib: null, temperatureC: null, health: "unknown" });
  const blind = sampleOfReport("node-a", unknown);
  assert.deepEqual([blind.utilization, blind.memoryFreeMib, blind.temperatureC, blind.sick], [null, null, null, null]);
  assert.equal(sampleOfReport("n", aGpu("GPU-1", { health: "sick", healthWhy: "ECC" })).sick, "ECC");
});
