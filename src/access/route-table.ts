export interface TableRoute {
  /** Exact path, or with one `*` that stands for anything, slashes included. */
  readonly pattern: string;
  readonly methods: readonly string[] | "any";
}

export type RouteMatch<R extends TableRoute> =
  /** `rest` is what the `*` stands for. */
  | { readonly kind: "route"; readonly route: R; readonly rest: string }
  | { readonly kind: "unknown" }
  | { readonly kind: "methodNotAllowed"; readonly allow: string };

/** Methods that make no sense here, whatever the route. */
const NEVER = new Set(["TRACE", "CONNECT"]);

const takes = (route: TableRoute, method: string): boolean => route.methods === "any" || route.methods.includes(method);

interface Pattern<R> {
  readonly prefix: string;
  readonly suffix: string;
  readonly routes: R[];
}

/**
 * One table drives dispatch and permission: what is not in it does not exist. An exact path goes before a pattern, and of the patterns that
 * fit the narrowest has the path for itself: another method of it is not allowed, and is not looked for in a wider one.
 */
export class RouteTable<R extends TableRoute> {
  readonly #exact = new Map<string, R[]>();
  /** The narrowest first. */
  readonly #patterns: readonly Pattern<R>[];

  constructor(routes: readonly R[]) {
    const patterns = new Map<string, Pattern<R>>();
    for (const route of routes) {
      const { pattern } = route;
      const star = pattern.indexOf("*");
      if (star < 0) {
        this.#exact.set(pattern, [...(this.#exact.get(pattern) ?? []), route]);
        continue;
      }
      const known = patterns.get(pattern);
      if (known === undefined)
        patterns.set(pattern, { prefix: pattern.slice(0, star), suffix: pattern.slice(star + 1), routes: [route] });
      else known.routes.push(route);
    }
    const width = ({ prefix, suffix }: Pattern<R>): number => -(prefix.length + suffix.length);
    this.#patterns = [...patterns.values()].toSorted((a, b) => width(a) - width(b));
  }

  match(method: string, path: string): RouteMatch<R> {
    const exact = this.#exact.get(path);
    if (exact !== undefined) return chosen(exact, method, "");
    for (const { prefix, suffix, routes } of this.#patterns) {
      if (path.length <= prefix.length + suffix.length || !path.startsWith(prefix) || !path.endsWith(suffix)) continue;
      const rest = path.slice(prefix.length, path.length - suffix.length);
      return chosen(routes, NEVER.has(method) ? "" : method, rest);
    }
    return { kind: "unknown" };
  }
}

function chosen<R extends TableRoute>(routes: readonly R[], method: string, rest: string): RouteMatch<R> {
  const route = routes.find((one) => method !== "" && takes(one, method));
  if (route !== undefined) return { kind: "route", route, rest };
  const allowed = routes.flatMap(({ methods }) => (methods === "any" ? [] : methods));
  return { kind: "methodNotAllowed", allow: [...new Set(allowed)].join(", ") };
}
