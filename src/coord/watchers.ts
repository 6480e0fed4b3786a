/** Who waits for what in this process, in the order of their coming. */
export class Watchers {
  readonly #waiting = new Map<string, Set<() => void>>();

  add(name: string, onChange: () => void): Disposable {
    let set = this.#waiting.get(name);
    if (set === undefined) this.#waiting.set(name, (set = new Set()));
    // A wrapper of its own: the same function may wait twice.
    const entry = (): void => onChange();
    set.add(entry);
    return {
      [Symbol.dispose]: () => {
        set.delete(entry);
        if (set.size === 0 && this.#waiting.get(name) === set) this.#waiting.delete(name);
      },
    };
  }

  /** `kept`: all are told. `dropped`: the first, because only one can take what was dropped. */
  tell(name: string, what: "kept" | "dropped"): void {
    const set = this.#waiting.get(name);
    if (set === undefined) return;
    for (const entry of [...set]) {
      entry();
      if (what === "dropped") return;
    }
  }
}
