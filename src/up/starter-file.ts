import { writeFile } from "node:fs/promises";
import { stringify } from "yaml";
import { hasSystemCode } from "../kernel/errors.ts";

/** Programs of engines that were set up for this first run. */
export type StarterPrograms = Readonly<Record<string, readonly string[]>>;

const starter = (
  catalog: string,
  programs: StarterPrograms,
): string => `# Yardmaster's configuration. Every key with its meaning: docs/reference/config.md.
# Check it with \`yardmaster config check yardmaster.yaml\`; a running gateway takes over a valid change by itself.

listen: 127.0.0.1:8200

auth:
  mode: keys
  # Each start of \`yardmaster up\` prints a key that ends with it. For a lasting one run
  #   yardmaster key new --id my-team
  # and put the lines that it prints here.
  keys: []

# Models that are placed, started and kept running on this machine and on others:
control:
  catalog: { file: ${catalog} }
${Object.keys(programs).length === 0 ? "" : `\n${stringify({ agent: { programs } }, { lineWidth: 0 })}`}
# Engines that you run yourself. To put one here, put these lines, without their marks, in the place of \`upstreams: []\`:
#
# upstreams:
#   - id: my-vllm
#     engine: vllm            # vllm, sglang, llama.cpp, tei, ollama or generic
#     models: [my-model]      # the names that clients ask for
#     slots: 16               # requests in flight at most; the rest waits here, people before batch
#     endpoints:
#       - url: http://127.0.0.1:8000
upstreams: []
`;

/** Writes a first configuration where there is none; false when there is one already. */
export async function writeStarterFile(path: string, catalog: string, programs: StarterPrograms): Promise<boolean> {
  try {
    await writeFile(path, starter(catalog, programs), { flag: "wx", mode: 0o600 });
    return true;
  } catch (error) {
    if (hasSystemCode(error, "EEXIST")) return false;
    throw error;
  }
}
