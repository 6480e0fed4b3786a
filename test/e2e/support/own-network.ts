import { execFileSync, spawnSync } from "node:child_process";
import { test } from "node:test";
import assert from "node:assert/strict";
import { systemClock } from "../../../src/kernel/clock.ts";
import { type Direction, FaultProxy } from "../../../src/testing/fault-proxy.ts";
import { findOrInstall } from "../../../src/testing/servers/server-process.ts";
import { RunningProgram } from "./program.ts";

const INSIDE = "YARDMASTER_TEST_OWN_NETWORK";
const PREPARE = 'ip link set lo up && exec "$0" "$@"';

/**
 * Runs the tests of a file in a network of their own, where the kernel can drop packets without harm to anybody else. Where the
 * system does not allow that they run as they are, and say so in a line.
 */
export function inOwnNetwork(file: string, define: () => void): void {
  if (process.env[INSIDE] !== undefined) return define();
  const refusal = whyNot();
  if (refusal !== null) {
    process.stderr.write(
      `no network of its own for this test (${refusal}): a proxy swallows what the kernel would drop\n`,
    );
    return define();
  }
  test("the tests of this file in a network of their own", async () => {
    const args = ["--net", "sh", "-c", PREPARE, process.execPath, "--disable-warning=ExperimentalWarning", file];
    await using program = new RunningProgram("unshare", args, { env: { [INSIDE]: "1" } });
    const { code, out, err } = await program.ended;
    assert.equal(code, 0, `${out}${err}`);
  });
}

function whyNot(): string | null {
  try {
    findOrInstall({ program: "iptables", alsoIn: ["/usr/sbin", "/sbin"], debianPackage: "iptables", urlVariable: "" });
  } catch {
    return "iptables is not there";
  }
  const rule = "iptables -A INPUT -p tcp --dport 1 -j DROP";
  const { status, stderr } = spawnSync("unshare", ["--net", "sh", "-c", `ip link set lo up && ${rule}`]);
  return status === 0 ? null : String(stderr).trim() || "it is not allowed";
}

/** The way from one node to one control plane, of which each direction can be cut without the other. */
export class CuttableWay implements AsyncDisposable {
  readonly #relay: FaultProxy;

  static async to(port: number): Promise<CuttableWay> {
    return new CuttableWay(await FaultProxy.start({ clock: systemClock, target: { port } }));
  }

  private constructor(relay: FaultProxy) {
    this.#relay = relay;
  }

  get port(): number {
    return this.#relay.port;
  }

  /** Until it is disposed nothing gets through in this direction, and nobody is told. */
  cut(direction: Direction): Disposable {
    if (process.env[INSIDE] === undefined) return this.#relay.add(direction, { kind: "timeout", timeoutMs: 0 });
    const side = direction === "upstream" ? "--dport" : "--sport";
    const rule = ["INPUT", "-p", "tcp", side, String(this.port), "-j", "DROP"];
    execFileSync("iptables", ["-I", ...rule]);
    return { [Symbol.dispose]: () => execFileSync("iptables", ["-D", ...rule]) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#relay.down();
  }
}
