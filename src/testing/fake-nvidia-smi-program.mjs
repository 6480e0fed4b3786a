// The program behind `fakeNvidiaSmi`. usage: fake-nvidia-smi-program.mjs HOME [nvidia-smi's own arguments]
import { appendFileSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [home, ...args] = process.argv.slice(2);
const state = JSON.parse(readFileSync(join(home, "state.json"), "utf8"));
const running = join(home, "running", String(process.pid));

appendFileSync(join(home, "calls"), `${args.join(" ")}\n`);
writeFileSync(running, "");
const others = readdirSync(join(home, "running")).filter((pid) => existsSync(`/proc/${pid}`));
appendFileSync(join(home, "peaks"), `${others.length}\n`);

const end = (code, out, err = "") => {
  process.stdout.write(out);
  process.stderr.write(err);
  rmSync(running, { force: true });
  process.exitCode = code;
};

function holds() {
  return readdirSync(join(home, "holders"))
    .filter((pid) => existsSync(`/proc/${pid}`) && !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8")))
    .flatMap((pid) =>
      readFileSync(join(home, "holders", pid), "utf8")
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => ({ pid, uuid: line.split(" ")[0], mib: Number(line.split(" ")[1]) })),
    );
}

function cell(gpu, field) {
  if (gpu.cells?.[field] !== undefined) return gpu.cells[field];
  const used = holds()
    .filter((hold) => hold.uuid === gpu.uuid)
    .reduce((sum, hold) => sum + hold.mib, gpu.idleMib);
  const values = {
    index: gpu.index,
    uuid: gpu.uuid,
    name: gpu.name,
    "memory.total": gpu.memoryMib,
    "memory.used": used,
    "utilization.gpu": gpu.utilization,
    "temperature.gpu": gpu.temperatureC,
    "remapped_rows.failure": "No",
    gpu_recovery_action: "None",
  };
  return values[field] ?? "[N/A]";
}

function queryGpus(fields) {
  const unknown = fields.find((field) => state.unknownFields?.includes(field));
  if (unknown !== undefined) return end(2, `Field "${unknown}" is not a valid field to query.\n\n`);
  const at = args.indexOf("-i");
  const wanted = at < 0 ? null : args[at + 1];
  const lost = state.lost ?? [];
  const rows = state.gpus
    .filter((gpu) => wanted === null || gpu.uuid === wanted)
    .filter((gpu) => !lost.includes(gpu.uuid))
    .map((gpu) => fields.map((field) => cell(gpu, field)).join(", "));
  const hit = lost.filter((uuid) => wanted === null || uuid === wanted);
  if (hit.length === 0) return end(state.exitCode ?? 0, rows.map((row) => `${row}\n`).join(""), state.stderr ?? "");
  const sentence =
    "Unable to determine the device handle for GPU0000:BA:00.0: GPU is lost.  Reboot the system to recover this GPU\n";
  return end(15, state.lostSpoilsAll ? sentence : `${rows.map((row) => `${row}\n`).join("")}${sentence}`);
}

function queryApps(fields) {
  if (state.hideProcesses) return end(0, "");
  const rows = holds().map((hold) => {
    const values = {
      gpu_uuid: hold.uuid,
      pid: hold.pid,
      process_name: "python",
      used_gpu_memory: state.processMemoryUnknown ? "[N/A]" : hold.mib,
    };
    return `${fields.map((field) => values[field] ?? "[N/A]").join(", ")}\n`;
  });
  return end(0, rows.join(""));
}

const fieldsOf = (option) =>
  args
    .find((arg) => arg.startsWith(option))
    ?.slice(option.length)
    .split(",");

function answer() {
  if (state.garbage !== undefined) return end(state.exitCode ?? 0, state.garbage);
  const gpuFields = fieldsOf("--query-gpu=");
  const appFields = fieldsOf("--query-compute-apps=");
  if (gpuFields !== undefined) return queryGpus(gpuFields);
  if (appFields !== undefined) return queryApps(appFields);
  if (args[0] === "-L")
    return end(0, state.gpus.map((gpu) => `GPU ${gpu.index}: ${gpu.name} (UUID: ${gpu.uuid})\n`).join(""));
  return end(0, "<nvidia_smi_log></nvidia_smi_log>\n");
}

if (state.hang !== undefined) {
  if (state.hang === "deaf") for (const name of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(name, () => {});
  setInterval(() => {}, 60_000);
} else {
  setTimeout(answer, state.delayMs ?? 0);
}
