import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { rowTops, windowRows } from "../logic/window-rows.ts";

interface WindowedProps<T> {
  readonly label: string;
  /** What its rows look like: a class. */
  readonly kind: string;
  readonly items: readonly T[];
  readonly keyOf: (item: T) => string;
  /** In pixels, for a list of this width: rows that are not drawn take their room all the same. */
  readonly heightOf: (item: T, width: number) => number;
  readonly draw: (item: T, width: number) => JSX.Element;
  /** Of a table: its columns' names. */
  readonly head?: readonly string[];
  readonly empty: JSX.Element;
  /** How many rows are drawn beyond what is seen, on each side. */
  readonly spare?: number;
}

const SPARE = 4;

interface Seen {
  readonly top: number;
  readonly height: number;
  readonly width: number;
}

/** A long list of which only what is seen is drawn. Each row says which of how many it is. */
export function Windowed<T>({
  label,
  kind,
  items,
  keyOf,
  heightOf,
  draw,
  head,
  empty,
  spare = SPARE,
}: WindowedProps<T>): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState<Seen>({ top: 0, height: 800, width: 1_000 });
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const look = (): void => {
      const style = getComputedStyle(element);
      const width = element.clientWidth - Number.parseFloat(style.paddingLeft) - Number.parseFloat(style.paddingRight);
      setSeen({ top: element.scrollTop, height: element.clientHeight, width });
    };
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  const tops = rowTops(items.map((item) => heightOf(item, seen.width)));
  const { first, end, before, after } = windowRows(tops, {
    scrollTop: seen.top,
    viewHeight: seen.height,
    spare,
  });
  const isTable = head !== undefined;
  return (
    <div class={`scroll ${kind}`} ref={box} tabIndex={0} role="region" aria-label={label} data-rows={items.length}>
      {items.length === 0 ? (
        empty
      ) : (
        <div
          role={isTable ? "table" : "list"}
          aria-label={label}
          {...(isTable ? { "aria-rowcount": items.length + 1 } : {})}
        >
          {isTable && <Head names={head} />}
          <div
            role={isTable ? "rowgroup" : "presentation"}
            style={{ paddingTop: `${before}px`, paddingBottom: `${after}px` }}
          >
            {items.slice(first, end).map((item, index) => (
              <div
                key={keyOf(item)}
                class="row"
                style={{ height: `${(tops[first + index + 1] ?? 0) - (tops[first + index] ?? 0)}px` }}
                {...(isTable
                  ? { role: "row", "aria-rowindex": first + index + 2 }
                  : { role: "listitem", "aria-posinset": first + index + 1, "aria-setsize": items.length })}
              >
                {draw(item, seen.width)}
              </div>
            ))}
          </div>
        </div>
      )}
    </div>
  );
}

const Head = ({ names }: { readonly names: readonly string[] }): JSX.Element => (
  <div role="rowgroup" class="head-group">
    <div role="row" aria-rowindex={1} class="cells head">
      {names.map((name) => (
        <span role="columnheader" key={name}>
          {name}
        </span>
      ))}
    </div>
  </div>
);
