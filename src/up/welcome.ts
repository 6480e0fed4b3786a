import type { Secret } from "../kernel/secret.ts";

/** What `up` tells a person once it can serve. */
export interface Welcome {
  /** What to type to call this program. */
  readonly program: string;
  /** HOST:PORT */
  readonly gateway: string;
  /** HOST:PORT */
  readonly control: string;
  /** A link that signs one browser in. */
  readonly board: string;
  /** What answers, in words. */
  readonly engine: string;
  /** What the ready line to try asks for. */
  readonly model: string;
  readonly key: Secret;
  readonly config: { readonly path: string; readonly fresh: boolean };
  /** Null: the control plane's store has the catalog. */
  readonly catalog: { readonly path: string; readonly fresh: boolean } | null;
}

const writtenNow = (fresh: boolean): string => (fresh ? " (written just now)" : "");

export function renderWelcome({
  program,
  gateway,
  control,
  board,
  engine,
  model,
  key,
  config,
  catalog,
}: Welcome): string {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "Say hello." }] });
  const catalogLines =
    catalog === null
      ? ""
      : `  catalog   ${catalog.path}${writtenNow(catalog.fresh)}
            Edit it: models are started and stopped at once, changed ones by \`${program} ctl rollout --outdated\`.
`;
  return `
  gateway   http://${gateway}/v1 (OpenAI-compatible), in this process
  control   http://${control} (\`${program} ctl status\` finds it, and its key), in this process
  board     ${board}
            (signs one browser in, once, within 15 minutes; \`${program} ctl board\` makes another link)
  engine    ${engine}
  key       ${key.reveal()}
            (one-time: it ends with this process; \`${program} ctl key new --id NAME\` makes a lasting one)
  config    ${config.path}${writtenNow(config.fresh)}
            To add an engine that you run yourself, edit \`upstreams\` there; a valid change is taken over at once.
${catalogLines}  try it

curl -N http://${gateway}/v1/chat/completions -H "Authorization: Bearer ${key.reveal()}" -H "Content-Type: application/json" -d '${body.replaceAll("'", "'\\''")}'

  Ctrl-C drains and stops, the engines that were started here too.
`;
}
