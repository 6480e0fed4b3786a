import {
  dataFolder,
  findOrInstall,
  freePort,
  givenServer,
  startServer,
  type RunningServer,
  type TestServer,
} from "./server-process.ts";

const URL_VARIABLE = "YARDMASTER_TEST_REDIS_URL";
const STARTS_MAX = 3;

/** A Redis of the test's own, empty and without persistence, unless the environment names one to use. */
export function startRedis(extraArgs: readonly string[] = []): Promise<TestServer> {
  const given = process.env[URL_VARIABLE];
  return given !== undefined && given !== "" ? Promise.resolve(givenServer(given)) : OwnRedis.start(extraArgs);
}

/** A Redis that a test may hurt: always one of its own, always at the same address. */
export class OwnRedis implements TestServer {
  readonly port: number;
  readonly #args: readonly string[];
  readonly #folder: string;
  #running: RunningServer | undefined;
  #paused = false;

  static async start(extraArgs: readonly string[] = []): Promise<OwnRedis> {
    for (let start = 1; ; start += 1) {
      const server = new OwnRedis(await freePort(), extraArgs);
      try {
        await server.again();
        return server;
      } catch (error) {
        if (start === STARTS_MAX) throw error; // Before that, someone else may have taken the port.
      }
    }
  }

  private constructor(port: number, extraArgs: readonly string[]) {
    this.port = port;
    this.#folder = dataFolder("redis");
    const base = [
      "--bind",
      "127.0.0.1",
      "--port",
      String(port),
      "--dir",
      this.#folder,
      "--save",
      "",
      "--appendonly",
      "no",
    ];
    this.#args = [...base, ...extraArgs];
  }

  /** Of its process; 0 while there is none. */
  get pid(): number {
    return this.#running?.pid ?? 0;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}/0`;
  }

  /** It keeps its sockets and answers nothing. */
  pause(): void {
    process.kill(this.#running?.pid ?? 0, "SIGSTOP");
    this.#paused = true;
  }

  resume(): void {
    process.kill(this.#running?.pid ?? 0, "SIGCONT");
    this.#paused = false;
  }

  async kill(): Promise<void> {
    if (this.#paused) this.resume();
    await this.#running?.end();
    this.#running = undefined;
  }

  /** After `kill`: with what it had written down, which is nothing unless it was started with an append-only file. */
  async again(): Promise<void> {
    const program = findOrInstall({
      program: "redis-server",
      alsoIn: [],
      debianPackage: "redis-server",
      urlVariable: URL_VARIABLE,
    });
    this.#running = await startServer({
      program,
      args: this.#args,
      folder: this.#folder,
      readyLine: /Ready to accept connections/,
      stopSignal: "SIGKILL", // It holds nothing worth writing.
    });
  }

  async close(): Promise<void> {
    if (this.#paused) this.resume();
    await this.#running?.stop();
    this.#running = undefined;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
