import type { WeightsSettings } from "../../contract/resolve-agent.ts";
import {
  FILES_MAX,
  readHubListing,
  readS3Page,
  type ListedFile,
  type Listing,
  withFormats,
} from "../../decide/weights/listings.ts";
import { portOf } from "../../decide/weights/judge-redirect.ts";
import { bareHost, type FetchedSource } from "../../decide/weights/source.ts";
import { type Clock, isoTime } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import { Secret } from "../../kernel/secret.ts";
import { encodeS3, signS3, type S3Credentials } from "./sign-s3.ts";
import type { WebClient, WebRequest } from "./web-client.ts";

export interface OriginPorts {
  readonly clock: Clock;
  readonly web: WebClient;
  readonly settings: WeightsSettings;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A listing that could not be had now. */
export type ListingOutcome = Listing | { readonly kind: "later"; readonly why: string };

const LISTING_BYTES_MAX = 16 * 1024 * 1024;
const PAGES_MAX = 100;

/** What is asked of whom for a source, and with which credential. */
export class Origins {
  readonly #ports: OriginPorts;

  constructor(ports: OriginPorts) {
    this.#ports = ports;
  }

  /** The files of a source that an engine may be given. `sha256` is the catalog's word on a source of one file. */
  async list(
    source: FetchedSource,
    { sha256, allowPickle }: { readonly sha256: string | null; readonly allowPickle: boolean },
    signal: AbortSignal,
  ): Promise<ListingOutcome> {
    const listing = await this.#list(source, { sha256, allowPickle }, signal);
    if (listing.kind !== "files" || sha256 === null) return listing;
    if (listing.files.length !== 1)
      return { kind: "refused", why: "the catalog gives a sha256, and the source is more than one file" };
    return { ...listing, files: listing.files.map((file) => ({ ...file, sha256 })) };
  }

  async #list(
    source: FetchedSource,
    { sha256, allowPickle }: { readonly sha256: string | null; readonly allowPickle: boolean },
    signal: AbortSignal,
  ): Promise<ListingOutcome> {
    if (source.kind === "hub") return this.#listHub(source, allowPickle, signal);
    const isFolder = source.kind === "s3" && source.key.endsWith("/");
    const named = source.kind === "web" ? source.file : (source.key.split("/").at(-1) ?? "");
    const listing = isFolder ? await this.#listBucket(source, signal) : oneFile(named, sha256);
    return listing.kind === "files" ? withFormats(listing, isFolder ? null : named, allowPickle) : listing;
  }

