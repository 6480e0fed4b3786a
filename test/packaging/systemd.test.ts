import assert from "node:assert/strict";
import { chmodSync, cpSync, globSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { after, test } from "node:test";
import { distributionTool, ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

const UNITS = globSync("deploy/systemd/*.service", { cwd: ROOT }).toSorted();
const root = temporaryFolder("systemd");
after(() => rmSync(root, { recursive: true, force: true }));

/** How exposed `systemd-analyze security` may call it, of 10. Engines need cards, and CUDA bears no filter of system calls. */
const EXPOSURE_MAX: Readonly<Record<string, number>> = {
  "yardmaster-gateway.service": 2,
  "yardmaster-control.service": 2,
  "yardmaster-agent.service": 5,
  "yardmaster-up.service": 5,
};

const analyze = (...args: string[]) => ran(distributionTool("systemd-analyze", "systemd"), args, { cwd: root });
const settings = (unit: string): Map<string, string> =>
  new Map(
    read(`deploy/systemd/${unit}`)
      .split("\n")
      .flatMap((line) => {
        const [, name, value] = /^([A-Za-z]+)=(.*)$/.exec(line) ?? [];
        return name === undefined || value === undefined ? [] : [[name, value] as const];
      }),
  );

/** A system in a folder: this machine's units, ours, and the programs that ours start. */
function layOut(): void {
  cpSync("/usr/lib/systemd/system", join(root, "usr/lib/systemd/system"), { recursive: true, verbatimSymlinks: true });
  for (const unit of UNITS) cpSync(join(ROOT, unit), join(root, "etc/systemd/system", basename(unit)));
  for (const path of ["/opt/yardmaster/bin/yardmaster", "/bin/kill"]) {
    mkdirSync(join(root, dirname(path)), { recursive: true });
    writeFileSync(join(root, path), "#!/bin/sh\n");
    chmodSync(join(root, path), 0o755);
  }
}
layOut();

test("systemd has no complaint about the units, and finds each as little exposed as its work allows", () => {
  assert.deepEqual(
    UNITS.map((path) => basename(path)),
    Object.keys(EXPOSURE_MAX).toSorted(),
  );
  for (const [unit, exposure] of Object.entries(EXPOSURE_MAX)) {
    const verified = analyze("verify", `--root=${root}`, "--recursive-errors=no", "--man=no", unit);
    assert.deepEqual([verified.code, verified.text.trim()], [0, ""], unit);
    const security = analyze("security", "--offline=yes", `--root=${root}`, `--threshold=${exposure * 10}`, unit);
    assert.equal(security.code, 0, `${unit}: ${security.text.split("\n").slice(-4).join(" ")}`);
  }
});

test("the agent's unit ends the agent alone, lets it keep control groups, and takes nothing away that its engines still use", () => {
  const agent = settings("yardmaster-agent.service");
  assert.deepEqual(
    ["KillMode", "Delegate", "OOMPolicy", "PrivateTmp", "RuntimeDirectory"].map((name) => agent.get(name)),
    ["process", "yes", "continue", undefined, undefined],
  );
  const gateway = settings("yardmaster-gateway.service");
  assert.notEqual(agent.get("User"), gateway.get("User"), "engines could read what gateways keep");
});

test("units start nothing as root, give each service time for what it does at its end, and don't try a wrong configuration again", () => {
  for (const unit of Object.keys(EXPOSURE_MAX)) {
    const unitSettings = settings(unit);
    assert.match(unitSettings.get("User") ?? "", /^yardmaster/, unit);
    assert.ok(read("deploy/systemd/yardmaster.sysusers").includes(`u ${unitSettings.get("User")} `), unit);
    assert.equal(unitSettings.get("RestartPreventExitStatus"), "2", unit);
    assert.equal(unitSettings.get("NoNewPrivileges"), "yes", unit);
    assert.equal(unitSettings.get("ProtectSystem"), "strict", unit);
  }
  assert.ok(Number(settings("yardmaster-gateway.service").get("TimeoutStopSec")) > 300);
});
