/** What the control plane itself did or refused, and who asked for it; what happened in the fleet is a `FleetEvent`. */
export type ControlEventKind =
  | "leaderChanged"
  | "leaderStoodDown"
  | "epochRaised"
  | "storeBehind"
  | "catalogApplied"
  | "catalogRefused"
  | "catalogHeld"
  | "tokenIssued"
  | "nodeEnrolled"
  | "enrolmentRefused"
  | "credentialRefused"
  | "commandRefused"
  | "gatewayEnrolled"
  | "gatewayRevoked"
  | "restoredConfirmed"
  | "nodeCordoned"
  | "nodeUncordoned"
  | "nodeRemoved"
  | "nodeDraining"
  | "modelRetried"
  | "modelScaled"
  | "restartAsked"
  | "rolloutAsked"
  | "weightsCollected"
  | "eventsLost"
  | "eventDamaged";

/** As it is given to the store. Holds no secret. */
export interface NewEvent {
  readonly kind: string;
  readonly model: string | null;
  readonly replicaId: string | null;
  readonly nodeId: string | null;
  readonly why: string;
  /** Id of the key whose holder asked for it; absent where nobody did. */
  readonly by?: string | null;
}

export interface StoredEvent {
  /** Without gaps. */
  readonly seq: number;
  /** ISO 8601, by the database's clock. */
  readonly at: string;
  readonly kind: string;
  readonly model: string | null;
  readonly replicaId: string | null;
  readonly nodeId: string | null;
  readonly why: string;
  readonly by: string | null;
}

export const controlEvent = (
  kind: ControlEventKind,
  why: string,
  facts: Partial<Omit<NewEvent, "kind" | "why">> = {},
): NewEvent => ({
  kind,
  model: null,
  replicaId: null,
  nodeId: null,
  ...facts,
  why,
});
