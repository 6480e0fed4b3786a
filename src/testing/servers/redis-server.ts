import { dataFolder, findOrInstall, freePort, givenServer, startServer, type TestServer } from "./server-process.ts";

const URL_VARIABLE = "YARDMASTER_TEST_REDIS_URL";
const STARTS_MAX = 3;

/** A Redis of the test's own, empty and without persistence, unless the environment names one to use. */
export async function startRedis(extraArgs: readonly string[] = []): Promise<TestServer> {
  const given = process.env[URL_VARIABLE];
  if (given !== undefined && given !== "") return givenServer(given);
  const program = findOrInstall({
    program: "redis-server",
    alsoIn: [],
    debianPackage: "redis-server",
    urlVariable: URL_VARIABLE,
  });
  for (let start = 1; ; start += 1) {
    const port = await freePort();
    const folder = dataFolder("redis");
    const args = ["--bind", "127.0.0.1", "--port", String(port), "--dir", folder, "--save", "", "--appendonly", "no"];
    try {
      const { stop } = await startServer({
        program,
        args: [...args, ...extraArgs],
        folder,
        readyLine: /Ready to accept connections/,
        stopSignal: "SIGKILL", // It holds nothing worth writing.
      });
      return { url: `redis://127.0.0.1:${port}/0`, close: stop, [Symbol.asyncDispose]: stop };
    } catch (error) {
      if (start === STARTS_MAX) throw error; // Before that, someone else may have taken the port.
    }
  }
}
