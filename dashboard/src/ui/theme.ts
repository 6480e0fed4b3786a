/** Dark or light: as the system has it, until the reader chooses. */
export type Theme = "dark" | "light";
const KEPT = "yardmaster.theme";

export const systemTheme = (): Theme => (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");

/** A browser that keeps nothing is asked by the system each time. */
export function keptTheme(): Theme | null {
  try {
    const kept = localStorage.getItem(KEPT);
    return kept === "dark" || kept === "light" ? kept : null;
  } catch {
    return null;
  }
}

export function keepTheme(theme: Theme): void {
  try {
    localStorage.setItem(KEPT, theme);
  } catch {
    // It holds for this page alone.
  }
}

export const showTheme = (theme: Theme): void => void (document.documentElement.dataset["theme"] = theme);
