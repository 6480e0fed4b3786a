import { gpuClearView, gpuHealthView, type GpuHealthView } from "../contract/gpu-health-view.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { Command } from "./cli-io.ts";
import { CTL_OPTIONS, CTL_OPTIONS_HELP, openCtlClient, reportFailure, reportShape } from "./ctl-client.ts";
import { formatTable, orDash, type TableShape } from "./table.ts";

const list: Command = {
  words: ["ctl", "gpu", "list"],
  summary: "list the GPUs that a running gateway watches",
  help: `usage: yardmaster ctl gpu list [options]\n\nLists the GPUs that the gateway's sources tell of, and what is wrong with them; - stands for what nobody told.\nFor the GPUs of a control plane's nodes see \`yardmaster ctl gpus\`.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, CTL_OPTIONS, { names: [] });
    const answer = await (await openCtlClient(values, io)).request("GET", "/admin/gpus");
    if (answer.kind !== "done") return reportFailure(answer, io);
    const view = gpuHealthView.safeParse(answer.body);
    if (!view.success) return reportShape(io);
    io.out(values.json ? `${JSON.stringify(view.data)}\n` : format(view.data, { width: io.columns }));
    return EXIT.done;
  },
};

const clear: Command = {
  words: ["ctl", "gpu", "clear"],
  summary: "take a GPU's fault for mended",
  help: `usage: yardmaster ctl gpu clear GPU [options]\n\nTakes the GPU for good: what its gauges show now is old, and only what comes after is a fault again. A GPU that\nis gone, or of which nothing is told any more, is no longer waited for. GPU is a UUID or HOST/INDEX, as\n\`ctl gpu list\` shows it. Say it to each gateway.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, CTL_OPTIONS, { names: ["GPU"] });
    const client = await openCtlClient(values, io);
    const answer = await client.request("POST", "/admin/gpus/clear", { gpu: positionals[0] });
    if (answer.kind !== "done") return reportFailure(answer, io);
    const view = gpuClearView.safeParse(answer.body);
    if (!view.success) return reportShape(io);
    io.out(values.json ? `${JSON.stringify(view.data)}\n` : `cleared ${escapeControls(view.data.gpu)}\n`);
    return EXIT.done;
  },
};

const percent = (part: number | null): string => (part === null ? "-" : `${Math.round(part * 100)} %`);
const seconds = (ms: number | null): string => (ms === null ? "-" : `${Math.round(ms / 1000)} s`);

/** The gauge's codes, and behind each that was counted how often. */
function xidsOf({ xids, xid_counts }: GpuHealthView["gpus"][number]): string {
  const codes = new Set([...(xids ?? []).map(String), ...Object.keys(xid_counts ?? {})]);
  const texts = [...codes].map((code) => {
    const times = xid_counts?.[code];
    return times === undefined ? code : `${code}x${times}`;
  });
  return orDash(texts.join(","));
}

function format({ sources, gpus, upstreams }: GpuHealthView, shape: Pick<TableShape, "width">): string {
  const cards = gpus.map((gpu) => [
    gpu.gpu,
    gpu.index === null ? gpu.host : `${gpu.host}/${gpu.index}`,
    gpu.saturated ? `${gpu.state}, saturated` : gpu.state,
    orDash(gpu.why),
    percent(gpu.utilization),
    orDash(gpu.memory_used_mib),
    gpu.temperature_c === null ? "-" : `${gpu.temperature_c} °C`,
    xidsOf(gpu),
    seconds(gpu.age_ms),
    orDash(gpu.endpoints.join(", ")),
  ]);
  const rows = sources.map(({ name, state, why, told_ms_ago }) => [name, state, orDash(why), seconds(told_ms_ago)]);
  const notes = upstreams
    .filter(({ saturated, guarded, not_known }) => saturated || guarded.length > 0 || not_known.length > 0)
    .map(({ id, saturated, guarded, not_known }) => [
      id,
      saturated ? "saturated" : "-",
      orDash(guarded.join(", ")),
      orDash(not_known.join(", ")),
    ]);
  return [
    formatTable(["GPU", "PLACE", "STATE", "WHY", "BUSY", "USED MIB", "HEAT", "XID", "AGE", "ENDPOINTS"], cards, shape),
    `\n${formatTable(["SOURCE", "STATE", "WHY", "TOLD"], rows, shape)}`,
    notes.length === 0 ? "" : `\n${formatTable(["UPSTREAM", "GPUS", "OUT FOR A FAULT", "NOT KNOWN"], notes, shape)}`,
  ].join("");
}

export const ctlGpuCommands: readonly Command[] = [list, clear];
