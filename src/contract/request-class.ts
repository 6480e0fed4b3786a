/** Priority classes, the most urgent first. */
export const REQUEST_CLASSES = ["interactive", "system", "batch"] as const;
export type RequestClass = (typeof REQUEST_CLASSES)[number];

export const isRequestClass = (value: string): value is RequestClass =>
  (REQUEST_CLASSES as readonly string[]).includes(value);
