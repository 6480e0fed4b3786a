/** Lines of a chunk that one job carries out: those of one model, by their places in the chunk. */
export interface LineGroup {
  readonly model: string;
  readonly lines: readonly number[];
}

/** The same lines always come to the same groups, so that a part of a job is found by its line. */
export function groupLines(lines: readonly { readonly model: string }[]): LineGroup[] {
  const groups = new Map<string, number[]>();
  for (const [index, { model }] of lines.entries()) {
    const group = groups.get(model);
    if (group === undefined) groups.set(model, [index]);
    else group.push(index);
  }
  return [...groups].map(([model, indexes]) => ({ model, lines: indexes }));
}
