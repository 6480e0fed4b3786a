import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Watched } from "./wait-for.ts";

// An exporter of GPU readings that plays pages: written from cards, recorded ones, and everything that exporters do wrong.

/** Null leaves the series out. */
export interface FakeCard {
  readonly index: number;
  readonly uuid?: string;
  readonly instance?: string;
  readonly utilization?: number | string | null;
  readonly temperature?: number | string | null;
  readonly xid?: number | null;
  /** By code, how often it came within the last minutes. */
  readonly xidCounts?: Readonly<Record<number, number>>;
  readonly doubleBit?: number | null;
  readonly remapFailed?: number | null;
  readonly energy?: number | null;
}

export type FakePage =
  | { readonly kind: "cards"; readonly cards: readonly FakeCard[]; readonly stampMs?: number }
  | { readonly kind: "text"; readonly text: string; readonly status?: number; readonly contentType?: string }
  | { readonly kind: "huge"; readonly bytes: number }
  /** The head comes and the page never does. */
  | { readonly kind: "hang" }
  /** The connection is cut in the middle of the page. */
  | { readonly kind: "cut"; readonly text: string };

export interface FakeExporter {
  readonly url: string;
  readonly host: string;
  /** How often a page was asked for. */
  readonly asked: number;
  /** What is answered from now on. */
  serve(page: FakePage): void;
  cards(...cards: readonly FakeCard[]): void;
  /** These one after the other, the last one for ever. */
  play(...pages: readonly FakePage[]): void;
  /** Resolves when `count` more pages have been asked for. */
  untilAsked(count: number): Promise<void>;
  close(): Promise<void>;
}

export interface FakeExporterOptions {
  /** In the label `Hostname`. */
  readonly host?: string;
  readonly address?: string;
}

export async function startFakeExporter(options: FakeExporterOptions = {}): Promise<FakeExporter> {
  const host = options.host ?? "gpu-host";
  const address = options.address ?? "127.0.0.1";
  const asked = new Watched();
  let count = 0;
  let pages: readonly FakePage[] = [{ kind: "cards", cards: [] }];
  const server = createServer((_req, res) => {
    const [page, ...later] = pages;
    if (later.length > 0) pages = later;
    if (page !== undefined) answer(res, page, host);
    count += 1;
    asked.changed();
  });
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  const serve = (...next: readonly FakePage[]): void => void (pages = next);
  return {
    url: `http://${address}:${(server.address() as AddressInfo).port}`,
    host,
    get asked() {
      return count;
    },
    serve,
    cards: (...cards) => serve({ kind: "cards", cards }),
    play: serve,
    untilAsked: (more) => {
      const enough = count + more;
      return asked.until(`${more} more looks`, () => count >= enough);
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function answer(res: ServerResponse, page: FakePage, host: string): void {
  switch (page.kind) {
    case "cards":
      res.end(pageOf(page.cards, host, page.stampMs));
      return;
    case "text":
      if (page.contentType !== undefined) res.setHeader("content-type", page.contentType);
      res.writeHead(page.status ?? 200).end(page.text);
      return;
    case "hang":
      res.writeHead(200).flushHeaders();
      return;
    case "cut":
      res.writeHead(200, { "content-length": String(page.text.length + 1_000) });
      res.write(page.text, () => res.destroy());
      return;
    case "huge":
      sendHuge(res, page.bytes);
      return;
    default:
      page satisfies never;
  }
}

/** As fast as the other side takes it, and no further than it does. */
function sendHuge(res: ServerResponse, bytes: number): void {
  const line = Buffer.alloc(65_536, 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 95\n');
  let left = bytes;
  const more = (): void => {
    while (left > 0 && !res.destroyed) {
      left -= line.length;
      if (!res.write(line)) return void res.once("drain", more);
    }
    res.end();
  };
  more();
}

const SERIES = {
  DCGM_FI_DEV_GPU_UTIL: "utilization",
  DCGM_FI_DEV_GPU_TEMP: "temperature",
  DCGM_FI_DEV_XID_ERRORS: "xid",
  DCGM_FI_DEV_ECC_DBE_VOL_TOTAL: "doubleBit",
  DCGM_FI_DEV_ROW_REMAP_FAILURE: "remapFailed",
  DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION: "energy",
} as const satisfies Record<string, keyof FakeCard>;

/** A page as the exporter writes it: one family after the other. A cool card, half busy, unless it says otherwise. */
export function pageOf(cards: readonly FakeCard[], host: string, stampMs?: number): string {
  const usual: Partial<FakeCard> = { utilization: 50, temperature: 60 };
  const stamp = stampMs === undefined ? "" : ` ${stampMs}`;
  const labelsOf = (card: FakeCard): string => {
    const instance = card.instance === undefined ? "" : `,GPU_I_PROFILE="1g.10gb",GPU_I_ID="${card.instance}"`;
    const uuid = card.uuid ?? `GPU-${host}-${card.index}`;
    return `gpu="${card.index}",UUID="${uuid}",device="nvidia${card.index}"${instance},Hostname="${host}"`;
  };
  const lines = Object.entries(SERIES).flatMap(([name, key]) => [
    `# HELP ${name} sample`,
    `# TYPE ${name} gauge`,
    ...cards.flatMap((card) => {
      const value = card[key] === undefined ? usual[key] : card[key];
      return value === undefined || value === null ? [] : [`${name}{${labelsOf(card)}} ${value}${stamp}`];
    }),
  ]);
  const counted = cards.flatMap((card) => countLines(card, labelsOf(card), stamp));
  return [...lines, ...counted].map((line) => `${line}\n`).join("");
}

/** A card without a code has a count of 0 that names none. */
function countLines({ xidCounts }: FakeCard, labels: string, stamp: string): string[] {
  if (xidCounts === undefined) return [];
  const counts = Object.entries(xidCounts).map(([code, count]) => [`,xid="${code}"`, count] as const);
  return (counts.length === 0 ? [["", 0] as const] : counts).map(
    ([label, count]) => `DCGM_EXP_XID_ERRORS_COUNT{${labels},window_size_in_ms="300000"${label}} ${count}${stamp}`,
  );
}
