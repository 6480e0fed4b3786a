/** From this part on it is no longer single machines that are ill: the cause is common, and may be this gateway's own network. */
const MASS_PERCENT = 55;
/** Below so many a share says nothing: of one card that is away all are. */
const HOSTS_MIN = 4;

export interface SeenEndpoint {
  readonly host: string;
  /** It is known to be able to take work. Not known is not able. */
  readonly good: boolean;
}

/**
 * Why no work goes to any tier now; null: nothing stands in its way. A host is as good as the best of its endpoints. With most of a fleet bad or
 * unknown all of its work would become a purchase at once, on the word of what is most likely a fault of the looking.
 */
export function massFailure(endpoints: readonly SeenEndpoint[]): string | null {
  const hosts = new Map<string, boolean>();
  for (const { host, good } of endpoints) hosts.set(host, good || hosts.get(host) === true);
  const bad = [...hosts.values()].filter((good) => !good).length;
  if (hosts.size < HOSTS_MIN || bad * 100 < hosts.size * MASS_PERCENT) return null;
  return `${bad} of ${hosts.size} hosts are bad or unknown`;
}
