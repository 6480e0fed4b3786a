import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** A Lua script that lies beside the code. Its head says which KEYS and ARGV it takes, what it returns and what it keeps true. */
export interface Script {
  /** For metrics and messages: the file's name without its ending. */
  readonly name: string;
  readonly text: string;
  /** Under this the server finds it in its cache. */
  readonly sha: string;
}

/** Reads it once, when the module that uses it is loaded. Throws when the file is not there: the build is broken then. */
export function loadScript(url: URL): Script {
  const text = readFileSync(url, "utf8");
  const name = (url.pathname.split("/").at(-1) ?? "").replace(/\.lua$/, "");
  return { name, text, sha: createHash("sha1").update(text).digest("hex") };
}

/** The same script, to be run also when the server's memory is full. Only for what frees, or keeps what is there. */
export function allowingOutOfMemory(script: Script, name: string): Script {
  const text = script.text.replace(/^#!lua\n/, "#!lua flags=allow-oom\n");
  if (text === script.text) throw new Error(`the script ${script.name} does not begin with #!lua`);
  return { name, text, sha: createHash("sha1").update(text).digest("hex") };
}
