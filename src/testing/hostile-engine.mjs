// An engine for tests of agents that serves, and goes wrong as told.
// usage: hostile-engine.mjs [key=value…]   host, port and key come from YARDMASTER_ENGINE_*.
//   hold=UUID:MIB:FOLDER   this process "holds" memory of a fake card
//   child=new-session|bare a child that outlives it: deaf to SIGTERM, in a session of its own; `bare` drops its environment
//   childhold=UUID:MIB:FOLDER
//   deaf                   SIGTERM does nothing
//   exit=CODE, signal=NAME after `after` ms (default: before it listens)
//   lines=TEXT             printed before it ends or serves
//   chatter                prints a line again and again, and never serves
//   flood                  writes as fast as it can while it serves
//   sick=FILE              /health is 503 while the file exists
import { spawn } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const options = Object.fromEntries(
  process.argv.slice(2).map((word) => [word.split("=")[0], word.split("=").slice(1).join("=")]),
);
const { YARDMASTER_ENGINE_HOST: host, YARDMASTER_ENGINE_PORT: port, YARDMASTER_ENGINE_KEY: key } = process.env;

function hold(text) {
  if (text === undefined) return;
  const [uuid, mib, ...folder] = text.split(":");
  writeFileSync(join(folder.join(":"), String(process.pid)), `${uuid} ${mib}\n`);
}

if (options.deaf !== undefined) process.on("SIGTERM", () => console.log("deaf to SIGTERM"));
hold(options.hold);
if (options.child !== undefined) {
  const self = process.argv[1];
  const args = [self, "sleep", "deaf", ...(options.childhold === undefined ? [] : [`hold=${options.childhold}`])];
  const env = options.child === "bare" ? { PATH: process.env.PATH } : process.env;
  spawn(process.execPath, args, { detached: true, stdio: "ignore", env }).unref();
}
if (options.lines !== undefined) console.log(options.lines.replaceAll("\\n", "\n"));

function end() {
  if (options.signal !== undefined) {
    process.removeAllListeners(options.signal);
    process.kill(process.pid, options.signal);
  } else process.exit(Number(options.exit));
}

function serve() {
  createServer((request, response) => {
    request.resume();
    request.on("end", () => {
      if (request.url === "/health") {
        response.writeHead(options.sick !== undefined && existsSync(options.sick) ? 503 : 200).end();
        return;
      }
      if (request.headers.authorization !== `Bearer ${key}`) {
        response.writeHead(401).end();
        return;
      }
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ object: "text_completion", choices: [{ text: "Hi", finish_reason: "length" }] }));
    });
  }).listen(Number(port), host);
}

if (options.sleep !== undefined) setInterval(() => {}, 60_000);
else if (options.chatter !== undefined) setInterval(() => console.log("still loading"), 50);
else {
  const ends = options.exit !== undefined || options.signal !== undefined;
  if (!ends || options.after !== undefined) serve();
  if (ends) setTimeout(end, Number(options.after ?? 50));
  if (options.flood !== undefined) {
    const line = `${"flood ".repeat(30)}\n`.repeat(200);
    const pour = () => process.stdout.write(line, () => setImmediate(pour));
    pour();
  }
}
