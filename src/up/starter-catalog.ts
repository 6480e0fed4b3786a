import { readFile, writeFile } from "node:fs/promises";
import { stringify } from "yaml";
import { hasSystemCode } from "../kernel/errors.ts";

/** A small real model that was set up on this machine. */
export interface RealModel {
  readonly name: string;
  /** Its GGUF file. */
  readonly file: string;
  readonly slots: number;
  /** In tokens, shared by the slots. */
  readonly contextTokens: number;
}

const HEAD = `# Models, and how to run them. Every key with its meaning: docs/reference/catalog.md. A change takes effect at once, but
# replicas that run keep their old profile until \`yardmaster ctl rollout --outdated\`. A change that would end the last replica of a
# model waits until \`yardmaster ctl catalog confirm TOKEN\`; \`yardmaster ctl status\` shows the token.

models:
`;

const SIMULATED = `  # This one is simulated: its words mean nothing.
  - name: sim-model
    slots_per_replica: 8
    profiles:
      - engine: sim
        cpu: { cores: 0.1, memory_gb: 0.1 }
        args: { prefill-tps: 5000, decode-tps: 50, seed: 1 }
`;

const EXAMPLE = `
  # One on a GPU:
  #
  # - name: my-model                  # the name that requests ask for
  #   replicas: { min: 1 }            # 0: started by the first request
  #   slots_per_replica: 16           # requests that one engine takes at once
  #   profiles:                       # the first that fits somewhere is used
  #     - engine: vllm
  #       source: /models/my-model    # where the weights are on the node
  #       gpu: { class: [h200], count: 1, memory_gb: 70 }
`;

const SIMULATED_ALONE = HEAD + SIMULATED + EXAMPLE;

/** So little that both models fit on a machine of one core; the engine may use more while nobody else does. */
const REAL_CPU = { cores: 0.5, memory_gb: 0.5 };

const realEntry = ({ name, file, slots, contextTokens }: RealModel): string =>
  stringify([
    {
      name,
      slots_per_replica: slots,
      profiles: [
        {
          engine: "llama.cpp",
          source: `file://${file}`,
          cpu: REAL_CPU,
          args: { "ctx-size": contextTokens },
        },
      ],
    },
  ]).replaceAll(/^(?=.)/gm, "  ");

/**
 * Writes a first catalog where there is none: with the real model, or else a simulated one. Into a first catalog that nobody has
 * touched a real model goes beside the simulated one. True when something was written.
 */
export async function placeStarterCatalog(path: string, real: RealModel | null): Promise<boolean> {
  const text = real === null ? SIMULATED_ALONE : HEAD + realEntry(real) + EXAMPLE;
  try {
    await writeFile(path, text, { flag: "wx", mode: 0o600 });
    return true;
  } catch (error) {
    if (!hasSystemCode(error, "EEXIST")) throw error;
  }
  if (real === null || (await readFile(path, "utf8")) !== SIMULATED_ALONE) return false;
  await writeFile(path, HEAD + SIMULATED + realEntry(real) + EXAMPLE, { mode: 0o600 });
  return true;
}
