// A GPU is named by its UUID, or by a host and the index there. A bare index says nothing once there are two hosts, so there is no
// such name; the old `gpu_ids` become host and index before anybody looks for a card.

export type GpuName =
  | { readonly kind: "uuid"; readonly uuid: string; readonly instance: string | null }
  | { readonly kind: "place"; readonly host: string; readonly index: number; readonly instance: string | null };

const UUID = /^(?:GPU|MIG)-[A-Za-z0-9._-]{1,80}$/i;
const INDEX = /^\d{1,4}$/;
const INSTANCE = /^gi(\d{1,3})$/;
const HOST = /^[^\s/]{1,255}$/;

/**
 * `GPU-…` and `MIG-…`, `host/index`, and `node/UUID` as control planes write it, in which the UUID alone counts. A MIG instance of a
 * card is `…/giN`, N being the exporter's `GPU_I_ID`. Undefined for anything else.
 */
export function parseGpuName(text: string): GpuName | undefined {
  const parts = text.split("/");
  const instance = parts.length > 1 ? INSTANCE.exec(parts.at(-1) ?? "")?.[1] : undefined;
  if (instance !== undefined) parts.pop();
  const [first = "", second] = parts;
  if (parts.length === 1) return UUID.test(first) ? uuidName(first, instance) : undefined;
  if (parts.length !== 2 || second === undefined || !HOST.test(first) || second === "") return undefined;
  if (INDEX.test(second)) return { kind: "place", host: first, index: Number(second), instance: instance ?? null };
  return /^(?=.*[A-Za-z-])[A-Za-z0-9][A-Za-z0-9._:-]{0,79}$/.test(second) ? uuidName(second, instance) : undefined;
}

const uuidName = (uuid: string, instance: string | undefined): GpuName => ({
  kind: "uuid",
  uuid,
  instance: instance ?? null,
});

/** One text for each name, by which cards are found: hosts and UUIDs are compared without regard to case. */
export function gpuAlias(name: GpuName): string {
  const card = name.kind === "uuid" ? name.uuid : `${name.host}/${name.index}`;
  return (name.instance === null ? card : `${card}/gi${name.instance}`).toLowerCase();
}
