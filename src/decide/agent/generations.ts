/**
 * What became of each replica on this node, for longer than its record lives: a start that comes late, out of order or again
 * must not bring back what was stopped.
 */
export interface GenerationMark {
  readonly generation: number;
  /** It was told to stop, or has been forgotten: this generation never starts again. */
  readonly over: boolean;
}

export type Generations = ReadonlyMap<string, GenerationMark>;

/** The oldest marks go first; a leader that remembers a replica for longer than so many others have come is not to be expected. */
export const MARKS_MAX = 4_096;

export type StartVerdict =
  | { readonly kind: "new" }
  | { readonly kind: "known" }
  | { readonly kind: "stale"; readonly why: string };

export function judgeStart(marks: Generations, replicaId: string, generation: number): StartVerdict {
  const mark = marks.get(replicaId);
  if (mark === undefined || generation > mark.generation) return { kind: "new" };
  if (generation < mark.generation)
    return { kind: "stale", why: `generation ${mark.generation} of ${replicaId} has been here` };
  return mark.over
    ? { kind: "stale", why: `generation ${generation} of ${replicaId} was stopped here` }
    : { kind: "known" };
}

/** A later word on a replica; earlier ones change nothing. */
export function markGeneration(marks: Generations, replicaId: string, next: GenerationMark): Generations {
  const mark = marks.get(replicaId);
  if (mark !== undefined && next.generation < mark.generation) return marks;
  const over = next.over || (mark?.generation === next.generation && mark.over);
  if (mark !== undefined && mark.generation === next.generation && mark.over === over) return marks;
  const all = new Map(marks);
  all.delete(replicaId);
  all.set(replicaId, { generation: next.generation, over });
  for (const oldest of all.keys()) {
    if (all.size <= MARKS_MAX) break;
    all.delete(oldest);
  }
  return all;
}
