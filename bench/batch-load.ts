// A full batch load, as a process of its own so that it holds up neither the engine nor those whose calls are timed:
// `node bench/batch-load.ts PORT CALLS`. Keeps so many calls of class `batch` under way until SIGTERM, and waits for those that run.
import { aTask, startCall } from "../test/e2e/support/calls.ts";
import { reach } from "../test/e2e/support/program.ts";

const [port, calls] = process.argv.slice(2).map(Number);
if (port === undefined || calls === undefined) throw new Error("usage: batch-load.ts PORT CALLS");
const gateway = reach(port);
const body = aTask({ tokens: 1 });
let over = false;
process.once("SIGTERM", () => (over = true));
await Promise.all(
  Array.from({ length: calls }, async () => {
    while (!over) await startCall(gateway, { body, class: "batch" }).answer;
  }),
);
