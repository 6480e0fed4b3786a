/** What lies in a heap knows its own place there, so that removing from the middle needs no search. */
export interface HeapEntry {
  /** Index in the heap, -1 outside. Written by the heap only. An entry lies in one heap at a time. */
  at: number;
}

/** Binary heap; `before` must be a strict total order. All changes cost O(log n), no garbage stays behind. */
export class IndexedHeap<T extends HeapEntry> {
  readonly items: T[] = [];
  readonly #before: (a: T, b: T) => boolean;

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  get size(): number {
    return this.items.length;
  }

  get top(): T | undefined {
    return this.items[0];
  }

  push(entry: T): void {
    this.items.push(entry);
    this.#up(entry, this.items.length - 1);
  }

  remove(entry: T): void {
    const at = entry.at;
    if (this.items[at] !== entry) throw new Error("admission: an entry is not where its heap put it");
    entry.at = -1;
    const last = this.items.pop() as T;
    if (last !== entry) this.#place(last, at);
  }

  /** To be called after each change of what `before` reads of the entry, before anything else touches the heap. */
  update(entry: T): void {
    this.#place(entry, entry.at);
  }

  clear(): void {
    for (const entry of this.items) entry.at = -1;
    this.items.length = 0;
  }

  #place(entry: T, at: number): void {
    const parent = this.items[(at - 1) >> 1];
    if (at > 0 && parent !== undefined && this.#before(entry, parent)) this.#up(entry, at);
    else this.#down(entry, at);
  }

  #up(entry: T, from: number): void {
    let at = from;
    while (at > 0) {
      const parentAt = (at - 1) >> 1;
      const parent = this.items[parentAt] as T;
      if (!this.#before(entry, parent)) break;
      this.items[at] = parent;
      parent.at = at;
      at = parentAt;
    }
    this.items[at] = entry;
    entry.at = at;
  }

  #down(entry: T, from: number): void {
    const size = this.items.length;
    let at = from;
    for (;;) {
      let childAt = 2 * at + 1;
      if (childAt >= size) break;
      if (childAt + 1 < size && this.#before(this.items[childAt + 1] as T, this.items[childAt] as T)) childAt += 1;
      const child = this.items[childAt] as T;
      if (!this.#before(child, entry)) break;
      this.items[at] = child;
      child.at = at;
      at = childAt;
    }
    this.items[at] = entry;
    entry.at = at;
  }
}
