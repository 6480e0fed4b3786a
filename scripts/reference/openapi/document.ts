import { z } from "zod";
import type { TableRoute } from "../../../src/access/route-table.ts";
import { ERRORS, type ErrorCode } from "../../../src/kernel/errors.ts";

/** An OpenAPI 3.1 document, made of a listener's own route table and of what is said here of each handler. */

export type JsonSchema = Readonly<Record<string, unknown>>;

export interface AnswerDoc {
  readonly description: string;
  /** Absent: no body, or one that the description is enough for. */
  readonly schema?: z.ZodType | JsonSchema;
  /** Media types; `application/json` unless they are named. */
  readonly types?: readonly string[];
  readonly headers?: Readonly<Record<string, string>>;
}

export interface QueryDoc {
  readonly name: string;
  readonly description: string;
  readonly schema: JsonSchema;
  readonly required?: boolean;
}

export interface BodyDoc {
  readonly description?: string;
  readonly required: boolean;
  readonly content: Readonly<Record<string, z.ZodType | JsonSchema>>;
}

export interface OperationDoc {
  readonly summary: string;
  /** What the pattern's `*` stands for, one name for each part between slashes. */
  readonly rest?: Readonly<Record<string, { readonly description: string; readonly schema: JsonSchema }>>;
  /** The path that stands for the star, where it is more than these names. */
  readonly restPath?: string;
  readonly query?: readonly QueryDoc[];
  readonly headers?: readonly QueryDoc[];
  readonly body?: BodyDoc;
  /** By status. */
  readonly answers: Readonly<Record<string, AnswerDoc>>;
  /** Beyond those of every route. */
  readonly errors: readonly ErrorCode[];
}

/** What the route table knows, and documents show: who may, and how errors are worded. */
export interface DocumentedRoute extends TableRoute {
  readonly handler: string;
  readonly access: "open" | "scrape" | "page" | readonly string[];
  readonly dialect?: string;
}

export interface ListenerDoc<R extends DocumentedRoute> {
  readonly title: string;
  readonly description: string;
  readonly version: string;
  readonly routes: readonly R[];
  /** Null: the document says nothing of the route, for the reason in the listener's description. */
  readonly operationOf: (route: R, method: string) => OperationDoc | null;
  readonly commonErrors: readonly ErrorCode[];
  readonly bodyErrors: readonly ErrorCode[];
  readonly keyHeader: string;
}

const METHODS_WITH_BODY = new Set(["POST", "PUT", "PATCH"]);

