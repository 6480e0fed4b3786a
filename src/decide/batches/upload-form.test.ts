import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { UploadForm, type UploadEnd } from "./upload-form.ts";

const B = "b0undary";
const field = (name: string, value: string): string =>
  `--${B}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
const file = (content: string, name = "in.jsonl"): string =>
  `--${B}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: application/octet-stream\r\n\r\n${content}\r\n`;
const END = `--${B}--\r\n`;

function read(text: string, size = Infinity): { readonly end: UploadEnd; readonly content: string } {
  const bytes = Buffer.from(text);
  let content = "";
  const form = new UploadForm(B, (piece) => (content += piece.toString("utf8")));
  for (let at = 0; at < bytes.length; at += size) form.push(bytes.subarray(at, at + size));
  return { end: form.end(), content };
}

test("a file comes out as it went in, wherever its pieces were cut [20.J7]", () => {
  const content = fc.array(fc.constantFrom("a", "\r\n", `--${B}`.slice(0, 5), "\n--", "-"), { maxLength: 40 });
  fc.assert(
    fc.property(content, fc.integer({ min: 1, max: 40 }), fc.boolean(), (parts, size, first) => {
      const text = parts.join("");
      const form = first ? field("purpose", "batch") + file(text) : file(text) + field("purpose", "batch");
      const found = read(form + END, size);
      assert.deepEqual(found, { end: { kind: "whole", filename: "in.jsonl", keepS: null }, content: text });
    }),
  );
});

test("a name is a name to show: no path and nothing that steers a terminal [20.J7]", () => {
  for (const [given, shown] of [
    ["../../etc/passwd", "passwd"],
    ["C:\\\\x\\\\y.jsonl", "y.jsonl"],
    ["a\u202eb\u009bc.jsonl", "abc.jsonl"],
    ["", "file.jsonl"],
  ]) {
    const { end } = read(field("purpose", "batch") + file("x", given) + END);
    assert.equal(end.kind === "whole" && end.filename, shown);
  }
});

const rows: readonly (readonly [name: string, form: string, param: string | null])[] = [
  ["without a purpose", file("x") + END, "purpose"],
  ["for another purpose", field("purpose", "fine-tune") + file("x") + END, "purpose"],
  ["without a file", field("purpose", "batch") + END, "file"],
  ["with two files", field("purpose", "batch") + file("x") + file("y") + END, null],
  ["with a field twice", field("purpose", "batch") + field("purpose", "batch") + file("x") + END, null],
  ["with a field that it has not", field("purpose", "batch") + field("owner", "me") + file("x") + END, null],
  ["that breaks off", field("purpose", "batch") + file("x"), null],
  ["with a long purpose", field("purpose", "b".repeat(10_000)) + file("x") + END, null],
  [
    "that expires too soon",
    field("purpose", "batch") +
      field("expires_after[anchor]", "created_at") +
      field("expires_after[seconds]", "5") +
      file("x") +
      END,
    "expires_after",
  ],
];
for (const [name, form, param] of rows)
  test(`an upload ${name} is refused [20.J7]`, () => {
    const { end } = read(form, 7);
    assert.deepEqual([end.kind, end.kind === "invalid" && end.param], ["invalid", param]);
  });

test("an upload may say how long its file is kept [20.J7]", () => {
  const kept = field("expires_after[anchor]", "created_at") + field("expires_after[seconds]", "7200");
  const { end } = read(field("purpose", "batch") + kept + file("x") + END);
  assert.deepEqual(end, { kind: "whole", filename: "in.jsonl", keepS: 7_200 });
});
