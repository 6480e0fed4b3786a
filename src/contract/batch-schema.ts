import { z } from "zod";

/** `batches` of the configuration file. */
export const batchesSection = z
  .strictObject({
    max_file_bytes: z
      .int()
      .positive()
      .max(1_073_741_824)
      .default(209_715_200)
      .describe("A larger upload is answered 413."),
    max_lines: z
      .int()
      .min(1)
      .max(200_000)
      .default(50_000)
      .describe("Requests in one batch. A file with more fails the batch."),
    max_bytes: z
      .int()
      .positive()
      .default(4_294_967_296)
      .describe(
        "Bytes of files kept, of all keys together. Over it an upload is answered 429; what a batch that was accepted comes to is kept all the same. Under `coordination: redis` they are in the server's memory.",
      ),
    max_key_bytes: z.int().positive().default(2_147_483_648).describe("The same for the files of one key."),
    max_files: z
      .int()
      .min(1)
      .max(1_000_000)
      .default(10_000)
      .describe("Files and batches kept, ended ones included. Over it an upload or a batch is answered 429."),
    max_open: z.int().min(1).max(1_000).default(50).describe("Batches of one key that have not ended."),
    max_window_h: z
      .number()
      .positive()
      .max(720)
      .default(168)
      .describe("The longest `completion_window` that a batch may ask for."),
    ttl_h: z
      .number()
      .positive()
      .max(720)
      .default(720)
      .describe("How long a file is kept from its upload, and a batch with its output after its end."),
  })
  .prefault({})
  .describe("Files of clients and batches of calls in them (`/v1/files`, `/v1/batches`).");
