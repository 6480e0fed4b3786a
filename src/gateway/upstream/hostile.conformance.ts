import assert from "node:assert/strict";
import { MALFORMED_RESPONSES } from "../../testing/malformed-responses.ts";
import { RawServer, type RawCall } from "../../testing/raw-server.ts";
import { aRequest, aTarget, type ExchangeRecorder, startExchange } from "../../testing/record-exchange.ts";
import { answer, bodyOf, endOf, type Suite, until } from "./suite.conformance.ts";

export function smugglingTests({ it, makeClient, traits }: Suite): void {
  const serve = (call: RawCall): void => {
    const shape = MALFORMED_RESPONSES[Number(/^\/bad\/(\d+)/.exec(call.path)?.[1] ?? -1)];
    if (shape === undefined) {
      call.socket.write(answer(`${call.path} on its own`));
      return;
    }
    call.socket.write(shape.bytes, "latin1");
    if (shape.verdict === "unfinished" || !traits.strict) call.socket.end();
  };

  it("every malformed answer is refused, and the next caller gets its own answer [80.G15 80.C36]", async () => {
    await using server = await RawServer.listen({ onCall: serve });
    const client = makeClient();
    const target = aTarget(server.port);
    for (const [index, shape] of MALFORMED_RESPONSES.entries()) {
      assert.equal(
        await bodyOf(startExchange(client, target, aRequest(`/before/${index}`))),
        `/before/${index} on its own`,
      );
      const bad = startExchange(client, target, aRequest(`/bad/${index}`, { method: shape.method ?? "GET" }), {
        chunks: index % 2 === 0,
      });
      const end = await endOf(bad);
      const used = server.calls.at(-1)?.connection;
      if (traits.strict) {
        const expected =
          shape.verdict === "refused" ? "protocol" : shape.verdict === "unfinished" ? "truncated" : "end";
        assert.equal(end.kind === "error" ? end.error.kind : end.kind, expected, shape.name);
      }
      assert.equal(
        await bodyOf(startExchange(client, target, aRequest(`/after/${index}`))),
        `/after/${index} on its own`,
        shape.name,
      );
      assert.notEqual(server.calls.at(-1)?.connection, used, `${shape.name}: its connection was used again`);
    }
  });

  it("malformed and clean answers side by side never cross [80.G15]", async () => {
    await using server = await RawServer.listen({ onCall: serve });
    const client = makeClient();
    const target = aTarget(server.port);
    const lane = async (lane: number): Promise<void> => {
      for (let round = 0; round < 30; round += 1) {
        const index = (lane * 31 + round * 7) % MALFORMED_RESPONSES.length;
        await endOf(
          startExchange(
            client,
            target,
            aRequest(`/bad/${index}`, { method: MALFORMED_RESPONSES[index]?.method ?? "GET" }),
          ),
        );
        const path = `/clean/${lane}/${round}`;
        assert.equal(await bodyOf(startExchange(client, target, aRequest(path))), `${path} on its own`);
      }
    };
    await Promise.all(Array.from({ length: 10 }, (_, index) => lane(index)));
  });

  it("bytes on an idle connection end it: they are nobody's answer [80.G15 80.C36]", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    for (let round = 0; round < 5; round += 1) {
      assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(`/${round}`))), `/${round}`);
      server.calls.at(-1)?.socket.write(answer("unasked"));
      await until(() => client.counts().open === 0);
    }
    assert.equal(server.connections, 5);
  });

  it("an answer sent ahead of the next request is not taken for its answer [80.G15]", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    const target = aTarget(server.port);
    for (let round = 0; round < 20; round += 1) {
      assert.equal(await bodyOf(startExchange(client, target, aRequest("/first"))), "/first");
      // Already with this machine's kernel when the next request is made, and not read yet.
      const { socket } = server.calls.at(-1) as RawCall;
      socket.write(answer("ahead"));
      assert.equal(await bodyOf(startExchange(client, target, aRequest(`/${round}`))), `/${round}`);
    }
  });
}

export function abortTests({ it, makeClient }: Suite): void {
  it("after abort() nothing is told, at whatever stage, and the engine sees the connection end", async () => {
    const stages = ["at once", "connecting", "sent", "head", "data", "paused", "end"];
    let closed = 0;
    await using server = await RawServer.listen({
      onConnection: (socket) => void socket.on("close", () => (closed += 1)),
      onCall: ({ socket, path }) =>
        path !== "/sent" && socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    });
    const client = makeClient();
    for (const stage of stages) {
      const seen = server.calls.length;
      const recorder: ExchangeRecorder = startExchange(
        client,
        aTarget(server.port),
        aRequest(`/${stage.replace(" ", "")}`),
        {
          onHead: (one) => stage === "head" && one.abort(),
          onData: (one) => (stage === "data" ? (one.abort(), true) : stage !== "paused"),
        },
      );
      if (stage === "connecting") await new Promise((resolve) => setImmediate(resolve));
      if (stage === "sent") await until(() => server.calls.length > seen);
      if (stage === "paused" || stage === "end") await until(() => recorder.payload.length === 3);
      recorder.abort();
      recorder.exchange?.abort();
      recorder.exchange?.pause();
      recorder.exchange?.resume();
      await until(() => client.counts().open === 0);
      assert.deepEqual(recorder.violations, [], stage);
      assert.equal(recorder.end, undefined);
    }
    await until(() => closed === server.connections);
  });

  it("aborts at any moment around head, first and last byte end no other exchange and never the process", async () => {
    await using server = await RawServer.listen({
      onCall: ({ socket, path }) => {
        if (path.startsWith("/none")) socket.write("HTTP/1.1 204 No Content\r\n\r\n");
        else if (path.startsWith("/broken"))
          socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", () => socket.resetAndDestroy());
        else if (path.startsWith("/chunks"))
          socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", () =>
            socket.write("0\r\n\r\n"),
          );
        else socket.write(answer(path));
      },
    });
    const client = makeClient();
    const target = aTarget(server.port);
    const lane = async (index: number): Promise<void> => {
      for (let round = 0; round < 80; round += 1) {
        const path = ["/none", "/broken", "/chunks", "/plain"][round % 4] as string;
        const victim = startExchange(client, target, aRequest(path, { method: round % 9 === 0 ? "HEAD" : "GET" }));
        for (let turn = 0; turn < (index * 3 + round) % 8; turn += 1)
          await new Promise((resolve) => setImmediate(resolve));
        if (victim.end === undefined) victim.abort();
        assert.equal(
          await bodyOf(startExchange(client, target, aRequest(`/own/${index}/${round}`))),
          `/own/${index}/${round}`,
        );
        assert.deepEqual(victim.violations, []);
      }
    };
    await Promise.all(Array.from({ length: 6 }, (_, index) => lane(index)));
  });
}
