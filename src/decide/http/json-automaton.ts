/**
 * The grammar of JSON outside strings, as a table from state and class of byte to the next state, or to an action of the
 * scan (see json-scan.ts).
 */

// Classes of bytes outside strings. Anything else is class 0 and fails in every state.
const CLASS_BYTES = [
  " \t\n\r",
  "{",
  "}",
  "[",
  "]",
  ":",
  ",",
  '"',
  "-",
  "+",
  "0",
  "123456789",
  ".",
  "E",
  "e",
  "t",
  "r",
  "u",
  "f",
  "a",
  "l",
  "s",
  "n",
];
export const CLASS_SHIFT = 5;
export const CLASSES = new Uint8Array(256);
CLASS_BYTES.forEach((bytes, index) => {
  for (const byte of bytes) CLASSES[byte.charCodeAt(0)] = index + 1;
});

// States. `AFTER_*` stand behind a value or a member, `NUMBER_*` and the spelled ones inside a number or a literal.
export const START = 0;
export const VALUE = 1;
export const VALUE_OR_END = 2;
const KEY = 3;
export const KEY_OR_END = 4;
export const COLON = 5;
export const AFTER_IN_ARRAY = 6;
export const AFTER_IN_OBJECT = 7;
export const DONE = 8;
/** Before the value of a wanted key: its first byte is noted. */
export const WANTED_VALUE = 9;
const NUMBER_MINUS = 10;
const NUMBER_ZERO = 11;
const NUMBER_INT = 12;
const NUMBER_DOT = 13;
const NUMBER_FRACTION = 14;
const NUMBER_E = 15;
const NUMBER_E_SIGN = 16;
const NUMBER_EXPONENT = 17;
const FIRST_LITERAL = 18;

// What is more than a change of state.
export const FIRST_ACTION = 64;
const FAIL = 64;
export const OPEN_OBJECT = 65;
export const OPEN_ARRAY = 66;
export const CLOSE = 67;
export const AFTER_COLON = 68;
export const BEGIN_WANTED = 69;
/** A number ends at the byte behind it, which is then looked at again. */
export const NUMBER_END = 70;
export const LITERAL_END = 71;
export const STRING_VALUE = 72;
export const STRING_KEY = 73;

export const TABLE = makeTable();

function makeTable(): Uint8Array {
  const table = new Uint8Array(32 << CLASS_SHIFT).fill(FAIL);
  const on = (state: number, bytes: string, next: number): void => {
    for (const byte of bytes) table[(state << CLASS_SHIFT) | CLASSES[byte.charCodeAt(0)]!] = next;
  };
  for (const state of [
    START,
    VALUE,
    VALUE_OR_END,
    KEY,
    KEY_OR_END,
    COLON,
    AFTER_IN_ARRAY,
    AFTER_IN_OBJECT,
    DONE,
    WANTED_VALUE,
  ])
    on(state, " ", state);
  on(START, "{", OPEN_OBJECT);
  on(KEY, '"', STRING_KEY);
  on(KEY_OR_END, '"', STRING_KEY);
  on(KEY_OR_END, "}", CLOSE);
  on(VALUE_OR_END, "]", CLOSE);
  on(COLON, ":", AFTER_COLON);
  on(AFTER_IN_ARRAY, ",", VALUE);
  on(AFTER_IN_ARRAY, "]", CLOSE);
  on(AFTER_IN_OBJECT, ",", KEY);
  on(AFTER_IN_OBJECT, "}", CLOSE);

  const starts: [string, number][] = [
    ["{", OPEN_OBJECT],
    ["[", OPEN_ARRAY],
    ['"', STRING_VALUE],
    ["-", NUMBER_MINUS],
    ["0", NUMBER_ZERO],
    ["1", NUMBER_INT],
  ];
  let literalState = FIRST_LITERAL;
  for (const literal of ["true", "false", "null"]) {
    starts.push([literal[0]!, literalState]);
    for (const letter of literal.slice(1, -1)) on(literalState, letter, ++literalState);
    on(literalState++, literal.at(-1)!, LITERAL_END);
  }
  for (const [byte, next] of starts) {
    on(VALUE, byte, next);
    on(VALUE_OR_END, byte, next);
    on(WANTED_VALUE, byte, BEGIN_WANTED);
  }

  on(NUMBER_MINUS, "0", NUMBER_ZERO);
  on(NUMBER_MINUS, "1", NUMBER_INT);
  on(NUMBER_INT, "01", NUMBER_INT);
  for (const state of [NUMBER_ZERO, NUMBER_INT]) on(state, ".", NUMBER_DOT);
  for (const state of [NUMBER_DOT, NUMBER_FRACTION]) on(state, "01", NUMBER_FRACTION);
  for (const state of [NUMBER_ZERO, NUMBER_INT, NUMBER_FRACTION]) on(state, "eE", NUMBER_E);
  on(NUMBER_E, "+-", NUMBER_E_SIGN);
  for (const state of [NUMBER_E, NUMBER_E_SIGN, NUMBER_EXPONENT]) on(state, "01", NUMBER_EXPONENT);
  for (const state of [NUMBER_ZERO, NUMBER_INT, NUMBER_FRACTION, NUMBER_EXPONENT]) on(state, " ,}]", NUMBER_END);
  return table;
}
