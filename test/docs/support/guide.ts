import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { freePort } from "../../../src/testing/servers/server-process.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { PROGRAM, RunningProgram } from "../../e2e/support/program.ts";

/**
 * A guide, followed as it is written. A comment before a block of code says what a reader does with it:
 *
 *   `<!-- serve -->`        leaves it running in a terminal of its own, until it says that it is ready
 *   `<!-- file NAME -->`    writes it into a file
 *   `<!-- run -->`          runs it; what it exports stays
 *   `<!-- run until -->`    runs it again until what is promised is seen
 *   `<!-- run key -->`      runs it, puts the printed lines in the place of `keys: []`, and the printed keys into the variables that the
 *                           next block exports
 *
 * A block of `text` behind one is what the page promises to be seen, `…` standing for anything. Ports are free ones.
 */

const ROOT = join(import.meta.dirname, "../../..");
const BIN = join(PROGRAM, "..");
const READY_MS_MAX = 120_000;
const COMMAND_MS_MAX = 120_000;

export interface Block {
  /** Null: the page says nothing of it. */
  readonly marker: string | null;
  readonly language: string;
  readonly text: string;
  /** Lines that are to be seen. */
  readonly promises: readonly string[];
}

export function blocksOf(page: string): Block[] {
  const found = [...page.matchAll(/(?:<!-- ([a-z]+(?: [^ ]+)?) -->\n)?^```(\w+)\n([\s\S]*?)^```$/gm)].map(
    ([, marker, language = "", text = ""]) => ({ marker: marker ?? null, language, text }),
  );
  return found.flatMap((block, at): Block[] => {
    if (block.language === "text") return [];
    const next = found[at + 1];
    const promises = next?.language === "text" ? next.text.split("\n").filter((line) => line !== "") : [];
    return [{ ...block, promises }];
  });
}

export class Guide implements AsyncDisposable {
  readonly #folder: string;
  /** The port of the page, and the one that is there. */
  readonly #ports: ReadonlyMap<string, number>;
  readonly #env: Record<string, string>;
  readonly #programs: RunningProgram[] = [];
  #exports: string[] = [];
  #keys: string[] = [];

  private constructor(folder: string, ports: ReadonlyMap<string, number>) {
    this.#folder = folder;
    this.#ports = ports;
    this.#env = {
      PATH: [BIN, process.env["PATH"] ?? ""].join(delimiter),
      HOME: folder,
      YARDMASTER_URL: "",
    };
  }

  /** `known`: ports of what stands beside the page already. */
  static async open(page: string, known: ReadonlyMap<string, number> = new Map()): Promise<Guide> {
    const ports = new Map(known);
    for (const [, port = ""] of page.matchAll(/127\.0\.0\.1:(\d{4})/g))
      if (!ports.has(port)) ports.set(port, await freePort());
    for (const port of ["8200", "8300"]) if (!ports.has(port)) ports.set(port, await freePort());
    return new Guide(await mkdtemp(join(tmpdir(), "yardmaster-guide-")), ports);
  }

  async follow(block: Block): Promise<void> {
    const [what, more] = (block.marker ?? "").split(" ");
    switch (what) {
      case "":
        this.#takeKeys(block.text);
        return;
      case "file":
        await writeFile(join(this.#folder, more ?? ""), this.#withPorts(block.text), { mode: 0o600 });
        return;
      case "serve":
        return this.#serve(block);
      case "run":
        return more === "key" ? this.#makeKeys(block) : this.#run(block, more === "until");
      default:
        throw new Error(`the page has a marker that nobody knows: ${block.marker}`);
    }
  }

  async #serve({ text, promises }: Block): Promise<void> {
    const asked = this.#withPorts(text).trim();
    const command = asked.endsWith("yardmaster up")
      ? `${asked} --listen 127.0.0.1:${this.#ports.get("8200")} --control-listen 127.0.0.1:${this.#ports.get("8300")}`
      : asked;
    const program = new RunningProgram("/bin/sh", ["-c", `${this.#exports.join("\n")}\nexec ${command}`], {
      cwd: this.#folder,
      env: this.#env,
    });
    this.#programs.push(program);
    await program.said(/^yardmaster \S+ ready /m);
    if (command.includes(" gateway")) this.#env["YARDMASTER_URL"] = `http://127.0.0.1:${this.#ports.get("8200")}`;
    if (command.includes(" up ")) await program.said(/Ctrl-C drains and stops/);
    this.#check(promises, program.out);
  }

  async #run({ text, promises }: Block, again: boolean): Promise<void> {
    const run = (): Promise<string> => this.#shell(text);
    if (again) {
      const holds = (out: string): boolean => this.#missing(promises, out).length === 0;
      await eventually(`what the page promises of: ${text}`, run, holds, READY_MS_MAX);
    } else this.#check(promises, await run());
    if (text.includes("--write")) await this.#usePorts("yardmaster.yaml");
    this.#exports.push(...text.split("\n").filter((line) => line.startsWith("export ")));
  }

  async #makeKeys({ text }: Block): Promise<void> {
    const out = await this.#shell(text);
    this.#keys = out.match(/ym_[A-Za-z0-9_-]{43}/g) ?? [];
    const lines = out.split("\n").filter((line) => /^ {4}(- id:| {2}\w+:| {4}- )/.test(line));
    const path = join(this.#folder, "yardmaster.yaml");
    const before = await readFile(path, "utf8");
    const after = before.replace("  keys: []", ["  keys:", ...lines].join("\n"));
    if (after === before || lines.length === 0) throw new Error(`there is no place for the lines of: ${out}`);
    await writeFile(path, after);
  }

  /** `export A=ym_… B=ym_…`: a reader puts the keys there. */
  #takeKeys(text: string): void {
    if (!/=ym_…/.test(text)) return;
    for (const [, name = ""] of text.matchAll(/(\w+)=ym_…/g)) this.#env[name] = this.#keys.shift() ?? "";
  }

  #shell(text: string): Promise<string> {
    const script = [...this.#exports, "exec 2>&1", this.#withPorts(text)].join("\n");
    return new Promise((resolve, reject) => {
      const options = { cwd: this.#folder, env: this.#env, timeout: COMMAND_MS_MAX };
      execFile("/bin/sh", ["-c", script], options, (error, out) => {
        if (error !== null && error.signal !== undefined && error.signal !== null)
          reject(new Error(`${text} ended by ${error.signal}: ${out}`));
        else resolve(out);
      });
    });
  }

  /** In a file that a command has written. */
  async #usePorts(name: string): Promise<void> {
    const path = join(this.#folder, name);
    await writeFile(path, this.#withPorts(await readFile(path, "utf8")));
  }

  #withPorts(text: string): string {
    return text.replaceAll(/127\.0\.0\.1:(\d{4})/g, (all, port: string) => {
      const there = this.#ports.get(port);
      return there === undefined ? all : `127.0.0.1:${there}`;
    });
  }

  #check(promises: readonly string[], out: string): void {
    const missing = this.#missing(promises, out);
    if (missing.length > 0) throw new Error(`promised and not seen:\n${missing.join("\n")}\nwhat was seen:\n${out}`);
  }

  #missing(promises: readonly string[], out: string): string[] {
    return promises.filter((line) => {
      const parts = this.#withPorts(line)
        .split("…")
        .map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|/]/g, (char) => `\\${char}`));
      return !new RegExp(parts.join(".*")).test(out);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.#programs.toReversed()) {
      program.kill("SIGINT");
      await program.end().catch(() => {});
      await program[Symbol.asyncDispose]();
    }
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export const guidePath = (name: string): string => join(ROOT, "docs/guides", name);
