export interface ServerEvent {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}

/** A frame that grows beyond this is of no server that we know. */
const BUFFER_CHARS_MAX = 64 * 1024 * 1024;

/** Takes a stream of server-sent events apart, however it was cut into pieces. Comments count as a sign of life alone. */
export class EventReader {
  #rest = "";

  take(text: string): readonly ServerEvent[] {
    this.#rest += text;
    if (this.#rest.length > BUFFER_CHARS_MAX) throw new Error("a frame of the stream is too large");
    const events: ServerEvent[] = [];
    for (;;) {
      const end = this.#rest.indexOf("\n\n");
      if (end === -1) return events;
      const event = readFrame(this.#rest.slice(0, end));
      this.#rest = this.#rest.slice(end + 2);
      if (event !== null) events.push(event);
    }
  }
}

function readFrame(frame: string): ServerEvent | null {
  let id: string | null = null;
  let event = "message";
  const data: string[] = [];
  for (const line of frame.split("\n")) {
    if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
    else if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("id:")) id = line.slice(3).trim();
  }
  return data.length === 0 ? null : { id, event, data: data.join("\n") };
}
