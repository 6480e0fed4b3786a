import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { BOARD_ROUTES, type Who } from "../../../src/contract/board.ts";
import { ask, sayFailure } from "../live/api.ts";
import { Signal, Text } from "../ui/marks.tsx";

interface SignInProps {
  /** Why somebody has to sign in now; null: nobody has yet. */
  readonly why: string | null;
  readonly onSignedIn: (who: Who) => void;
}

export function SignIn({ why, onSignedIn }: SignInProps): JSX.Element {
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<string | null>(why);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    const result = await ask<Who>("POST", BOARD_ROUTES.session, { key: key.trim() });
    setBusy(false);
    setKey("");
    if (result.kind === "done") onSignedIn(result.body);
    else setFailure(sayFailure(result));
  };
  return (
    <main class="sign-in">
      <h1>
        <Signal tone="unknown" />
        Yardmaster
      </h1>
      <p class="quiet">
        Sign in with the key of an operator, admin or approver. It is sent once, and not kept in this browser.
      </p>
      <form onSubmit={(event) => void submit(event)}>
        <label class="field">
          <span>Key</span>
          <input
            class="input"
            type="password"
            name="key"
            autocomplete="current-password"
            autofocus
            required
            maxLength={300}
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </label>
        <div role="alert">
          {failure !== null && (
            <p class="notice is-bad">
              <Text text={failure} max={600} />
            </p>
          )}
        </div>
        <div class="buttons">
          <button type="submit" class="button is-primary" disabled={busy}>
            {busy ? "Signing in…" : "Sign in"}
          </button>
        </div>
      </form>
      <p class="quiet">
        No key yet? <code>yardmaster key new --id NAME</code> <code>--role operator</code> makes one. On the machine of{" "}
        <code>yardmaster up</code>, the link that it printed signs in once, and <code>yardmaster ctl board</code> prints
        another.
      </p>
    </main>
  );
}
