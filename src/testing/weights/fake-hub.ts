import { createHash } from "node:crypto";
import type { FakeFile, FakeFileServer } from "./fake-file-server.ts";

export interface FakeRepository {
  readonly repo: string;
  readonly revision: string;
  readonly commit: string;
  readonly files: Readonly<Record<string, Buffer>>;
  /** Files of these endings are large: their digests are listed, and they lie on the other server. */
  readonly large?: RegExp;
  readonly cdn?: FakeFileServer;
  readonly token?: string;
}

/** Makes a server a model hub with one repository, in the shapes of the real one. The files can be changed by their path. */
export function serveHub(server: FakeFileServer, hub: FakeRepository): Map<string, FakeFile> {
  const { repo, revision, commit, files, large = /$^/, cdn = server, token } = hub;
  const needs = token === undefined ? {} : { needs: `Bearer ${token}` };
  const siblings = Object.entries(files).map(([rfilename, bytes]) => {
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const lfs = large.test(rfilename) ? { lfs: { sha256, size: bytes.length, pointerSize: 134 } } : {};
    return { rfilename, size: bytes.length, blobId: sha256.slice(0, 40), ...lfs };
  });
  const listing = Buffer.from(JSON.stringify({ id: repo, sha: commit, siblings }));
  server.files.set(`/api/models/${repo}/revision/${revision}`, { bytes: listing, ...needs });
  const places = new Map<string, FakeFile>();
  for (const [path, bytes] of Object.entries(files)) {
    const file: FakeFile = { bytes, etag: `"${createHash("sha1").update(bytes).digest("hex")}"` };
    places.set(path, file);
    const place = `/${repo}/resolve/${commit}/${path}`;
    if (!large.test(path)) server.files.set(place, Object.assign(file, needs));
    else {
      cdn.files.set(`/blobs/${path}`, file);
      server.files.set(place, {
        bytes: Buffer.alloc(0),
        redirect: `${cdn.origin}/blobs/${path}?signature=CANARY-signed`,
        ...needs,
      });
    }
  }
  return places;
}
