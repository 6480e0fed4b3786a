import assert from "node:assert/strict";
import { test } from "node:test";
import type { RequestKey } from "../../access/request-key.ts";
import { ASKS_MAX, type Ask } from "../../contract/feed-board.ts";
import type { GatewayMessage } from "../../contract/feed.ts";
import type { ClientReply, ClientRequest } from "../http/client-port.ts";
import { AskDesk } from "./ask-desk.ts";

const KEY: Pick<RequestKey, "id" | "role"> = { id: "key-operator", role: "operator" };
const anAsk = (n: number, over: Partial<Ask> = {}): Ask => ({
  n,
  method: "GET",
  target: "/v1/jobs",
  body: null,
  keyId: KEY.id,
  role: KEY.role,
  credential: null,
  bytesMax: 1_000_000,
  ...over,
});

interface Heard {
  readonly req: ClientRequest;
  readonly res: ClientReply;
  readonly vouched: RequestKey | undefined;
}

function aDesk(takes: () => boolean = () => true) {
  const said: GatewayMessage[] = [];
  const heard: Heard[] = [];
  const desk = new AskDesk(
    {
      send: (message) => {
        if (!takes()) return false;
        said.push(message);
        return true;
      },
    },
    {
      onRequest: (req, res, vouched) => void heard.push({ req, res, vouched }),
      keyOf: (id, role) => ({ id, role }) as RequestKey,
    },
  );
  return { desk, said, heard };
}
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("what is asked goes the way of every request, in the name of the key that was let in, or by the key that it brings", async () => {
  const { desk, said, heard } = aDesk();
  desk.ask(anAsk(1));
  desk.ask(anAsk(2, { method: "POST", body: '{"a":1}', credential: "typed" }));
  const [vouched, typed] = heard;
  assert.deepEqual([vouched?.vouched?.id, vouched?.vouched?.role], ["key-operator", "operator"]);
  assert.equal(typed?.vouched, undefined, "its own key is checked by the gateway");
  const headers = typed?.req.rawHeaders.join("|") ?? "";
  assert.ok(headers.includes("authorization|Bearer typed") && headers.includes("content-length|7"), headers);
  vouched?.res.sendWhole(200, ["Content-Type", "application/json", "Set-Cookie", "x=y"], '{"ok":true}');
  await turn();
  assert.deepEqual(said, [
    { type: "answerHead", n: 1, status: 200, headers: { "content-type": "application/json" } },
    { type: "answerText", n: 1, text: '{"ok":true}' },
    { type: "answerEnd", n: 1, outcome: "whole" },
  ]);
});

test("a streamed answer is told as it comes, with characters that were cut between pieces whole", async () => {
  const { desk, said, heard } = aDesk();
  desk.ask(anAsk(1));
  const res = heard[0]?.res;
  const bytes = Buffer.from("aä€😀");
  res?.begin(200, ["content-type", "text/event-stream"], undefined);
  for (const byte of bytes) res?.writePayload(Buffer.from([byte]));
  res?.end([]);
  await turn();
  const text = said.map((message) => (message.type === "answerText" ? message.text : "")).join("");
  assert.equal(text, "aä€😀");
  assert.deepEqual(said.at(-1), { type: "answerEnd", n: 1, outcome: "whole" });
});

test("asks are bounded in number and size, and one that nobody waits for is left", async () => {
  const { desk, said, heard } = aDesk();
  for (let n = 1; n <= ASKS_MAX; n += 1) desk.ask(anAsk(n, { bytesMax: 10 }));
  desk.ask(anAsk(99));
  assert.deepEqual(said, [{ type: "answerEnd", n: 99, outcome: "busy" }]);
  assert.equal(heard.length, ASKS_MAX);
  let left = 0;
  for (const { res } of heard) res.onGone = () => (left += 1);
  heard[0]?.res.begin(200, [], undefined);
  heard[0]?.res.writePayload(Buffer.alloc(11));
  await turn();
  assert.deepEqual(said.at(-1), { type: "answerEnd", n: 1, outcome: "tooLarge" });
  desk.leave(2);
  await turn();
  assert.equal(left, 2, "its call ends too");
  desk.close();
  await turn();
  assert.equal(left, ASKS_MAX);
  assert.ok(!said.some((message) => message.type === "answerEnd" && message.n === 3), "nobody is there to be told");
});

test("a control plane that takes nothing is not waited for", async () => {
  let takes = true;
  const { desk, heard } = aDesk(() => takes);
  desk.ask(anAsk(1));
  let left = false;
  const res = heard[0]?.res;
  if (res !== undefined) res.onGone = () => (left = true);
  res?.begin(200, [], undefined);
  takes = false;
  res?.writePayload(Buffer.from("x"));
  await turn();
  assert.ok(left);
});
