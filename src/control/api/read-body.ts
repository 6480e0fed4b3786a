import type { IncomingMessage } from "node:http";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";

/** The whole body as text. Throws BODY_TOO_LARGE, REQUEST_TIMEOUT, or BAD_REQUEST where it breaks off or is no UTF-8. */
export function readBody(
  req: IncomingMessage,
  clock: Clock,
  limits: { bytesMax: number; msMax: number },
): Promise<string> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    const timer = clock.after(limits.msMax, () => fail("REQUEST_TIMEOUT", "the body did not arrive in time"));
    const fail = (code: "BODY_TOO_LARGE" | "REQUEST_TIMEOUT" | "BAD_REQUEST", message: string): void => {
      timer.cancel();
      parts.length = 0;
      reject(new YardmasterError(code, message));
    };
    req.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= limits.bytesMax) parts.push(chunk);
      else fail("BODY_TOO_LARGE", `the body is larger than ${limits.bytesMax} bytes`);
    });
    req.once("close", () => fail("BAD_REQUEST", "the body broke off"));
    req.once("end", () => {
      timer.cancel();
      try {
        resolve(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(parts)));
      } catch {
        fail("BAD_REQUEST", "the body is not UTF-8 text");
      }
    });
  });
}

/** Of requests that name something. */
export const SMALL_BODY_LIMITS = { bytesMax: 64 * 1024, msMax: 10_000 } as const;

/** An absent body is undefined. Throws BAD_JSON as well. */
export async function readJson(
  req: IncomingMessage,
  clock: Clock,
  limits: { bytesMax: number; msMax: number },
): Promise<unknown> {
  const text = await readBody(req, clock, limits);
  if (text.trim() === "") return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new YardmasterError("BAD_JSON", "the body is not JSON", { cause });
  }
}