  /** For one file of a listing. */
  request(source: FetchedSource, revision: string, { path }: Pick<ListedFile, "path">): WebRequest {
    switch (source.kind) {
      case "web":
        return { url: new URL(source.url), headers: {}, credential: (url) => this.#bearerFor(url) };
      case "hub": {
        const { endpoint } = this.#ports.settings.hub;
        const url = new URL(`${endpoint}/${source.repo}/resolve/${encodePath(revision)}/${encodePath(path)}`);
        return { url, headers: {}, credential: () => this.#hubToken() };
      }
      case "s3":
        return this.#s3Request(source, `/${encodeS3Path(source.key.endsWith("/") ? source.key + path : source.key)}`);
    }
  }

  async #listHub(
    source: Extract<FetchedSource, { kind: "hub" }>,
    allowPickle: boolean,
    signal: AbortSignal,
  ): Promise<ListingOutcome> {
    const { endpoint } = this.#ports.settings.hub;
    const url = new URL(
      `${endpoint}/api/models/${source.repo}/revision/${encodeURIComponent(source.revision)}?blobs=true`,
    );
    const got = await this.#read({ url, headers: {}, credential: () => this.#hubToken() }, signal);
    if (got.kind !== "text") return got;
    try {
      return readHubListing(JSON.parse(got.text), source.file, allowPickle);
    } catch {
      return { kind: "refused", why: "the hub's answer is no JSON" };
    }
  }

  async #listBucket(source: Extract<FetchedSource, { kind: "s3" }>, signal: AbortSignal): Promise<ListingOutcome> {
    const files: ListedFile[] = [];
    let next: string | null = null;
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const query: string[] = [`list-type=2`, `prefix=${encodeS3(source.key)}`];
      if (next !== null) query.push(`continuation-token=${encodeS3(next)}`);
      const got = await this.#read(this.#s3Request(source, `/?${query.toSorted().join("&")}`), signal);
      if (got.kind !== "text") return got;
      const read = readS3Page(got.text, source.key);
      if (read.kind === "refused") return read;
      files.push(...read.files);
      if (files.length > FILES_MAX) return { kind: "refused", why: `the source is more than ${FILES_MAX} objects` };
      if (read.next === null)
        return files.length === 0
          ? { kind: "refused", why: "there are no objects below the source" }
          : { kind: "files", revision: "", files };
      ({ next } = read);
    }
    return { kind: "refused", why: "the list of the bucket does not end" };
  }

  /** `rest` is path and query below the bucket. */
  #s3Request({ bucket }: Extract<FetchedSource, { kind: "s3" }>, rest: string): WebRequest {
    const { endpoint, region } = this.#ports.settings.s3;
    const base = endpoint === null ? `https://${bucket}.s3.${region}.amazonaws.com` : `${endpoint}/${bucket}`;
    const url = new URL(`${base}${rest}`);
    return { url, headers: {}, credential: (at) => this.#signed(at) };
  }

  #signed(url: URL): Readonly<Record<string, string>> {
    const { s3 } = this.#ports.settings;
    const credentials = this.#s3Credentials();
    if (credentials === null) return {};
    return signS3({ method: "GET", url, headers: {} }, s3.region, credentials, isoTime(this.#ports.clock.wall()));
  }

  #s3Credentials(): S3Credentials | null {
    const { keyIdEnv, secretEnv, sessionEnv } = this.#ports.settings.s3;
    const [keyId, secret, session] = [keyIdEnv, secretEnv, sessionEnv].map((name) => this.#variable(name));
    if (keyId === undefined || secret === undefined) return null;
    return { keyId, secret: new Secret(secret), session: session === undefined ? null : new Secret(session) };
  }

  #hubToken(): Readonly<Record<string, string>> {
    return bearer(this.#variable(this.#ports.settings.hub.tokenEnv));
  }

  /** Only over TLS, or to this machine, which is all that a source's URL may name otherwise. */
  #bearerFor(url: URL): Readonly<Record<string, string>> {
    const { tokenEnvs } = this.#ports.settings;
    const host = bareHost(url).toLowerCase();
    const name = tokenEnvs[`${host}:${portOf(url)}`] ?? tokenEnvs[host];
    return name === undefined ? {} : bearer(this.#variable(name));
  }

  #variable(name: string): string | undefined {
    const value = this.#ports.env[name];
    return value === "" ? undefined : value;
  }

  async #read(
    request: WebRequest,
    signal: AbortSignal,
  ): Promise<{ readonly kind: "text"; readonly text: string } | Exclude<ListingOutcome, { kind: "files" }>> {
    const { web } = this.#ports;
    const answer = await web.ask(request, signal);
    if (answer.kind === "refused") return answer;
    if (answer.kind === "failed") return { kind: "later", why: answer.why };
    const { status } = answer.head;
    try {
      if (status === 200) return { kind: "text", text: await web.text(answer.body, LISTING_BYTES_MAX) };
    } catch (error) {
      signal.throwIfAborted();
      return { kind: "later", why: `${request.url.host}: ${messageOf(error)}` };
    }
    answer.body.destroy();
    const why = `${request.url.host} answered ${status} for the list of files`;
    return { kind: status === 429 || status >= 500 ? "later" : "refused", why };
  }
}

const oneFile = (path: string, sha256: string | null): Listing => ({
  kind: "files",
  revision: "",
  files: [{ path, bytes: null, sha256 }],
});
const bearer = (token: string | undefined): Readonly<Record<string, string>> =>
  token === undefined ? {} : { authorization: `Bearer ${token}` };
const encodePath = (path: string): string => path.split("/").map(encodeURIComponent).join("/");
const encodeS3Path = (path: string): string => path.split("/").map(encodeS3).join("/");
