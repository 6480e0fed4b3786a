import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Clock } from "../../kernel/clock.ts";
import { ERRORS, YardmasterError } from "../../kernel/errors.ts";
import type { ClientRequest } from "./client-port.ts";

const ADMIN_BODY_BYTES_MAX = 64 * 1024;

/** The small JSON of an administrator's request; undefined where there is none. Rejects with BAD_JSON, BAD_REQUEST, BODY_TOO_LARGE or REQUEST_TIMEOUT. */
export function readAdminBody(
  req: ClientRequest,
  { clock, config }: { readonly clock: Clock; readonly config: () => GatewayConfig },
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    const timer = clock.after(config().http.bodyIdleMs, () =>
      reject(new YardmasterError("REQUEST_TIMEOUT", ERRORS.REQUEST_TIMEOUT.meaning)),
    );
    const fail = (code: "BAD_REQUEST" | "BODY_TOO_LARGE", message: string): void => {
      timer.cancel();
      reject(new YardmasterError(code, message));
    };
    req.readBody({
      onData: (chunk) => {
        bytes += chunk.length;
        if (bytes <= ADMIN_BODY_BYTES_MAX) parts.push(chunk);
        else fail("BODY_TOO_LARGE", `the body is larger than ${ADMIN_BODY_BYTES_MAX} bytes`);
      },
      onBroken: () => fail("BAD_REQUEST", "the body broke off"),
      onEnd: () => {
        timer.cancel();
        const text = Buffer.concat(parts).toString("utf8");
        if (text.trim() === "") return resolve(undefined);
        try {
          resolve(JSON.parse(text));
        } catch (cause) {
          reject(new YardmasterError("BAD_JSON", "the body is not JSON", { cause }));
        }
      },
    });
  });
}