export function renderDocument<R extends DocumentedRoute>(listener: ListenerDoc<R>): string {
  const paths: Record<string, Record<string, unknown>> = {};
  const ids = new Set<string>();
  const refusals = new SharedResponses();
  for (const route of listener.routes) {
    if (route.methods === "any") continue;
    for (const method of route.methods) {
      const operation = listener.operationOf(route, method);
      if (operation === null) continue;
      const path = pathOf(route.pattern, operation);
      const id = operationId(route, method, path, ids);
      paths[path] = {
        ...paths[path],
        [method.toLowerCase()]: renderOperation(listener, { route, method, operation, id, refusals }),
      };
    }
  }
  const document = {
    openapi: "3.1.0",
    info: {
      title: listener.title,
      description: listener.description,
      version: listener.version,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    paths,
    components: {
      securitySchemes: {
        key: {
          type: "http",
          scheme: "bearer",
          description: "The key as `Authorization: Bearer KEY`; `x-api-key` does as well.",
        },
      },
      responses: refusals.all(),
      schemas: { Error: ERROR, AnthropicError: ANTHROPIC_ERROR, AzureError: AZURE_ERROR },
    },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

function pathOf(pattern: string, { rest, restPath }: OperationDoc): string {
  const names = Object.keys(rest ?? {});
  if (pattern.includes("*") !== names.length > 0)
    throw new Error(`${pattern}: its entry must name what stands in the place of the star`);
  return pattern.replace("*", restPath ?? names.map((name) => `{${name}}`).join("/"));
}

/** Handlers that answer on several paths are told apart by the path. */
function operationId({ handler }: DocumentedRoute, method: string, path: string, taken: Set<string>): string {
  const words = path
    .replaceAll(/[{}]/g, "")
    .split(/[/:_-]/)
    .filter((word) => word !== "");
  const long = [method.toLowerCase(), ...words.map((word) => `${word[0]?.toUpperCase()}${word.slice(1)}`)].join("");
  const plain = method === "HEAD" ? `${handler}Head` : handler;
  const id = taken.has(plain) ? long : plain;
  taken.add(id);
  return id;
}

interface OperationPlace<R> {
  readonly route: R;
  readonly method: string;
  readonly operation: OperationDoc;
  readonly id: string;
  readonly refusals: SharedResponses;
}

/** Refusals are the same on many routes: each different one stands once, among the components. */
class SharedResponses {
  readonly #names = new Map<string, string>();
  readonly #responses: Record<string, unknown> = {};

  ref(status: number, response: unknown): unknown {
    const text = JSON.stringify(response);
    let name = this.#names.get(text);
    if (name === undefined) {
      const its = Object.keys(this.#responses).filter((known) => known.startsWith(`Refused${status}`));
      name = its.length === 0 ? `Refused${status}` : `Refused${status}No${its.length + 1}`;
      this.#names.set(text, name);
      this.#responses[name] = response;
    }
    return { $ref: `#/components/responses/${name}` };
  }

  all(): Record<string, unknown> {
    return this.#responses;
  }
}

function renderOperation<R extends DocumentedRoute>(
  listener: ListenerDoc<R>,
  { route, method, operation, id, refusals }: OperationPlace<R>,
): Record<string, unknown> {
  const { rest = {}, query = [], headers = [], body } = operation;
  const isOpen = route.access === "open" || route.access === "scrape";
  const roles = Array.isArray(route.access)
    ? `Roles: ${route.access.join(", ")}.`
    : isOpen && route.access === "scrape"
      ? "On loopback no key is needed, unless `metrics.public` says otherwise; elsewhere roles metrics, operator, admin."
      : "No key is needed.";
  const parameters = [
    ...Object.entries(rest).map(([name, { description, schema }]) => ({
      name,
      in: "path",
      required: true,
      description,
      schema,
    })),
    ...query.map((one) => ({
      name: one.name,
      in: "query",
      required: one.required === true,
      description: one.description,
      schema: one.schema,
    })),
    ...headers.map((one) => ({
      name: one.name,
      in: "header",
      required: one.required === true,
      description: one.description,
      schema: one.schema,
    })),
  ];
  const codes = [
    ...listener.commonErrors,
    ...(isOpen ? [] : (["UNAUTHORIZED", "FORBIDDEN"] as const)),
    ...(METHODS_WITH_BODY.has(method) ? listener.bodyErrors : []),
    ...operation.errors,
  ];
  return {
    operationId: id,
    summary: method === "HEAD" ? `${operation.summary} (the head alone)` : operation.summary,
    description: roles,
    ...(isOpen ? { security: [] } : { security: [{ key: [] }] }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined || !METHODS_WITH_BODY.has(method)
      ? {}
      : {
          requestBody: {
            ...(body.description === undefined ? {} : { description: body.description }),
            required: body.required,
            content: Object.fromEntries(
              Object.entries(body.content).map(([type, schema]) => [type, { schema: toJson(schema) }]),
            ),
          },
        }),
    responses: {
      ...renderAnswers(operation.answers, method),
      ...renderErrors([...new Set(codes)], {
        dialect: route.dialect ?? "openai",
        method,
        refusals,
        isEnginesToo: operation.answers["default"] !== undefined,
      }),
    },
  };
}

function renderAnswers(answers: OperationDoc["answers"], method: string): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(answers).map(([status, { description, schema, types = ["application/json"], headers }]) => [
      status,
      {
        description,
        ...(headers === undefined
          ? {}
          : {
              headers: Object.fromEntries(
                Object.entries(headers).map(([name, text]) => [
                  name,
                  { description: text, schema: { type: "string" } },
                ]),
              ),
            }),
        ...(schema === undefined || method === "HEAD"
          ? {}
          : {
              content: Object.fromEntries(
                types.map((type) => [type, { schema: /json/.test(type) ? toJson(schema) : {} }]),
              ),
            }),
      },
    ]),
  );
}

const ERROR_SCHEMAS: Readonly<Record<string, string>> = { anthropic: "AnthropicError", azure: "AzureError" };

function renderErrors(
  codes: readonly ErrorCode[],
  {
    dialect,
    method,
    refusals,
    isEnginesToo,
  }: {
    readonly dialect: string;
    readonly method: string;
    readonly refusals: SharedResponses;
    /** An engine may answer with the same status, in words of its own. */
    readonly isEnginesToo: boolean;
  },
): Record<string, unknown> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of codes) byStatus.set(ERRORS[code].http, [...(byStatus.get(ERRORS[code].http) ?? []), code]);
  const own = { $ref: `#/components/schemas/${ERROR_SCHEMAS[dialect] ?? "Error"}` };
  const schema = isEnginesToo ? { anyOf: [own, { description: "The engine's own." }] } : own;
  return Object.fromEntries(
    [...byStatus]
      .toSorted(([a], [b]) => a - b)
      .map(([status, its]) => {
        const always = its.every((code) => "retryAfter" in ERRORS[code]);
        return [
          String(status),
          refusals.ref(status, {
            description: its.map((code) => `\`${code}\`: ${ERRORS[code].meaning}`).join(" "),
            ...(always
              ? {
                  headers: {
                    "Retry-After": {
                      description: "Whole seconds.",
                      required: true,
                      schema: { type: "string", pattern: "^[0-9]+$" },
                    },
                  },
                }
              : {}),
            ...(method === "HEAD" ? {} : { content: { [isEnginesToo ? "*/*" : "application/json"]: { schema } } }),
          }),
        ];
      }),
  );
}

