import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { runProgram, type RunningProgram } from "./program.ts";
import { TOKEN, type AgentWorld } from "./test-agent.ts";

/** The agent of a world as a process of its own, which can be killed. */
export async function agentProcess(world: AgentWorld, flags: readonly string[] = []): Promise<RunningProgram> {
  const config = join(world.folder, "yardmaster.yaml");
  await writeFile(config, stringify({ data_dir: join(world.folder, "data"), agent: world.section }), { mode: 0o600 });
  const program = runProgram(["agent", "--config", config, "--log-format", "json", ...flags], {
    cwd: world.folder,
    env: { YARDMASTER_TOKEN: TOKEN, HOME: world.folder },
  });
  await program.said(/^yardmaster agent ready name=node-a control=ws:\S+ address=127\.0\.0\.1 version=\S+$/m);
  return program;
}
