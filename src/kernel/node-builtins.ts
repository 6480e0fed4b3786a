/**
 * Parts of Node that cost a start too much when they are imported like others.
 *
 * `node:http` must not be imported as a module of the language anywhere: making its facade reads every export, and one of them loads
 * a whole implementation of fetch, which takes a tenth of a second and memory that nothing here uses.
 */
export const { createServer, METHODS, request, STATUS_CODES } = process.getBuiltinModule("node:http");

/** Loaded by the first who speaks TLS: together they take as long as `node:http`'s facade. */
export const loadTls = () => process.getBuiltinModule("node:tls");
export const loadHttps = () => process.getBuiltinModule("node:https");
