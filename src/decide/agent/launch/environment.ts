import type { Profile } from "../../../contract/catalog.ts";

/**
 * Which variables an engine gets. Its environment is made anew: a few of the agent's own by name, what Yardmaster sets, and
 * what the profile adds, unless that could make a loader or an interpreter run something else.
 */

/** Of the agent's own environment. Nothing else of it reaches an engine: it may hold the node's credentials. */
export const PASSED_ON = [
  "PATH",
  "HOME",
  "LANG",
  "LC_ALL",
  "TZ",
  "TMPDIR",
  "LD_LIBRARY_PATH",
  "CUDA_HOME",
  "ROCM_PATH",
] as const;

/** Marks every process of an engine, children and grandchildren included, as this agent's. */
export const PROOF_VARIABLE = "YARDMASTER_PROOF";

/** What a loader, a shell or an interpreter reads before the program's own first line. */
const DANGEROUS =
  /^(?:LD_.*|DYLD_.*|NODE_.*|PYTHON.*|PERL.*|RUBY.*|GEM_.*|JAVA_.*|_JAVA_.*|JDK_.*|CLASSPATH|LUA_.*|BASH.*|ENV|SHELL.*|IFS|PS4|PROMPT_COMMAND|PATH|HOME|USER|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES|MALLOC_.*|HOSTALIASES|RES_OPTIONS|LOCALDOMAIN|GIT_.*|SSL_CERT_.*|SSLKEYLOGFILE|.*_PROXY|.*_PLUGIN|.*_PLUGINS|.*_INJECTION.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|YARDMASTER_.*)$/i;

/** Settings of the engines and of the libraries under them. */
const ENGINE_PREFIXES =
  /^(?:VLLM|SGLANG|SGL|GGML|NCCL|RCCL|UCX|GLOO|CUDA|CUBLAS|CUDNN|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|OMP|MKL|KMP|OPENBLAS|NUMEXPR|TOKENIZERS|TRANSFORMERS|HF_HUB|HF|HIP|HSA|ROCM|MIOPEN|AMD|RUST|RAYON|LOG)_[A-Z0-9_]+$/;

/** Within those prefixes: what opens a back door, names another key, port or host, or sends weights' requests elsewhere. */
const REFUSED =
  /^(?:VLLM_API_KEY|VLLM_PORT|VLLM_HOST_IP|VLLM_SERVER_DEV_MODE|VLLM_ALLOW_INSECURE_SERIALIZATION|VLLM_ALLOW_RUNTIME_LORA_UPDATING|VLLM_KEEP_ALIVE_ON_ENGINE_DEATH|VLLM_CONFIGURE_LOGGING|VLLM_LOGGING_CONFIG_PATH|SGL_FORCE_SHUTDOWN|SGLANG_API_KEY|SGLANG_EXTERNAL_.*|HF_ENDPOINT|HF_TOKEN.*|TORCH_EXTENSIONS_DIR|TORCHINDUCTOR_.*DIR|TRITON_PTXAS_PATH|TRITON_.*PATH|CUDA_MPS_.*|CUDA_CACHE_PATH|HSA_TOOLS_LIB)$/;

const PLAIN_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

export type CheckedEnv =
  | { readonly kind: "env"; readonly env: Readonly<Record<string, string>> }
  | { readonly kind: "refused"; readonly why: string };

/** A `command` profile may use any plain name: the node's owner has allowed the program, not what is loaded into it. */
export function checkEnv(profile: Profile): CheckedEnv {
  for (const [name, value] of Object.entries(profile.env)) {
    const fits = profile.engine === "command" || profile.engine === "sim" ? PLAIN_NAME : ENGINE_PREFIXES;
    if (DANGEROUS.test(name) || REFUSED.test(name) || !fits.test(name))
      return {
        kind: "refused",
        why: `the variable ${JSON.stringify(name.slice(0, 128))} is not one that an agent gives to an engine`,
      };
    if (value.includes("\u0000")) return { kind: "refused", why: `the value of ${name} holds a zero byte` };
  }
  return { kind: "env", env: profile.env };
}
