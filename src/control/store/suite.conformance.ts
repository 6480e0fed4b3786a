import { test } from "node:test";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import { ControlStore } from "./control-store.ts";
import type { SqlDriver } from "./sql-driver.ts";

/** What each part of the suite gets: the same on both databases. */
export interface StoreSuite {
  readonly it: (title: string, body: (world: StoreWorld) => Promise<void>) => void;
}

/** An empty database of the test's own. */
export interface StoreWorld {
  /** Another connection to it, as another control plane has. */
  readonly connect: () => Promise<SqlDriver>;
  readonly open: (driver?: SqlDriver) => Promise<ControlStore>;
}

export interface StoreTraits {
  readonly name: string;
  /** Makes an empty database; returns how to connect to it. */
  readonly create: () => Promise<() => Promise<SqlDriver>>;
}

export function makeSuite(traits: StoreTraits): StoreSuite {
  return {
    it: (title, body) => {
      test(`${traits.name}: ${title}`, async () => {
        const create = await traits.create();
        const drivers: SqlDriver[] = [];
        const connect = async (): Promise<SqlDriver> => {
          const driver = await create();
          drivers.push(driver);
          return driver;
        };
        try {
          await body({ connect, open: async (driver) => ControlStore.open(driver ?? (await connect())) });
        } finally {
          await Promise.all(drivers.map((driver) => driver.close()));
        }
      });
    },
  };
}

/** Takes the lease for this holder, whoever had it. */
export async function lead(store: ControlStore, holder: string): Promise<{ holder: string; epoch: number }> {
  const answer = await store.askLease({ holder, leaseMs: 3_600_000, floor: 0, alone: true });
  if (answer.kind !== "held") throw new Error("the lease was not to be had");
  return { holder, epoch: answer.epoch };
}

export const told = (why: string): NewEvent => controlEvent("modelRetried", why);

/** The same driver, whose transactions end as the fault says. */
export function withFault(
  driver: SqlDriver,
  fault: (carryOut: () => ReturnType<SqlDriver["transaction"]>) => ReturnType<SqlDriver["transaction"]>,
): SqlDriver {
  return {
    dialect: driver.dialect,
    query: (statement) => driver.query(statement),
    transaction: (steps) => fault(() => driver.transaction(steps)),
    urgent: (statement) => driver.urgent(statement),
    close: () => driver.close(),
  };
}

/** One after the other, round and round. */
export function nth(stores: readonly ControlStore[], index: number): ControlStore {
  const store = stores[index % stores.length];
  if (store === undefined) throw new Error("there is no store");
  return store;
}
