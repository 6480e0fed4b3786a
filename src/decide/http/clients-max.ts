/** Of the files that the process may open: for engines, databases, and the configuration when it is read again. */
const FILES_KEPT = 512;

/**
 * Client connections at once. More than the process may open files would leave none for an engine, and every request of those that
 * are connected would fail. `filesMax`: undefined where nobody knows.
 */
export function clientsMax(configured: number, filesMax: number | undefined): number {
  if (filesMax === undefined) return configured;
  return Math.max(1, Math.min(configured, Math.max(filesMax - FILES_KEPT, Math.floor(filesMax / 2))));
}
