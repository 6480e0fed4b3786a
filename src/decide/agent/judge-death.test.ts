import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeDeath, parseKernelKill, parseOomKills, type Death } from "./judge-death.ts";

const death = (over: Partial<Death>): Death => ({
  exitCode: null,
  signal: null,
  served: true,
  outOfMemory: { kind: "none" },
  lastLines: ["all is well"],
  ...over,
});

const rows: readonly {
  readonly name: string;
  readonly death: Partial<Death>;
  readonly kind: string;
  readonly says: RegExp;
}[] = [
  { name: "an end with 0 that nobody asked for", death: { exitCode: 0 }, kind: "exit", says: /code 0 while it served/ },
  { name: "an end before it was ready", death: { exitCode: 3, served: false }, kind: "exit", says: /code 3 before/ },
  { name: "an end that only its parent was told of", death: {}, kind: "exit", says: /not known/ },
  ...["SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGTERM", "SIGKILL", "SIGXCPU"].map((signal) => ({
    name: `a death by ${signal}`,
    death: { signal, served: false },
    kind: "signal",
    says: new RegExp(`${signal}.*before it was ready`),
  })),
];
for (const { name, death: over, kind, says } of rows) {
  test(`${name} is a failure of kind ${kind} and says so [40.N4b]`, () => {
    const failure = judgeDeath(death(over));
    assert.equal(failure.kind, kind);
    assert.match(failure.message, says);
  });
}

const memory: typeof rows = [
  {
    name: "a kernel's record of this engine",
    death: { signal: "SIGKILL", outOfMemory: { kind: "thisEngine", record: "Killed process 7" } },
    kind: "oom",
    says: /Killed process 7/,
  },
  {
    name: "a record of its worker, though the server ended with 0",
    death: { exitCode: 0, outOfMemory: { kind: "thisEngine", record: "the control group counts 1" } },
    kind: "oom",
    says: /control group/,
  },
  {
    name: "SIGKILL as the machine's count rose",
    death: { signal: "SIGKILL", outOfMemory: { kind: "machine" } },
    kind: "oom",
    says: /SIGKILL/,
  },
  {
    name: "an exit as the machine's count rose",
    death: { exitCode: 1, outOfMemory: { kind: "machine" } },
    kind: "exit",
    says: /code 1/,
  },
  {
    name: "PyTorch's words",
    death: { exitCode: 1, lastLines: ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "bye"] },
    kind: "gpuOom",
    says: /Tried to allocate/,
  },
  {
    name: "vLLM's words at the start",
    death: {
      exitCode: 1,
      served: false,
      lastLines: ["ValueError: Free memory on device (1/80 GiB) is less than desired GPU memory utilization (0.9)"],
    },
    kind: "gpuOom",
    says: /before it was ready/,
  },
  {
    name: "CUDA's words before SIGABRT",
    death: { signal: "SIGABRT", lastLines: ["ggml_cuda: cudaMalloc failed: out of memory"] },
    kind: "gpuOom",
    says: /cudaMalloc/,
  },
  { name: "Python's words", death: { exitCode: 1, lastLines: ["MemoryError"] }, kind: "oom", says: /MemoryError/ },
  {
    name: "a port that is taken",
    death: { exitCode: 1, served: false, lastLines: ["[Errno 98] Address already in use"] },
    kind: "port",
    says: /port is taken/,
  },
];
for (const { name, death: over, kind, says } of memory) {
  test(`the cause of an end is read from ${name}: ${kind} [80.A12]`, () => {
    const failure = judgeDeath(death(over));
    assert.equal(failure.kind, kind);
    assert.match(failure.message, says);
  });
}

test("the kernel's records are read, and other lines are not", () => {
  assert.deepEqual(parseKernelKill("3,1,2,-;Out of memory: Killed process 4711 (python3) total-vm:1kB"), {
    pid: 4_711,
    text: "Out of memory: Killed process 4711 (python3) total-vm:1kB",
  });
  assert.equal(parseKernelKill("Memory cgroup out of memory: Killed process 12 (x)")?.pid, 12);
  assert.equal(parseKernelKill("Killed process 4711"), null);
  assert.equal(parseOomKills("oom 3\noom_kill 2\noom_group_kill 0\n"), 2);
  assert.equal(parseOomKills("nothing"), null);
});
