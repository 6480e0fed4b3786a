/** Whether a sample shows a fault, or its contrary, or says nothing about it. */
export type Sign = { readonly kind: "bad"; readonly detail: string } | { readonly kind: "well" | "silent" };

export const WELL: Sign = { kind: "well" };
export const SILENT: Sign = { kind: "silent" };
