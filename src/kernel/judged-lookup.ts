import { lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";

/** How names become addresses; tests bring their own. */
export type Resolve = (host: string, done: (error: Error | null, addresses: readonly string[]) => void) => void;

/**
 * For a connection that may go to some addresses only: they are judged in the very look-up that the connection uses, so that none
 * is judged and another one used. `why` is the error of a name with an address that is not allowed.
 */
export const judgedLookup =
  (isAllowed: (address: string) => boolean, why: string, resolve: Resolve = resolveBySystem): LookupFunction =>
  (host, options, done) => {
    resolve(host, (error, addresses) => {
      if (error !== null) return done(error, "");
      const all = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
      const [first] = all;
      // One address inside among those outside is enough to distrust the name.
      if (first === undefined || !addresses.every(isAllowed)) return done(new Error(why), "");
      if (options.all === true) done(null, all);
      else done(null, first.address, first.family);
    });
  };

const resolveBySystem: Resolve = (host, done) =>
  systemLookup(host, { all: true }, (error, found) =>
    done(error, error === null ? found.map(({ address }) => address) : []),
  );
