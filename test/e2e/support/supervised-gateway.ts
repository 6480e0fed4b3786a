import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { freePort } from "../../../src/testing/servers/server-process.ts";
import { programFolder, runProgram, type ProgramFolder, type RunningProgram } from "./program.ts";

/**
 * A gateway as a process that is stopped and started again on the same address with the same data, as a service manager does;
 * also by commands of a shell, for who is given one.
 */
export class SupervisedGateway implements AsyncDisposable {
  readonly port: number;
  readonly #folder: ProgramFolder;
  readonly #file: Record<string, unknown>;
  readonly #control: Server;
  #program: RunningProgram;

  /** `file`: the configuration without its address. */
  static async start(file: Record<string, unknown>): Promise<SupervisedGateway> {
    const port = await freePort();
    const folder = await programFolder();
    await folder.write({ ...file, listen: `127.0.0.1:${port}` });
    const program = runProgram(["gateway", "--config", folder.config]);
    await program.ready();
    const gateway = new SupervisedGateway(port, folder, file, program);
    await new Promise<void>((resolve) => gateway.#control.listen(0, "127.0.0.1", resolve));
    return gateway;
  }

  private constructor(port: number, folder: ProgramFolder, file: Record<string, unknown>, program: RunningProgram) {
    this.port = port;
    this.#folder = folder;
    this.#file = { ...file };
    this.#program = program;
    this.#control = createServer((req, res) => {
      const mode = /^\/mode\/(local|redis)$/.exec(req.url ?? "")?.[1];
      const moved = mode === "local" || mode === "redis" ? this.moveTo(mode) : this.restart();
      moved.then(
        () => res.writeHead(204).end(),
        (error: unknown) => res.writeHead(500).end(String(error)),
      );
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get out(): string {
    return this.#program.out;
  }

  async restart(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    this.#program.kill(signal);
    await this.#program.end();
    await this.#folder.write({ ...this.#file, listen: `127.0.0.1:${this.port}` });
    this.#program = runProgram(["gateway", "--config", this.#folder.config]);
    await this.#program.ready();
  }

  /** One line of the file, and a restart. */
  async moveTo(mode: "local" | "redis"): Promise<void> {
    this.#file["coordination"] = mode;
    await this.restart();
  }

  /** For a shell: restarts the gateway, and returns when it can serve. */
  get restartCommand(): string {
    return this.#command("/restart");
  }

  /** The same in the mode that the word `{mode}` is replaced by. */
  get switchCommand(): string {
    return this.#command("/mode/{mode}");
  }

  #command(path: string): string {
    const url = `http://127.0.0.1:${(this.#control.address() as AddressInfo).port}${path}`;
    return `"${process.execPath}" -e "fetch('${url}').then((res) => process.exit(res.ok ? 0 : 1))"`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#control.closeAllConnections();
    this.#control.close();
    await this.#program[Symbol.asyncDispose]();
    await this.#folder[Symbol.asyncDispose]();
  }
}
