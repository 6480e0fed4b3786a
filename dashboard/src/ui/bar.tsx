import type { JSX } from "preact";

export interface BarPart {
  readonly name: "own" | "foreign" | "busy" | "interactive" | "system" | "batch" | "warn" | "bad";
  /** 0 to 1 of the whole. */
  readonly share: number;
}

/** Parts of a whole, side by side. Null: nobody knows, which is hatched and not empty. */
export function Bar({
  parts,
  slim = false,
}: {
  readonly parts: readonly BarPart[] | null;
  readonly slim?: boolean;
}): JSX.Element {
  const name = slim ? "bar is-slim" : "bar";
  if (parts === null) return <span class={`${name} hatched`} />;
  let x = 0;
  return (
    <svg class={name} aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 100 1">
      {parts.map((part) => {
        const width = Math.max(0, Math.min(1 - x, part.share));
        const rect = <rect key={part.name} class={part.name} x={x * 100} width={width * 100} height="1" />;
        x += width;
        return rect;
      })}
    </svg>
  );
}
