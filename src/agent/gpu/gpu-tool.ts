import type { GpuReading, KnownGpu } from "../../decide/agent/gpu-inventory.ts";

export type GpuToolReading =
  | { readonly kind: "read"; readonly reading: GpuReading }
  | { readonly kind: "failed"; readonly why: string }
  | { readonly kind: "missing" };

/** A vendor's command-line tool. */
export interface GpuTool {
  readonly name: "nvidia-smi" | "amd-smi";
  /** Never rejects; ends within a bounded time. */
  read(known: readonly KnownGpu[]): Promise<GpuToolReading>;
  fabric(): Promise<string | null>;
}
