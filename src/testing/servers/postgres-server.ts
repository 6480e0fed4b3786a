import { execFileSync } from "node:child_process";
import { dirname, join } from "node:path";
import {
  dataFolder,
  findOrInstall,
  freePort,
  givenServer,
  ordinaryUser,
  startServer,
  type TestServer,
} from "./server-process.ts";

const URL_VARIABLE = "YARDMASTER_TEST_POSTGRES_URL";
const STARTS_MAX = 3;

/** A PostgreSQL cluster of the test's own with one empty database, unless the environment names one to use. */
export async function startPostgres(extraArgs: readonly string[] = []): Promise<TestServer> {
  const given = process.env[URL_VARIABLE];
  if (given !== undefined && given !== "") return givenServer(given);
  // `initdb` lies beside the server; Debian keeps both off the path.
  const initdb = findOrInstall({
    program: "initdb",
    alsoIn: ["/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"],
    debianPackage: "postgresql",
    urlVariable: URL_VARIABLE,
  });
  const user = ordinaryUser(); // It refuses to run as root.
  for (let start = 1; ; start += 1) {
    const port = await freePort();
    const folder = dataFolder("postgres", user);
    // Nothing here outlives the test, so nothing is made durable.
    const init = ["-D", folder, "-U", "yardmaster", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
    execFileSync(initdb, init, { cwd: folder, stdio: ["ignore", "ignore", "pipe"], ...user });
    const settings = {
      listen_addresses: "127.0.0.1",
      port,
      unix_socket_directories: "",
      fsync: "off",
      full_page_writes: "off",
    };
    const args = ["-D", folder, ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])];
    try {
      const { stop } = await startServer({
        program: join(dirname(initdb), "postgres"),
        args: [...args, ...extraArgs],
        folder,
        user,
        readyLine: /database system is ready to accept connections/,
        stopSignal: "SIGQUIT", // Ends its children too, and drops clients.
      });
      return { url: `postgres://yardmaster@127.0.0.1:${port}/postgres`, close: stop, [Symbol.asyncDispose]: stop };
    } catch (error) {
      if (start === STARTS_MAX) throw error; // Before that, someone else may have taken the port.
    }
  }
}
