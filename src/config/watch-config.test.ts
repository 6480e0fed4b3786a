import assert from "node:assert/strict";
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../kernel/clock.ts";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { loadConfigFile, parseConfigText } from "./load-config.ts";
import { ConfigReloader, POLL_MS, QUIET_MS, QUIET_MS_MAX, type ReloadPorts, watchConfig } from "./watch-config.ts";

const VALID = (port: number): string => `listen: 127.0.0.1:${port}\nupstreams: []\n`;

/** A file in memory whose every write is a new signature. */
function scene(initial: string, settle?: ReloadPorts<never>["settle"]) {
  const clock = new VirtualClock();
  const stop = new AbortController();
  const events: string[] = [];
  let text = initial;
  let version = 0;
  let loads = 0;
  const first = parseConfigText(text, "y.yaml", {});
  const reloader = new ConfigReloader({
    clock,
    signature: async () => String(version),
    load: async () => {
      loads += 1;
      return parseConfigText(text, "y.yaml", {});
    },
    onValid: ({ config }) => events.push(`valid ${config.listen.port}`),
    onInvalid: (problems) => events.push(`invalid ${problems[0]?.path}`),
    digest: first.kind === "valid" ? first.digest : undefined,
    signal: stop.signal,
    ...(settle === undefined ? {} : { settle }),
  });
  return {
    clock,
    events,
    stop,
    reloader,
    loads: () => loads,
    write: (next: string) => {
      text = next;
      version += 1;
      reloader.look();
    },
  };
}

test("the configuration that is in force already is not applied again", async () => {
  const { clock, events, write } = scene(VALID(1));
  await clock.advance(60_000);
  write(VALID(1));
  await clock.advance(60_000);
  assert.deepEqual(events, []);
});

test("ten writes within a second are one reload, and the last valid one wins", async () => {
  const { clock, events, write, loads } = scene(VALID(1));
  await clock.advance(5_000);
  const before = loads();
  for (let port = 2; port <= 11; port += 1) {
    write(port === 5 ? "listen: [" : port === 7 ? "" : VALID(port));
    await clock.advance(100);
  }
  await clock.advance(QUIET_MS);
  assert.deepEqual(events, ["valid 11"]);
  assert.equal(loads() - before, 1);
});

test("a file that never comes to rest is read all the same", async () => {
  const { clock, events, write } = scene(VALID(1));
  await clock.advance(5_000);
  for (let step = 0; step < 30; step += 1) {
    write(`${VALID(2)}# ${step}\n`);
    await clock.advance(QUIET_MS / 2);
  }
  assert.ok(30 * (QUIET_MS / 2) > QUIET_MS_MAX && events.length >= 1 && events[0] === "valid 2");
});

test("an invalid file keeps the old configuration, tells so once per set of mistakes, and recovers", async () => {
  const { clock, events, write } = scene(VALID(1));
  await clock.advance(5_000);
  for (const text of ["", "# still empty\n", "listn: 1\nupstreams: []\n", VALID(1)]) {
    write(text);
    await clock.advance(10 * POLL_MS);
  }
  assert.deepEqual(events, ["invalid ", "invalid listn", "valid 1"]);
});

test("an explicit reload applies the same text again, at once", async () => {
  const { clock, events, reloader } = scene(VALID(1));
  await clock.advance(5_000);
  reloader.reload();
  await clock.advance(0);
  assert.deepEqual(events, ["valid 1"]);
});

test("a change while the file is being read is not applied half", async () => {
  const clock = new VirtualClock();
  const stop = new AbortController();
  const events: string[] = [];
  let version = 0;
  let release: (() => void) | undefined;
  const reloader = new ConfigReloader({
    clock,
    signature: async () => String(version),
    load: async () => {
      const seen = version;
      await new Promise<void>((resolve) => (release = resolve));
      return parseConfigText(VALID(1000 + seen), "y.yaml", {});
    },
    onValid: ({ config }) => events.push(`valid ${config.listen.port}`),
    onInvalid: () => {},
    digest: undefined,
    signal: stop.signal,
  });
  await clock.advance(QUIET_MS);
  version = 1;
  reloader.look();
  await clock.advance(QUIET_MS * 2);
  release?.();
  await clock.advance(QUIET_MS * 2);
  release?.();
  await clock.advance(QUIET_MS * 2);
  release?.();
  await clock.advance(0);
  assert.deepEqual(events, ["valid 1001"]);
});

