import { type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { BOARD_ROUTES, type SignIn as Credential, type Who } from "../../src/contract/board.ts";
import { Board } from "./board.tsx";
import { ask, sayFailure, whenSignedOut } from "./live/api.ts";
import { readOnce } from "./logic/route.ts";
import "uplot/dist/uPlot.min.css";
import "./style/theme.css";
import "./style/controls.css";
import "./style/shell.css";
import "./style/views.css";
import { keptTheme, showTheme, systemTheme } from "./ui/theme.ts";
import { SignIn } from "./views/sign-in.tsx";

type Session =
  | { readonly kind: "looking" }
  | { readonly kind: "out"; readonly why: string | null }
  | { readonly kind: "in"; readonly who: Who };

function App(): JSX.Element {
  const [session, setSession] = useState<Session>({ kind: "looking" });
  const out = (why: string | null): void => setSession({ kind: "out", why });
  useEffect(() => {
    whenSignedOut(() => out("UNAUTHORIZED: the session has ended"));
    const find = (): void => void findSession().then(setSession);
    // A link that is put into the address of a page that is open already loads nothing.
    const followLink = (): void => {
      if (readOnce(location.hash) === null) return;
      setSession({ kind: "looking" });
      find();
    };
    find();
    addEventListener("hashchange", followLink);
    return () => removeEventListener("hashchange", followLink);
  }, []);
  const signOut = (): void => {
    void ask("DELETE", BOARD_ROUTES.session).then((result) => (result.kind === "unreachable" ? undefined : out(null)));
  };
  switch (session.kind) {
    case "looking":
      return (
        <main class="sign-in" aria-busy="true">
          <p role="status">Yardmaster…</p>
        </main>
      );
    case "out":
      return <SignIn why={session.why} onSignedIn={(who) => setSession({ kind: "in", who })} />;
    case "in":
      return <Board who={session.who} onSignedOut={out} onSignOut={signOut} />;
  }
}

/** By a one-time link, by the cookie, or not at all. */
async function findSession(): Promise<Session> {
  const once = readOnce(location.hash);
  if (once !== null) {
    history.replaceState(null, "", location.pathname);
    const credential: Credential = { once };
    const result = await ask<Who>("POST", BOARD_ROUTES.session, credential);
    if (result.kind === "done") return { kind: "in", who: result.body };
    return { kind: "out", why: sayFailure(result) };
  }
  const result = await ask<Who>("GET", BOARD_ROUTES.session);
  if (result.kind === "done") return { kind: "in", who: result.body };
  return { kind: "out", why: result.kind === "refused" && result.status === 401 ? null : sayFailure(result) };
}

showTheme(keptTheme() ?? systemTheme());
const place = document.getElementById("board");
if (place !== null) render(<App />, place);
