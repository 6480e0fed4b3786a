import type { JSX } from "preact";
import { plainText } from "../logic/plain-text.ts";
import type { Mark, Tone } from "../logic/tones.ts";

/** Shapes differ, so that a state is known without its colour. */
const SHAPES: Readonly<Record<Tone, JSX.Element>> = {
  good: <circle cx="6" cy="6" r="5" fill="currentColor" />,
  warn: <path d="M6 .6 11.8 11.2H.2z" fill="currentColor" />,
  bad: (
    <path
      d="M3.6.5h4.8L11.5 3.6v4.8l-3.1 3.1H3.6L.5 8.4V3.6zM3.7 3.7l4.6 4.6m0-4.6-4.6 4.6"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
    />
  ),
  info: <path d="M6 .5 11.5 6 6 11.5.5 6z" fill="currentColor" />,
  off: <circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" stroke-width="1.6" />,
  unknown: (
    <circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.4 1.7" />
  ),
};

export const Shape = ({ tone }: { readonly tone: Tone }): JSX.Element => (
  <svg viewBox="0 0 12 12" aria-hidden="true">
    {SHAPES[tone]}
  </svg>
);

export const State = ({ mark: { tone, word } }: { readonly mark: Mark }): JSX.Element => (
  <span class={`state is-${tone}`}>
    <Shape tone={tone} />
    <span class="one-line">{word}</span>
  </span>
);

/** A text from outside: isolated in its direction, with what hides made visible. */
export const Text = ({ text, max }: { readonly text: string; readonly max?: number }): JSX.Element => (
  <bdi>{plainText(text, max)}</bdi>
);

const LAMPS = [
  ["bad", 9],
  ["warn", 23],
  ["good", 37],
] as const;

/** A signal of a railway: which lamp is lit is told by its place as well. */
export const Signal = ({ tone }: { readonly tone: Tone }): JSX.Element => (
  <svg class="signal" viewBox="0 0 20 46" aria-hidden="true">
    <rect class="head" width="20" height="46" rx="10" />
    {LAMPS.map(([name, y]) => (
      <circle key={name} class={name === lampOf(tone) ? name : "off"} cx="10" cy={y} r="5.4" />
    ))}
  </svg>
);

const lampOf = (tone: Tone): string | null =>
  tone === "bad" || tone === "good" ? tone : tone === "warn" || tone === "info" ? "warn" : null;
