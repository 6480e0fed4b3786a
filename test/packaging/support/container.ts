import { readFileSync } from "node:fs";
import { join } from "node:path";
import { RunningProgram } from "../../e2e/support/program.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { ROOT } from "./tools.ts";

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
mkdir -p $root/proc $root/dev $root/tmp $root/opt/yardmaster $root/var/lib/yardmaster $root/etc/yardmaster
cp /etc/passwd /etc/group /etc/hosts /etc/nsswitch.conf /etc/resolv.conf /etc/ld.so.cache $root/etc/
mount --bind "$SOURCE" $root/opt/yardmaster
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mount -t tmpfs -o size=64m,mode=1777 tmpfs $root/tmp
mount -t tmpfs -o uid=10001,gid=10001,mode=700 tmpfs $root/var/lib/yardmaster
mount --bind "$CONFIG" $root/etc/yardmaster
mount -o remount,bind,ro $root
mount -o remount,bind,ro $root/opt/yardmaster 2>/dev/null || true
exec chroot $root setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
`;

export interface Contained extends AsyncDisposable {
  readonly program: RunningProgram;
  /** Of the contained process, as this system counts. */
  pid(): Promise<number>;
}

/** `root` is an empty folder. The project is at /opt/yardmaster, `config` at /etc/yardmaster. */
export function runContained(
  command: readonly string[],
  { root, config, env }: { readonly root: string; readonly config: string; readonly env: Record<string, string> },
): Contained {
  const args = [
    "--mount",
    "--pid",
    "--ipc",
    "--uts",
    "--fork",
    "--kill-child",
    "sh",
    "-c",
    INSIDE,
    "sh",
    root,
    ...command,
  ];
  const program = new RunningProgram("unshare", args, { env: { ...env, SOURCE: ROOT, CONFIG: config } });
  return {
    program,
    pid: () =>
      eventually(
        "the contained process",
        () => Number(childrenOf(program.pid)[0] ?? 0),
        (pid) => pid > 0,
      ),
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
}

const childrenOf = (pid: number): string[] =>
  readFileSync(join("/proc", String(pid), "task", String(pid), "children"), "utf8")
    .split(" ")
    .filter((text) => text !== "");
