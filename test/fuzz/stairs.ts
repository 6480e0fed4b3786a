/** A fault behind four steps: by chance alone, one input in a thousand million finds it. */
export function climb(input: Buffer): void {
  if (input[0] !== 0x7b) return;
  if (input[1] !== 0x22) return;
  if (input[2] !== 0x3a) return;
  if (input[3] === 0x7d) throw new Error("the top");
}
