import { z } from "zod";

// Kinds of value that several sections of the configuration file have.

export const CONFIG_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

export const configId = z
  .string()
  .regex(CONFIG_ID, "use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit");

export const seconds = z.number().positive().max(86_400);

export const currencyCode = z.string().regex(/^[A-Z]{3}$/, "use a code of three capital letters, such as EUR");

export const httpUrl = z.string().refine((text) => {
  const url = URL.parse(text);
  return (
    url !== null &&
    (url.protocol === "http:" || url.protocol === "https:") &&
    url.username === "" &&
    url.password === "" &&
    url.search === "" &&
    url.hash === ""
  );
}, "use an http:// or https:// URL without user, password, query or fragment");
