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

const withNames = (known: Set<string> | undefined, names: readonly string[]): Set<string> =>
  new Set([...(known ?? []), ...names]);

/** One table drives dispatch and permission: what is not in it does not exist. An exact path goes before a pattern. */
export class RouteTable<R extends TableRoute> {
  readonly #exact = new Map<string, R[]>();
  readonly #patterns: { readonly prefix: string; readonly suffix: string; readonly route: R }[] = [];

  constructor(routes: readonly R[]) {
    for (const route of routes) {
      const { pattern } = route;
      const star = pattern.indexOf("*");
      if (star < 0) this.#exact.set(pattern, [...(this.#exact.get(pattern) ?? []), route]);
      else this.#patterns.push({ prefix: pattern.slice(0, star), suffix: pattern.slice(star + 1), route });
    }
  }

  match(method: string, path: string): RouteMatch<R> {
    const routes = this.#exact.get(path);
    let allow: Set<string> | undefined;
    for (const route of routes ?? []) {
      if (takes(route, method)) return { kind: "route", route, rest: "" };
      if (route.methods !== "any") allow = withNames(allow, route.methods);
    }
    if (routes === undefined) {
      for (const { prefix, suffix, route } of this.#patterns) {
        const fits = path.startsWith(prefix) && path.endsWith(suffix) && path.length > prefix.length + suffix.length;
        if (!fits) continue;
        if (takes(route, method) && !NEVER.has(method))
          return { kind: "route", route, rest: path.slice(prefix.length, path.length - suffix.length) };
        if (route.methods !== "any") allow = withNames(allow, route.methods);
      }
    }
    if (allow !== undefined || routes !== undefined)
      return { kind: "methodNotAllowed", allow: [...(allow ?? [])].join(", ") };
    return { kind: "unknown" };
  }
}
