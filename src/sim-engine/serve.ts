import { parseArgs } from "node:util";
import type { Clock } from "../kernel/clock.ts";
import type { ListenAddress } from "../contract/gateway-config.ts";
import { formatListen, parseListen } from "../contract/listen-address.ts";
import { untilAborted } from "../kernel/deadline.ts";
import { messageOf, YardmasterError } from "../kernel/errors.ts";
import { SIM_DIALECTS, type SimEngineOptions } from "./options.ts";
import { startSimEngine } from "./sim-engine.ts";

export interface SimEngineEnv {
  readonly clock: Clock;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
  /** Aborted on SIGTERM. */
  readonly signal: AbortSignal;
  readonly version?: string;
  /** Asked of every inference; none when not given. */
  readonly apiKey?: string | undefined;
}

export const SIM_ENGINE_USAGE = `usage: yardmaster sim-engine [flags]
  --listen HOST:PORT         default 127.0.0.1:8100
  --model NAME               served model, repeatable; default sim-model
  --dialect vllm|llama.cpp   default vllm
  --slots N                  requests that run at once; default 8
  --prefill-tps N            prompt tokens a second of one slot, 0 for no time; default 5000
  --decode-tps N             output tokens a second of one slot, 0 for as fast as possible; default 50
  --seed N                   default 1
With YARDMASTER_SIM_KEY in the environment, its value is the key that clients must send.
`;

type SimArgumentsOk = Omit<SimEngineOptions, "clock" | "host" | "port"> & ListenAddress;

export type SimArguments =
  | { readonly kind: "ok"; readonly options: SimArgumentsOk }
  | { readonly kind: "usage"; readonly message: string };

const FLAGS = {
  listen: { type: "string", default: "127.0.0.1:8100" },
  model: { type: "string", multiple: true },
  dialect: { type: "string", default: "vllm" },
  slots: { type: "string", default: "8" },
  "prefill-tps": { type: "string", default: "5000" },
  "decode-tps": { type: "string", default: "50" },
  seed: { type: "string", default: "1" },
} as const;

const FLAG_OF: Readonly<Record<string, string>> = { prefillTps: "prefill-tps", decodeTps: "decode-tps" };

export function parseSimArguments(argv: readonly string[]): SimArguments {
  let values;
  try {
    ({ values } = parseArgs({ args: [...argv], options: FLAGS, strict: true, allowPositionals: false }));
  } catch (error) {
    return { kind: "usage", message: messageOf(error) };
  }
  const address = parseListen(values.listen);
  if (address === undefined) return { kind: "usage", message: `--listen must be HOST:PORT, got ${values.listen}` };
  const dialect = SIM_DIALECTS.find((known) => known === values.dialect);
  if (dialect === undefined)
    return { kind: "usage", message: `--dialect must be one of ${SIM_DIALECTS.join(", ")}, got ${values.dialect}` };
  const numbers = {
    slots: Number(values.slots),
    prefillTps: Number(values["prefill-tps"]),
    decodeTps: Number(values["decode-tps"]),
    seed: Number(values.seed),
  };
  for (const [name, value] of Object.entries(numbers)) {
    if (!Number.isFinite(value) || value < 0)
      return { kind: "usage", message: `--${FLAG_OF[name] ?? name} must be a number of at least 0` };
  }
  if (!Number.isInteger(numbers.slots) || numbers.slots < 1)
    return { kind: "usage", message: "--slots must be a whole number of at least 1" };
  return { kind: "ok", options: { ...address, dialect, models: values.model ?? ["sim-model"], ...numbers } };
}

/**
 * Runs the role until the signal is aborted, then ends as the real engine does on SIGTERM.
 * Resolves with the exit code: 0 stopped, 1 the address can't be had. Wrong flags throw USAGE.
 */
export async function serveSimEngine(argv: readonly string[], env: SimEngineEnv): Promise<number> {
  const parsed = parseSimArguments(argv);
  if (parsed.kind === "usage") throw new YardmasterError("USAGE", parsed.message);
  const { options } = parsed;
  let engine;
  try {
    const key = env.apiKey === undefined ? {} : { apiKey: env.apiKey };
    engine = await startSimEngine({ ...options, ...key, clock: env.clock });
  } catch (error) {
    env.stderr.write(`yardmaster sim-engine: can't listen on ${formatListen(options)}: ${messageOf(error)}\n`);
    return 1;
  }
  env.stdout.write(readyLine(options, engine.port, env.version ?? "0.0.0"));
  await untilAborted(env.signal);
  await engine.terminate();
  return 0;
}

function readyLine(options: SimArgumentsOk, port: number, version: string): string {
  return `yardmaster sim-engine ready listen=${formatListen({ host: options.host, port })} dialect=${options.dialect} models=${options.models.join(",")} version=${version}\n`;
}