test("nothing is read after the end", async () => {
  const { clock, events, write, stop, loads } = scene(VALID(1));
  await clock.advance(5_000);
  stop.abort();
  const before = loads();
  write(VALID(2));
  await clock.advance(60_000);
  assert.deepEqual(events, []);
  assert.equal(loads(), before);
});

/** A real folder; each step waits for the reload that it caused. */
async function realFolder(): Promise<{
  readonly folder: string;
  readonly path: string;
  watchUntil(): { next(): Promise<string>; stop(): void };
}> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-watch-"));
  const path = join(folder, "yardmaster.yaml");
  return {
    folder,
    path,
    watchUntil: () => {
      const stop = new AbortController();
      const seen: string[] = [];
      let wake: (() => void) | undefined;
      const push = (event: string): void => {
        seen.push(event);
        wake?.();
      };
      watchConfig({
        path,
        clock: systemClock,
        load: () => loadConfigFile(path, {}),
        onValid: ({ config }) => push(`valid ${config.listen.port}`),
        onInvalid: () => push("invalid"),
        digest: undefined,
        signal: stop.signal,
      });
      return {
        next: async () => {
          // The watcher's own timers don't keep the process alive; this one does, and bounds the wait.
          const done = new AbortController();
          const bound = systemClock.sleep(30_000, done.signal).catch(() => {});
          if (seen.length === 0) await Promise.race([bound, new Promise<void>((resolve) => (wake = resolve))]);
          done.abort();
          return seen.shift() ?? "nothing within 30 s";
        },
        stop: () => stop.abort(),
      };
    },
  };
}

test("a write in place, a rename over the file, its removal and its return are seen", async () => {
  const { folder, path, watchUntil } = await realFolder();
  await writeFile(path, VALID(1));
  const watching = watchUntil();
  assert.equal(await watching.next(), "valid 1");
  await writeFile(path, VALID(2));
  assert.equal(await watching.next(), "valid 2");
  await writeFile(join(folder, "new"), VALID(3));
  await rename(join(folder, "new"), path);
  assert.equal(await watching.next(), "valid 3");
  await rm(path);
  assert.equal(await watching.next(), "invalid");
  await writeFile(path, VALID(4));
  assert.equal(await watching.next(), "valid 4");
  watching.stop();
});

test("a folder of symlinks that is swapped as a whole is seen, as a mounted ConfigMap does it", async () => {
  const { folder, path, watchUntil } = await realFolder();
  for (const version of [1, 2]) {
    await mkdir(join(folder, `..v${version}`));
    await writeFile(join(folder, `..v${version}`, "yardmaster.yaml"), VALID(version));
  }
  await symlink("..v1", join(folder, "..data"));
  await symlink(join("..data", "yardmaster.yaml"), path);
  const watching = watchUntil();
  assert.equal(await watching.next(), "valid 1");
  await symlink("..v2", join(folder, "..data_tmp"));
  await rename(join(folder, "..data_tmp"), join(folder, "..data"));
  assert.equal(await watching.next(), "valid 2");
  watching.stop();
});

test("a file whose writer pauses is read when it has come to rest, where a part of it would pass for the whole [80.P10]", async () => {
  const { clock, events, write } = scene(VALID(1), { quietMs: 2_000, quietMsMax: 20_000 });
  await clock.advance(5_000);
  write(VALID(2));
  await clock.advance(1_200);
  write(VALID(3));
  await clock.advance(1_900);
  assert.deepEqual(events, []);
  await clock.advance(200);
  assert.deepEqual(events, ["valid 3"]);
});
