import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseBoundary } from "./multipart-reader.ts";
import { MultipartScan, type MultipartScanResult } from "./multipart-scan.ts";

const BOUNDARY = "----WebKitFormBoundary7MA4YWxk";

interface Part {
  readonly head: string;
  readonly content: Buffer | string;
}

const field = (name: string, content: string): Part => ({
  head: `Content-Disposition: form-data; name="${name}"`,
  content,
});
const file = (name: string, content: Buffer | string): Part => ({
  head: `Content-Disposition: form-data; name="${name}"; filename="a b;c.wav"\r\nContent-Type: audio/wav`,
  content,
});

function form(parts: readonly Part[], around: { preamble?: string; epilogue?: string } = {}): Buffer {
  const bytes: Buffer[] = [Buffer.from(around.preamble ?? "")];
  for (const part of parts)
    bytes.push(
      Buffer.from(`--${BOUNDARY}\r\n${part.head}\r\n\r\n`),
      Buffer.from(part.content as string),
      Buffer.from("\r\n"),
    );
  return Buffer.concat([...bytes, Buffer.from(`--${BOUNDARY}--${around.epilogue ?? "\r\n"}`)]);
}

/** The model's place is looked at here, for every form and every cut. */
function scan(
  body: Buffer | string,
  cuts: readonly number[] = [],
): Exclude<MultipartScanResult, { kind: "form" }> | Omit<Extract<MultipartScanResult, { kind: "form" }>, "modelAt"> {
  const bytes = Buffer.from(body as string);
  const scanner = new MultipartScan(BOUNDARY);
  let from = 0;
  for (const cut of [...cuts.map((at) => at % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]) {
    scanner.push(Buffer.from(bytes.subarray(from, cut)));
    from = cut;
  }
  const result = scanner.end();
  if (result.kind === "invalid") return result;
  const { modelAt, ...rest } = result;
  assert.equal(modelAt && bytes.toString("utf8", modelAt.start, modelAt.end), rest.model);
  return rest;
}

const isInvalid = (body: Buffer | string, why: RegExp): void => {
  const result = scan(body);
  assert.match(result.kind === "invalid" ? result.why : JSON.stringify(result), why);
  assert.equal(result.kind, "invalid");
};

test("the model is found before and behind a file of megabytes", () => {
  const audio = Buffer.alloc(3_000_000, `\r\n--${BOUNDARY.slice(0, -1)}X\r`);
  const model = field("model", "whisper-1");
  assert.deepEqual(scan(form([file("file", audio), model])), {
    kind: "form",
    model: "whisper-1",
    stream: undefined,
    names: ["file", "model"],
  });
  assert.deepEqual(scan(form([model, field("stream", "true"), file("file", audio)]), [70_000, 140_000]), {
    kind: "form",
    model: "whisper-1",
    stream: "true",
    names: ["model", "stream", "file"],
  });
});

test("names may be unquoted, escaped or UTF-8, and header names in any case", () => {
  const parts = [
    { head: "content-disposition:form-data;name=model", content: "m" },
    { head: 'CONTENT-DISPOSITION: Form-Data; NAME="a\\"b"', content: "" },
    { head: 'Content-Disposition: form-data; name="é"', content: "x" },
  ];
  assert.deepEqual(scan(form(parts)), { kind: "form", model: "m", stream: undefined, names: ["model", 'a"b', "é"] });
});

test("a preamble and an epilogue are passed over, even when the epilogue looks like a part", () => {
  const body = form([field("model", "m")], {
    preamble: "hello\r\n",
    epilogue: `\r\n--${BOUNDARY}\r\n${field("model", "evil").head}\r\n\r\nevil\r\n--${BOUNDARY}--`,
  });
  assert.deepEqual(scan(body), { kind: "form", model: "m", stream: undefined, names: ["model"] });
});

test("the result does not depend on where the body is cut", () => {
  const body = form([field("stream", "false"), file("file", "\r\n--\r\n-----\r"), field("model", "m\r\n--x")], {
    preamble: "p\r\n",
  });
  const whole = scan(body);
  assert.equal(whole.kind === "form" && whole.model, "m\r\n--x");
  for (let cut = 0; cut <= body.length; cut++) assert.deepEqual(scan(body, [cut, cut + 1]), whole, `cut at ${cut}`);
  assert.deepEqual(scan(body, Array.from(body.keys())), whole, "byte by byte");
});

test("a form that another reader could read differently is refused", () => {
  isInvalid(form([field("model", "a"), field("model", "b")]), /twice/);
  isInvalid(form([field("model", ""), field("model", "b")]), /twice/);
  isInvalid(form([field("stream", "a"), field("stream", "a")]), /twice/);
  isInvalid(form([file("model", "a")]), /a file/);
  isInvalid(
    form([{ head: `${field("model", "").head}\r\nContent-Transfer-Encoding: base64`, content: "bQ==" }]),
    /encoded/,
  );
  isInvalid(form([{ head: "Content-Disposition: form-data; name*=utf-8''model", content: "a" }]), /two ways/);
  isInvalid(form([{ head: 'Content-Disposition: form-data; name="x"; name="model"', content: "a" }]), /two ways/);
  isInvalid(form([{ head: 'Content-Disposition: form-data; name="mo\\del"', content: "a" }]), /two ways/);
  isInvalid(
    form([{ head: `${field("x", "").head}\r\n${field("model", "").head}`, content: "a" }]),
    /two Content-Disposition/,
  );
  isInvalid(form([{ head: 'Content-Disposition: form-data;\r\n name="model"', content: "a" }]), /can't be read/);
  isInvalid(form([{ head: "X: 1", content: "a" }]), /no readable/);
  isInvalid(`--${BOUNDARY}\r\n\r\nx\r\n--${BOUNDARY}--`, /no readable/);
});

test("line feeds alone, and a boundary with more behind it, are refused", () => {
  isInvalid(
    `--${BOUNDARY}\nContent-Disposition: form-data; name="model"\n\na\n--${BOUNDARY}--\n`,
    /not followed by a line end/,
  );
  isInvalid(
    form([field("model", "a")])
      .toString()
      .replaceAll("\r\n", "\n"),
    /./,
  );
  isInvalid(`--${BOUNDARY}x\r\n`, /not followed by a line end/);
  isInvalid(`--${BOUNDARY} \r\n`, /not followed by a line end/);
  isInvalid(
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="model"\n\r\n\r\na\r\n--${BOUNDARY}--`,
    /can't be read/,
  );
});

test("every cut of a form before its end is refused", () => {
  const body = form([field("model", "a"), file("f", "x")], { epilogue: "" });
  for (let end = 0; end < body.length; end++) assert.equal(scan(body.subarray(0, end)).kind, "invalid", `${end}`);
  assert.equal(scan(body).kind, "form");
});

test("part heads, fields and parts are bounded", () => {
  isInvalid(form([{ head: `X: ${"a".repeat(8_300)}`, content: "" }]), /longer than 8192/);
  isInvalid(`--${BOUNDARY}\r\n${"a".repeat(100_000)}`, /longer than 8192/);
  isInvalid(form([field("model", "a".repeat(1_025))]), /longer than 1024/);
  const result = scan(form([field("model", "a".repeat(1_024))]), [300, 301, 900]);
  assert.equal(result.kind === "form" && result.model?.length, 1_024);
  isInvalid(form(Array.from({ length: 1_001 }, () => field("x", ""))), /more than 1000 parts/);
});

test("fields are found whatever the files hold and wherever chunks are cut", () => {
  const bits = fc
    .array(
      fc.constantFrom("\r", "\n", "\r\n", "-", "--", `\r\n--${BOUNDARY.slice(0, 9)}`, `--${BOUNDARY}`, "x", "\0é"),
      { maxLength: 12 },
    )
    .map((parts) => parts.join(""));
  // A file that holds a whole delimiter is not a valid form.
  const content = bits.filter((text) => !`${text}\r\n--`.includes(`\r\n--${BOUNDARY}`));
  const value = content.filter((text) => text.length < 900);
  fc.assert(
    fc.property(
      fc.array(content, { maxLength: 3 }),
      value,
      fc.option(value, { nil: undefined }),
      fc.nat(3),
      fc.array(fc.nat(), { maxLength: 8 }),
      (files, model, stream, at, cuts) => {
        const parts = files.map((text, index) => file(`f${index}`, text));
        parts.splice(at, 0, field("model", model));
        if (stream !== undefined) parts.push(field("stream", stream));
        const result = scan(form(parts), cuts);
        assert.ok(result.kind === "form", JSON.stringify(result));
        assert.equal(result.model, model);
        assert.equal(result.stream, stream);
        assert.equal(result.names.length, parts.length);
      },
    ),
    { numRuns: 400 },
  );
});

test("a boundary is read strictly from the content type", () => {
  const ok = (type: string): string | undefined => {
    const result = parseBoundary(type);
    return result.kind === "ok" ? result.boundary : undefined;
  };
  assert.equal(ok("multipart/form-data; boundary=abc"), "abc");
  assert.equal(ok('Multipart/Form-Data;charset=utf-8; BOUNDARY="a b=/?"'), "a b=/?");
  assert.equal(ok(`multipart/form-data; boundary=${"x".repeat(70)}`), "x".repeat(70));
  for (const type of [undefined, "application/json", "multipart/mixed; boundary=a", "multipart/form-datax; boundary=a"])
    assert.equal(parseBoundary(type).kind, "notMultipart");
  for (const rest of [
    "",
    "; boundary=",
    '; boundary=""',
    "; boundary=a; boundary=b",
    `; boundary=${"x".repeat(71)}`,
    '; boundary="a "',
    '; boundary="a\\"b"',
    "; boundary=a b",
    '; boundary="a',
    "; boundary=é",
    "; boundary=a/b",
  ]) {
    assert.equal(parseBoundary(`multipart/form-data${rest}`).kind, "bad", rest);
  }
});
