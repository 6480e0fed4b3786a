/** Lets whatever waits for this thread go first. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
