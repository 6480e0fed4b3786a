import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { accessSync, chownSync, constants, globSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { systemRandom } from "../../kernel/random.ts";

export interface TestServer extends AsyncDisposable {
  readonly url: string;
  close(): Promise<void>;
}

/** A server that someone else runs: used as it is, left running. */
export function givenServer(url: string): TestServer {
  const close = (): Promise<void> => Promise.resolve();
  return { url, close, [Symbol.asyncDispose]: close };
}

interface Wanted {
  readonly program: string;
  /** Folders outside the path where distributions put it. Patterns; the highest version wins. */
  readonly alsoIn: readonly string[];
  readonly debianPackage: string;
  readonly urlVariable: string;
}

/** The program's path. Installs the distribution's package where this runs as root; else says in one line what to do. */
export function findOrInstall(wanted: Wanted): string {
  const found = find(wanted);
  if (found !== undefined) return found;
  const help = `${wanted.program} is needed: install ${wanted.debianPackage}, or set ${wanted.urlVariable} to one that runs`;
  if (process.getuid?.() !== 0 || find({ ...wanted, program: "apt-get", alsoIn: [] }) === undefined)
    throw new Error(help);
  process.stderr.write(`installing ${wanted.debianPackage} for the tests\n`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  // apt's own lock keeps two test files apart: the second waits, then finds the package there.
  const apt = ["-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2"];
  try {
    execFileSync(
      "flock",
      [
        "/tmp/yardmaster-apt.lock",
        "sh",
        "-c",
        `apt-get ${apt.join(" ")} update && apt-get ${apt.join(" ")} install -y ${wanted.debianPackage}`,
      ],
      {
        env,
        stdio: ["ignore", "ignore", "pipe"],
        timeout: 600_000,
      },
    );
  } catch (cause) {
    throw new Error(`${help} (installing it failed)`, { cause });
  }
  const installed = find(wanted);
  if (installed === undefined) throw new Error(help);
  return installed;
}

function find(wanted: Wanted): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  const others = wanted.alsoIn
    .flatMap((pattern) => globSync(pattern))
    .toSorted((a, b) => b.localeCompare(a, "en", { numeric: true }));
  return [...folders, ...others].map((folder) => join(folder, wanted.program)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** An account that servers run under which refuse to run as root; undefined when this does not run as root. */
export function ordinaryUser(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ["postgres", "nobody"]) {
    try {
      const id = (flag: string): number =>
        Number(execFileSync("id", [flag, name], { stdio: ["ignore", "pipe", "ignore"] }));
      return { uid: id("-u"), gid: id("-g") };
    } catch {
      continue; // No such account here.
    }
  }
  throw new Error("neither a user postgres nor nobody exists to run a server as");
}

export function dataFolder(name: string, owner?: { readonly uid: number; readonly gid: number }): string {
  const folder = mkdtempSync(join(tmpdir(), `yardmaster-${name}-`));
  if (owner !== undefined) chownSync(folder, owner.uid, owner.gid);
  return folder;
}

/** Below the ports that the kernel gives to connections, and above those that engines get. */
const PORT_FIRST = 20_000;
const PORT_COUNT = 12_000;

/** Free a moment ago: whoever starts on it must be ready to fail and ask again. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORT_FIRST + Math.floor(systemRandom.next() * PORT_COUNT);
    const probe = createServer();
    const free = await new Promise<boolean>((done) => {
      probe.once("error", () => done(false));
      probe.listen(port, "127.0.0.1", () => done(true));
    });
    if (!free) continue;
    probe.close();
    await once(probe, "close");
    return port;
  }
}

interface Started {
  readonly program: string;
  readonly args: readonly string[];
  readonly folder: string;
  readonly user?: { readonly uid: number; readonly gid: number } | undefined;
  /** What the server prints when it takes connections. */
  readonly readyLine: RegExp;
  /** Ends it without waiting for clients. */
  readonly stopSignal: NodeJS.Signals;
}

export interface RunningServer {
  readonly pid: number;
  /** Ends the process; its folder stays, for another one to begin with. */
  end(): Promise<void>;
  stop(): Promise<void>;
}

/** Rejects with the server's last words when it ends before it is ready. */
export async function startServer(server: Started): Promise<RunningServer> {
  const child = spawn(server.program, server.args, {
    cwd: server.folder,
    stdio: ["ignore", "pipe", "pipe"],
    ...server.user,
  });
  const ended = new Promise<void>((resolve) => {
    child.once("error", () => resolve());
    child.once("exit", () => resolve());
  });
  const guard = child.pid === undefined ? undefined : outliveNobody(child.pid, server);
  const end = async (): Promise<void> => {
    guard?.kill("SIGKILL");
    child.kill(server.stopSignal);
    await ended;
  };
  const stop = async (): Promise<void> => {
    await end();
    rmSync(server.folder, { recursive: true, force: true });
  };
  const said = await untilSaid(child, server.readyLine, ended);
  if (said !== undefined) {
    await stop();
    throw new Error(`${server.program} ended before it was ready: ${said.slice(-2_000)}`);
  }
  // A test file that forgets to close its server ends all the same; the guard then ends the server.
  for (const held of [child, child.stdout, child.stderr]) (held as { unref?: () => void }).unref?.();
  return { pid: child.pid ?? 0, end, stop };
}

/** Ends the server and removes its folder when this process ends in any way, also by SIGKILL: it then loses its input. */
function outliveNobody(pid: number, server: Started): ChildProcess {
  const script = 'cat >/dev/null; kill -s "$1" "$2"; sleep 1; rm -rf -- "$3"';
  const signal = server.stopSignal.replace(/^SIG/, "");
  const guard = spawn("/bin/sh", ["-c", script, "sh", signal, String(pid), server.folder], {
    cwd: "/",
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  guard.unref();
  (guard.stdin as { unref?: () => void }).unref?.();
  return guard;
}

/** Undefined when the line came; what was printed when the server ended instead. */
function untilSaid(child: ChildProcess, line: RegExp, ended: Promise<void>): Promise<string | undefined> {
  return new Promise((resolve) => {
    let text = "";
    const take = (chunk: Buffer): void => {
      if (text.length < 100_000) text += chunk.toString();
      if (line.test(text)) resolve(undefined);
    };
    child.stdout?.on("data", take);
    child.stderr?.on("data", take);
    child.once("error", (error) => (text += error.message));
    void ended.then(() => resolve(text));
  });
}
