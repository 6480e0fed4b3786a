interface Left {
  /** Name under which endpoints of different upstreams are the same one. */
  readonly key: string;
  readonly inFlight: number;
  /** By `LeftBehind.turn`: when its upstream got it. */
  joined: number;
}

/**
 * Endpoints that upstreams gave up while calls still run on them. Another upstream that gets the same one then (it was renamed, or the
 * endpoint moved) must not fill the engine beside them: they take slots there until they end. One that had it all along, beside the
 * other, has slots of its own there, and is not concerned.
 */
export class LeftBehind {
  readonly #byKey = new Map<string, Map<Left, number>>();
  readonly #onEnded: (key: string) => void;
  #turn = 0;

  /** `onEnded`: a call on one of them is over, or it was taken back. */
  constructor(onEnded: (key: string) => void) {
    this.#onEnded = onEnded;
  }

  /** Tells what came first. */
  turn(): number {
    return (this.#turn += 1);
  }

  /** What still runs on the endpoint for upstreams that do not have it any more. */
  on(endpoint: Left): number {
    if (this.#byKey.size === 0) return 0;
    let count = 0;
    for (const [left, at] of this.#byKey.get(endpoint.key) ?? [])
      if (left !== endpoint && at < endpoint.joined) count += left.inFlight;
    return count;
  }

  /** To be said when the endpoint leaves, is taken back, and at each end of a call on it meanwhile. */
  note(endpoint: Left, isLeaving: boolean): void {
    const { key } = endpoint;
    const all = this.#byKey.get(key) ?? new Map<Left, number>();
    if (!isLeaving) endpoint.joined = this.turn();
    if (isLeaving && endpoint.inFlight > 0) this.#byKey.set(key, all.set(endpoint, all.get(endpoint) ?? this.turn()));
    else if (!all.delete(endpoint)) return;
    else if (all.size === 0) this.#byKey.delete(key);
    this.#onEnded(key);
  }
}
