import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { eventually, within } from "../../../src/testing/wait-for.ts";

const PROGRAM = join(import.meta.dirname, "../../../bin/yardmaster");

/** The program as a user starts it. */
export class YardmasterProcess implements AsyncDisposable {
  readonly child: ChildProcess;
  out = "";
  err = "";
  readonly ended: Promise<number | null>;

  constructor(args: readonly string[], options: { cwd: string; env?: Record<string, string> }) {
    const env = {
      PATH: process.env["PATH"] ?? "",
      HOME: options.cwd,
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"] ?? "",
      ...options.env,
    };
    this.child = spawn(PROGRAM, args, { cwd: options.cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    this.child.stdout?.setEncoding("utf8").on("data", (text: string) => (this.out += text));
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.err += text));
    this.ended = once(this.child, "close").then(([code]) => code as number | null);
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** The address of the line that says it is ready. */
  async ready(): Promise<string> {
    const line = await eventually(
      "the ready line",
      () => /ready listen=(\S+)/.exec(this.out)?.[1] ?? (this.child.exitCode === null ? "" : "ended"),
      (found) => found !== "",
      60_000,
    );
    if (line === "ended") throw new Error(`it ended: ${this.err}${this.out}`);
    return line;
  }

  async stop(): Promise<number | null> {
    this.child.kill("SIGTERM");
    return within("the end of the process", this.ended, 30_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill("SIGKILL");
    await this.ended;
  }
}

/** HOST:PORT of every TCP socket that the process listens on; undefined where the system does not tell. */
export function listeningOf(pid: number): string[] | undefined {
  if (!existsSync("/proc/net/tcp")) return undefined;
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
      } catch {
        return undefined; // Closed since the folder was read.
      }
    }),
  );
  return ["tcp", "tcp6"].flatMap((family) =>
    readFileSync(`/proc/net/${family}`, "utf8")
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[3] === "0A" && inodes.has(fields[9]))
      .map((fields) => {
        const [host = "", port = ""] = (fields[1] ?? "").split(":");
        const bytes = Buffer.from(host, "hex").reverse();
        return `${family === "tcp" ? [...bytes].join(".") : host}:${Number.parseInt(port, 16)}`;
      }),
  );
}
