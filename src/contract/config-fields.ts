import { z } from "zod";

// Kinds of value that several sections of the configuration file have.

export const seconds = z.number().positive().max(86_400);

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
