import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "../../../src/testing/wait-for.ts";
import { RunningProgram } from "../../e2e/support/program.ts";
import { ran, ROOT, type Ran } from "./tools.ts";

/**
 * What a container runtime does to a program, as far as a kernel alone can do it: the first process of its own, a root that can't be
 * written to, no rights, no way to gain some, a user that the system does not know.
 */
export const mayContain = (): boolean => process.getuid?.() === 0;

const INSIDE = `
set -e
root=$1; shift
mount --bind $root $root
cd $root
for folder in usr bin sbin lib lib64; do
  [ -e /$folder ] || continue
  if [ -h /$folder ]; then cp -a /$folder $root/$folder; else mkdir $root/$folder; mount --rbind /$folder $root/$folder; fi
done
mkdir -p $root/proc $root/dev $root/tmp $root/opt/yardmaster $root/var/lib/yardmaster $root/etc
cp /etc/passwd /etc/group /etc/nsswitch.conf /etc/resolv.conf /etc/ld.so.cache $root/etc/
[ -e $root/etc/hosts ] || cp /etc/hosts $root/etc/
mount --bind "$SOURCE" $root/opt/yardmaster
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mount -t tmpfs -o size=64m,mode=1777 tmpfs $root/tmp
mount -t tmpfs -o uid=10001,gid=10001,mode=700 tmpfs $root/var/lib/yardmaster
for pair in $MOUNTS; do
  mkdir -p $root/\${pair#*:}
  mount --bind \${pair%%:*} $root/\${pair#*:}
done
mount -o remount,bind,ro $root
mount -o remount,bind,ro $root/opt/yardmaster
unset SOURCE MOUNTS
exec chroot $root sh -c 'cd /var/lib/yardmaster && exec setpriv \
  --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"' sh "$@"
`;

export interface ContainerOptions {
  /** What is at /opt/yardmaster. Absent: the project. */
  readonly source?: string;
  /** A folder that is not there yet. */
  readonly root: string;
  /** Folder outside to folder inside. Without blanks. */
  readonly mounts: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string>>;
  /** The text of /etc/hosts. Absent: this system's. */
  readonly hosts?: string;
}

/** What is at /opt/yardmaster, run as a container runtime would. */
export class Contained implements AsyncDisposable {
  readonly program: RunningProgram;
  readonly #env: Readonly<Record<string, string>>;

  constructor(command: readonly string[], { source = ROOT, root, mounts, env, hosts }: ContainerOptions) {
    mkdirSync(join(root, "etc"), { recursive: true });
    if (hosts !== undefined) writeFileSync(join(root, "etc/hosts"), hosts);
    const pairs = Object.entries(mounts).map(([outside, inside]) => `${outside}:${inside}`);
    const apart = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"];
    this.#env = env;
    this.program = new RunningProgram("unshare", [...apart, "sh", "-c", INSIDE, "sh", root, ...command], {
      env: { ...env, SOURCE: source, MOUNTS: pairs.join(" ") },
    });
  }

  /** Of the first process, as this system counts. */
  pid(): Promise<number> {
    return eventually(
      "the contained process",
      () => Number(childrenOf(this.program.pid)[0] ?? 0),
      (pid) => pid > 0,
    );
  }

  /** Another program in the same container. */
  async exec(command: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ran> {
    const into = ["--target", String(await this.pid()), "--mount", "--pid", "--root", "--wd"];
    const given = { PATH: process.env["PATH"] ?? "", ...this.#env, ...env, NODE_OPTIONS: "" };
    return ran("nsenter", [...into, "setpriv", "--reuid", "10001", "--regid", "10001", "--clear-groups", ...command], {
      env: given,
    });
  }

  async terminate(): Promise<{ readonly code: number | null; readonly err: string }> {
    process.kill(await this.pid(), "SIGTERM");
    return this.program.end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.program[Symbol.asyncDispose]();
  }
}

const childrenOf = (pid: number): string[] =>
  readFileSync(join("/proc", String(pid), "task", String(pid), "children"), "utf8")
    .split(" ")
    .filter((text) => text !== "");
