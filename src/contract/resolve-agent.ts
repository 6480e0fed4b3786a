import { agentSection, parseControlUrl, parsePortRange, type AgentSection } from "./agent-schema.ts";
import type { ReplicaEngine } from "./catalog.ts";
import type { LinkTlsFiles } from "./gateway-config.ts";

/** Of either section that dials control planes. */
export const linkTlsFiles = (section: {
  readonly ca_file?: string | undefined;
  readonly client_cert_file?: string | undefined;
  readonly client_key_file?: string | undefined;
}): LinkTlsFiles => ({
  ca: section.ca_file ?? null,
  cert: section.client_cert_file ?? null,
  key: section.client_key_file ?? null,
});

/** The agent's part of the configuration in its own words: nothing optional. */
export interface AgentSettings {
  readonly name: string;
  /** Without a path. */
  readonly controls: readonly string[];
  readonly tokenEnv: string;
  readonly tls: LinkTlsFiles;
  readonly address: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Null: as found by itself. */
  readonly fabric: string | null;
  /** Null: as found on the path. */
  readonly nvidiaSmi: string | null;
  readonly amdSmi: string | null;
  readonly weightsDir: string;
  readonly weights: WeightsSettings;
  readonly enginePorts: { readonly first: number; readonly last: number };
  readonly commands: readonly string[];
  readonly programs: Readonly<Partial<Record<ReplicaEngine, readonly string[]>>>;
}

/** How weights are fetched. Variables of the environment are named, not read. */
export interface WeightsSettings {
  readonly parallel: number;
  readonly connections: number;
  /** 0 to 1. */
  readonly reserve: number;
  readonly caFile: string | null;
  readonly redirectTo: readonly string[];
  readonly tokenEnvs: Readonly<Record<string, string>>;
  readonly hub: { readonly endpoint: string; readonly tokenEnv: string };
  readonly s3: {
    /** Null: AWS. */
    readonly endpoint: string | null;
    readonly region: string;
    readonly keyIdEnv: string;
    readonly secretEnv: string;
    readonly sessionEnv: string;
  };
}

/** What the command line says over the file. */
export interface AgentOverrides {
  readonly controls?: readonly string[] | undefined;
}

/** The section is taken to be checked. `hostName` names the node where the file does not. */
export function resolveAgent(
  section: AgentSection | undefined,
  hostName: string,
  overrides: AgentOverrides = {},
): AgentSettings {
  const file = section ?? agentSection.parse({});
  const ports = parsePortRange(file.engine_ports);
  if (ports === null) throw new Error("agent.engine_ports: not FIRST-LAST");
  const { vllm, sglang, tei, "llama.cpp": llamaCpp } = file.programs;
  return {
    name: file.name ?? nodeName(hostName),
    controls: [...new Set((overrides.controls ?? file.control).map(bareControlUrl))],
    tokenEnv: file.token_env,
    tls: linkTlsFiles(file),
    address: file.address,
    labels: file.labels,
    fabric: file.fabric ?? null,
    nvidiaSmi: file.nvidia_smi ?? null,
    amdSmi: file.amd_smi ?? null,
    weightsDir: file.weights_dir,
    weights: resolveWeights(file.weights),
    enginePorts: ports,
    commands: file.commands,
    programs: {
      ...(vllm === undefined ? {} : { vllm }),
      ...(sglang === undefined ? {} : { sglang }),
      ...(tei === undefined ? {} : { tei }),
      ...(llamaCpp === undefined ? {} : { "llama.cpp": llamaCpp }),
    },
  };
}

function resolveWeights(file: AgentSection["weights"]): WeightsSettings {
  const { hub, s3 } = file;
  return {
    parallel: file.parallel,
    connections: file.connections,
    reserve: file.reserve,
    caFile: file.ca_file ?? null,
    redirectTo: file.redirect_to,
    tokenEnvs: file.token_envs,
    hub: { endpoint: hub.endpoint, tokenEnv: hub.token_env },
    s3: {
      endpoint: s3.endpoint ?? null,
      region: s3.region,
      keyIdEnv: s3.key_id_env,
      secretEnv: s3.secret_env,
      sessionEnv: s3.session_env,
    },
  };
}

/** A host name as the name of a node: what a name may not hold becomes a dash. */
const nodeName = (hostName: string): string =>
  hostName
    .replace(/[^A-Za-z0-9._-]/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, 64) || "node";

/** Two spellings of one address give the same text. */
export function bareControlUrl(text: string): string {
  const url = parseControlUrl(text);
  if (url === null) throw new Error(`not a control plane's address: ${text}`);
  return `${url.protocol}//${url.host}`;
}
