import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { PLOT_SPAN_MS } from "../../../src/contract/board.ts";
import { type Columns, type Point, plotColumns, STACK } from "../logic/plot-series.ts";

type ClassName = (typeof STACK)[number];

/** The theme's colours and patterns, read once for a plot: it is made anew when the theme changes. */
interface Inks {
  readonly ink: string;
  readonly line: string;
  readonly limit: string;
  readonly stroke: Readonly<Record<ClassName, string>>;
  readonly fill: Readonly<Record<ClassName, CanvasPattern | string>>;
}

function readInks(): Inks {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(name).trim();
  const stroke = { batch: of("--class-batch"), system: of("--class-system"), interactive: of("--class-interactive") };
  return {
    ink: of("--ink-2"),
    line: of("--line"),
    limit: of("--limit"),
    stroke,
    fill: {
      interactive: stroke.interactive,
      system: pattern(stroke.system, "dots"),
      batch: pattern(stroke.batch, "lines"),
    },
  };
}

const TILE_PX = 6;

/** Classes differ by their pattern as well as by their colour: full, dots, rising lines. */
function pattern(colour: string, kind: "dots" | "lines"): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = TILE_PX;
  tile.height = TILE_PX;
  const draw = tile.getContext("2d");
  if (draw === null) return colour;
  draw.fillStyle = colour;
  draw.globalAlpha = kind === "lines" ? 0.55 : 0.35;
  draw.fillRect(0, 0, TILE_PX, TILE_PX);
  draw.globalAlpha = 1;
  draw.strokeStyle = colour;
  draw.lineWidth = 1.5;
  if (kind === "lines") {
    draw.beginPath();
    draw.moveTo(-1, TILE_PX + 1);
    draw.lineTo(TILE_PX + 1, -1);
    draw.stroke();
  } else draw.fillRect(1, 1, 2, 2);
  return draw.createPattern(tile, "repeat") ?? colour;
}

const TICKS_S = [60, 120, 300];

/** The lowest one is filled down to the axis, the others down to the one below by a band. */
const area = ({ stroke, fill }: Inks, name: ClassName, index: number): uPlot.Series => ({
  label: name,
  stroke: stroke[name],
  width: 1.25,
  points: { show: false },
  ...(index === 0 ? { fill: () => fill[name] } : {}),
});

function optionsFor(width: number, height: number): uPlot.Options {
  const inks = readInks();
  const axis = {
    stroke: inks.ink,
    font: "12px Barlow, sans-serif",
    grid: { stroke: inks.line, width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { show: false },
    select: { show: false, left: 0, top: 0, width: 0, height: 0 },
    padding: [8, 18, 0, 0],
    scales: { y: { range: (_, __, max) => [0, Math.max(4, Math.ceil((max ?? 0) * 1.08))] } },
    series: [
      {},
      ...STACK.map((name, index) => area(inks, name, index)),
      { label: "batch_max", stroke: inks.stroke.batch, width: 1.5, dash: [7, 4], points: { show: false } },
      { label: "slots", stroke: inks.limit, width: 1.5, points: { show: false } },
    ],
    bands: [
      { series: [2, 1], fill: () => inks.fill.system },
      { series: [3, 2], fill: () => inks.fill.interactive },
    ],
    axes: [
      {
        ...axis,
        size: 22,
        space: 58,
        incrs: TICKS_S,
        values: (plot, ticks) => ticks.map((tick) => ago((plot.scales["x"]?.max ?? tick) - tick)),
      },
      {
        ...axis,
        size: 34,
        space: 26,
        incrs: [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 200, 500, 1_000, 5_000, 10_000],
      },
    ],
  };
}

const ago = (seconds: number): string => (seconds < 30 ? "now" : `−${Math.round(seconds / 60)} min`);

interface PlotProps {
  readonly points: readonly Point[];
  /** The newest point's time: what is drawn again when it changes. */
  readonly at: number;
  readonly height: number;
  readonly theme: string;
  /** What it shows, in words. */
  readonly label: string;
}

export function Plot({ points, at, height, theme, label }: PlotProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const made = new uPlot(optionsFor(element.clientWidth, height), dataOf(points, at), element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [height, theme]);
  useLayoutEffect(() => plot.current?.setData(dataOf(points, at)), [points, at, points.length]);
  return <div ref={box} class="plot" role="img" aria-label={label} />;
}

/** The whole 15 minutes are shown, however little of them is known. */
function dataOf(points: readonly Point[], at: number): uPlot.AlignedData {
  const [times, ...rest]: Columns = plotColumns(points);
  const from = (at - PLOT_SPAN_MS) / 1_000;
  if ((times[0] ?? Infinity) > from) {
    times.unshift(from);
    for (const column of rest) column.unshift(null);
  }
  return [times, ...rest];
}