/** As a client writes it: defaults may be left out, and answers may grow members. */
export function toJson(schema: z.ZodType | JsonSchema): JsonSchema {
  if (!(schema instanceof z.ZodType)) return schema;
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    target: "draft-2020-12",
    io: "input",
    unrepresentable: "any",
  });
  return json;
}

const CODE = { type: "string", description: "Never changes its meaning; see docs/reference/errors.md." };
const MESSAGE = { type: "string", description: "For people; may change." };

const ERROR: JsonSchema = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["message", "type", "code", "param"],
      properties: {
        message: MESSAGE,
        type: { type: "string" },
        code: CODE,
        param: { type: ["string", "null"] },
        request_id: { type: "string" },
      },
    },
    details: {
      type: "object",
      description: "What else there is to say: the mistakes of a catalog, or the change that waits for a confirmation.",
    },
  },
};
const ANTHROPIC_ERROR: JsonSchema = {
  type: "object",
  required: ["type", "error"],
  properties: {
    type: { const: "error" },
    error: {
      type: "object",
      required: ["type", "message", "code", "param"],
      properties: { type: { type: "string" }, message: MESSAGE, code: CODE, param: { type: ["string", "null"] } },
    },
    request_id: { type: "string" },
  },
};
const AZURE_ERROR: JsonSchema = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["code", "message", "innererror"],
      properties: {
        code: { type: "string" },
        message: MESSAGE,
        target: { type: "string" },
        innererror: {
          type: "object",
          required: ["code", "message"],
          properties: { code: CODE, message: MESSAGE, request_id: { type: "string" } },
        },
      },
    },
  },
};

/** Ids and names as they may stand in a path: what can't be one is refused before it is looked for. */
export const pathText = (
  description: string,
  pattern: string,
): { readonly description: string; readonly schema: JsonSchema } => ({
  description,
  schema: { type: "string", pattern: `^${pattern}$` },
});
export const ID_IN_PATH = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}";
