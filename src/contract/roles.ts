/** What a key may be used for. Deny by default: a route names the roles that it admits. */
export const ROLES = ["client", "operator", "admin", "approver", "agent", "gateway", "metrics"] as const;
export type Role = (typeof ROLES)[number];
