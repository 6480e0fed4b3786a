import { LINK_CLOSE, type AgentMessage } from "../../contract/agent-link.ts";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { type ErrorCode, messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { ControlStore } from "../store/control-store.ts";
import { WrongTokenLimit } from "./wrong-token-limit.ts";
import { CREDENTIAL_PREFIX, type NodeCredential, TOKEN_PREFIX } from "../store/enrolments.ts";

/**
 * Who is let in as which node.
 *
 * Invariants:
 *   D1. A one-time token is redeemed only for the name that its bearer gives in `hello`; a credential names its node by itself.
 *   D2. Only a leader renews, and only for a connection that has just been made: who shows an old credential then has no newer
 *       one. Otherwise two control planes could each make one void that the agent has just kept.
 *   D3. A store that does not answer lets nobody in and shuts nobody out: whoever is told so comes again.
 *   D4. An address that shows wrong tokens is tried ever more slowly, and told of once.
 */
export interface DoorPorts {
  readonly store: Pick<ControlStore, "redeemToken" | "checkCredential" | "renewCredential">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly leads: () => boolean;
  readonly onEvent: (event: NewEvent) => void;
}

export interface Admitted {
  readonly nodeId: string;
  readonly node: string;
  /** New; null where the one that was shown goes on. */
  readonly credential: Secret | null;
  /** What was shown; null for a token. */
  readonly shown: Secret | null;
}

export type Visitor =
  | { readonly kind: "token"; readonly token: Secret; readonly peer: string }
  | { readonly kind: "node"; readonly shown: Secret; readonly found: NodeCredential };

export interface Refused {
  readonly kind: "refused";
  readonly code: ErrorCode;
  readonly why: string;
}

export type Knock = { readonly kind: "mayBe"; readonly shown: Secret } | Refused;

export type Look = { readonly kind: "visitor"; readonly visitor: Visitor } | Refused;

export type Entrance =
  | { readonly kind: "entered"; readonly admitted: Admitted }
  | { readonly kind: "refused"; readonly close: number; readonly why: string };

/** A connection whose credential may be looked at again. */
export interface Held {
  readonly credential: Secret | null;
  checkedAt: MonoMs;
  close(code: number, why: string): void;
}

/** Of WebSocket: come again. */
export const TRY_AGAIN = 1013;
const RESTART = 1012;
/** A connected node's credential is looked at this often, so that it does not end while it is in use. */
const RECHECK_MS = 3_600_000;
/** At once; the fleet does not reconnect in one moment. */
const RECHECKS_MAX = 20;

export class AgentDoor {
  readonly #ports: DoorPorts;
  readonly #wrong = new WrongTokenLimit();

  constructor(ports: DoorPorts) {
    this.#ports = ports;
  }

  /** What is no node's by its looks takes nobody's turn. */
  knock(shown: Secret | null): Knock {
    if (shown === null) return refusedLook("UNAUTHORIZED", "send `Authorization: Bearer`");
    const text = shown.reveal();
    if (text.startsWith(TOKEN_PREFIX) || text.startsWith(CREDENTIAL_PREFIX)) return { kind: "mayBe", shown };
    return refusedLook("UNAUTHORIZED", "this is no node's credential");
  }

  /** Of who has knocked, before the connection is opened. */
  async look(shown: Secret, peer: string): Promise<Look> {
    if (shown.reveal().startsWith(TOKEN_PREFIX))
      return { kind: "visitor", visitor: { kind: "token", token: shown, peer } };
    try {
      const found = await this.#ports.store.checkCredential(shown);
      if (found === undefined) return refusedLook("UNAUTHORIZED", "the credential is not, or no longer, valid");
      return { kind: "visitor", visitor: { kind: "node", shown, found } };
    } catch (error) {
      this.#ports.log.warn("agent.not_checked", { why: messageOf(error) });
      return refusedLook("STORE_UNAVAILABLE", "the store did not answer: try again");
    }
  }

  /** After its hello. Never rejects. */
  async enter(visitor: Visitor, hello: Extract<AgentMessage, { type: "hello" }>): Promise<Entrance> {
    try {
      return visitor.kind === "token" ? await this.#redeem(visitor, hello.nodeName) : await this.#know(visitor, hello);
    } catch (error) {
      this.#ports.log.warn("agent.not_checked", { why: messageOf(error) });
      return { kind: "refused", close: TRY_AGAIN, why: "the store did not answer: try again" };
    }
  }

  async #redeem({ token, peer }: Extract<Visitor, { kind: "token" }>, name: string): Promise<Entrance> {
    const { store, clock, log, onEvent } = this.#ports;
    if (!this.#wrong.mayTry(peer, clock.mono()))
      return {
        kind: "refused",
        close: TRY_AGAIN,
        why: "too many wrong tokens came from this address: try again later",
      };
    const outcome = await store.redeemToken(token, name);
    if (outcome.kind === "refused") {
      if (this.#wrong.spend(peer, clock.mono())) onEvent(controlEvent("enrolmentRefused", guessing(peer)));
      log.warn("agent.token_refused", { node: name.slice(0, 64), why: outcome.why });
      return { kind: "refused", close: LINK_CLOSE.unauthorized, why: "the token was not accepted" };
    }
    const { nodeId, node, credential } = outcome;
    return { kind: "entered", admitted: { nodeId, node, credential, shown: null } };
  }

  async #know(
    { shown, found }: Extract<Visitor, { kind: "node" }>,
    hello: Extract<AgentMessage, { type: "hello" }>,
  ): Promise<Entrance> {
    const { nodeId, node, renew } = found;
    if (hello.nodeId !== null && hello.nodeId !== nodeId)
      return { kind: "refused", close: LINK_CLOSE.unauthorized, why: "a credential speaks for its own node" };
    const fresh = renew && this.#ports.leads() ? await this.#ports.store.renewCredential(shown) : undefined;
    return { kind: "entered", admitted: { nodeId, node, credential: fresh ?? null, shown: fresh ?? shown } };
  }

  /** Keeps credentials of nodes alive that stay connected for long, and asks those to come again whose is to be renewed (D2). */
  async sweep(connections: Iterable<Held>, now: MonoMs): Promise<void> {
    const due = [...connections]
      .filter(({ credential, checkedAt }) => credential !== null && now - checkedAt >= RECHECK_MS)
      .slice(0, RECHECKS_MAX);
    for (const connection of due) {
      connection.checkedAt = now;
      const { credential } = connection;
      const found = credential === null ? undefined : await this.#ports.store.checkCredential(credential);
      if (found?.renew === true) connection.close(RESTART, "come again for a new credential");
    }
  }
}

const guessing = (peer: string): string =>
  `many wrong tokens came from ${peer}: they are tried slowly now, and further ones are not told of each`;

const refusedLook = (code: ErrorCode, why: string): Refused => ({
  kind: "refused",
  code,
  why,
});
