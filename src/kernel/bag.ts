/**
 * A set for objects that come and go with each request. The language's own `Set` makes a new table every few changes, and the
 * old one, itself garbage, goes on pointing at the new one and at what it held: once one of them has grown old, every later one
 * and the requests in it survive the young collections until a full one. An array has no such chain.
 * Deleting looks from the end, where the young ones are; the order of iteration is not kept.
 */
export class Bag<T> implements Iterable<T> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The item must not be in the bag. */
  add(item: T): void {
    this.#items.push(item);
  }

  has(item: T): boolean {
    return this.#items.includes(item);
  }

  delete(item: T): boolean {
    const at = this.#items.lastIndexOf(item);
    if (at < 0) return false;
    const last = this.#items.pop() as T;
    if (at < this.#items.length) this.#items[at] = last;
    return true;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#items[Symbol.iterator]();
  }
}
