import type { Random } from "../../kernel/random.ts";

const RETRY_MS_FIRST = 1_000;
const RETRY_GROWTH = 4;
const RETRY_MS_MAX = 60_000;
const POSTPONE_MS_FIRST = 1_000;
const POSTPONE_MS_MAX = 30_000;
const CALLBACK_MS_FIRST = 1_000;
const CALLBACK_MS_MAX = 900_000;
/** Over about three quarters of an hour. */
export const CALLBACK_TRIES_MAX = 8;
/** Jobs that failed together do not come back together. */
const JITTER = 0.25;

const withJitter = (ms: number, random: Random): number => Math.round(ms * (1 + JITTER * random.next()));

/** Before the attempt that follows the `attempts`th: 1, 4, 16 s, and up to a quarter more. */
export const retryDelayMs = (attempts: number, random: Random): number =>
  withJitter(Math.min(RETRY_MS_MAX, RETRY_MS_FIRST * RETRY_GROWTH ** Math.max(0, attempts - 1)), random);

/** After the `before + 1`th refusal in a row: 1, 2, 4, … 30 s, and up to a quarter more. */
export const postponeDelayMs = (before: number, random: Random): number =>
  withJitter(Math.min(POSTPONE_MS_MAX, POSTPONE_MS_FIRST * 2 ** Math.min(before, 10)), random);

/** After the `tries`th try: 1, 4, 16, 64, 256 s, then a quarter of an hour. */
export const callbackDelayMs = (tries: number): number =>
  Math.min(CALLBACK_MS_MAX, CALLBACK_MS_FIRST * RETRY_GROWTH ** Math.max(0, tries - 1));
