interface Left {
  /** Name under which endpoints of different upstreams are the same one. */
  readonly key: string;
  readonly inFlight: number;
}

/**
 * Endpoints that upstreams gave up while calls still run on them. Another upstream that has the same one now (it was renamed, or the
 * endpoint moved) must not fill the engine beside them: they take slots there until they end.
 */
export class LeftBehind {
  readonly #byKey = new Map<string, Set<Left>>();
  readonly #onEnded: (key: string) => void;

  /** `onEnded`: a call on one of them is over, or it was taken back. */
  constructor(onEnded: (key: string) => void) {
    this.#onEnded = onEnded;
  }

  /** What still runs on the endpoint for upstreams that do not have it any more. */
  on(endpoint: Left): number {
    if (this.#byKey.size === 0) return 0;
    let count = 0;
    for (const left of this.#byKey.get(endpoint.key) ?? []) if (left !== endpoint) count += left.inFlight;
    return count;
  }

  /** To be said when the endpoint leaves, is taken back, and at each end of a call on it meanwhile. */
  note(endpoint: Left, isLeaving: boolean): void {
    const { key } = endpoint;
    const all = this.#byKey.get(key) ?? new Set();
    if (isLeaving && endpoint.inFlight > 0) this.#byKey.set(key, all.add(endpoint));
    else if (!all.delete(endpoint)) return;
    else if (all.size === 0) this.#byKey.delete(key);
    this.#onEnded(key);
  }
}
