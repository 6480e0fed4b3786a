import assert from "node:assert/strict";
import { test } from "node:test";
import { replyErrorKind } from "./reply-error.ts";

const rows: readonly (readonly [string, ReturnType<typeof replyErrorKind>])[] = [
  ["OOM command not allowed when used memory > 'maxmemory'. script: f, on @user_script:4.", "outOfMemory"],
  ["READONLY You can't write against a read only replica.", "readOnly"],
  ["MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "readOnly"],
  ["LOADING Redis is loading the dataset in memory", "loading"],
  ["MOVED 866 127.0.0.1:7001", "moved"],
  ["CROSSSLOT Keys in request don't hash to the same slot", "moved"],
  ["NOSCRIPT No matching script. Please use EVAL.", "noScript"],
  ["NOPERM User u has no permissions to run the 'eval' command", "denied"],
  ["ERR The user executing the script can't run this command or subcommand script: f: ACL failure in script", "denied"],
  ["BUSY Redis is busy running a script.", "busy"],
  ["ERR unknown command 'EVALSHA'", "other"],
  ["constructor", "other"],
  ["", "other"],
];

for (const [message, kind] of rows)
  test(`the error reply ${JSON.stringify(message.slice(0, 30))} means ${kind}`, () =>
    assert.equal(replyErrorKind(message), kind));
