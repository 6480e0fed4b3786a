import type { Browser, BrowserContext, Page } from "playwright-core";
import { findOrInstall } from "../servers/server-process.ts";
import { PATIENCE_MS } from "../wait-for.ts";

const PATH_VARIABLE = "YARDMASTER_TEST_CHROMIUM";

/** A page, and all that went wrong on it without being seen. */
export interface WatchedPage {
  readonly page: Page;
  /** Broken rules of the page's own policy, errors, and dialogs that a script opened. */
  readonly troubles: readonly string[];
}

/** A real browser without a window: the distribution's Chromium, which is installed where it is missing and may be. */
export class TestBrowser implements AsyncDisposable {
  readonly #browser: Browser;

  static async start(): Promise<TestBrowser> {
    const given = process.env[PATH_VARIABLE];
    const path =
      given !== undefined && given !== ""
        ? given
        : findOrInstall({ program: "chromium", alsoIn: [], debianPackage: "chromium", urlVariable: PATH_VARIABLE });
    const { chromium } = await import("playwright-core");
    const browser = await chromium.launch({
      executablePath: path,
      // A container has neither the rights for a sandbox nor a large /dev/shm.
      args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none"],
    });
    return new TestBrowser(browser);
  }

  private constructor(browser: Browser) {
    this.#browser = browser;
  }

  /** In a profile of its own: nobody is signed in there. */
  async open(
    url: string,
    {
      width = 1_280,
      height = 800,
      theme = "dark",
    }: { readonly width?: number; readonly height?: number; readonly theme?: "dark" | "light" } = {},
  ): Promise<WatchedPage> {
    const context = await this.#browser.newContext({
      viewport: { width, height },
      colorScheme: theme,
      reducedMotion: "reduce",
      locale: "en-GB",
      timezoneId: "UTC",
      // The tools that look at the page are put there from outside, which the page's own policy would refuse.
      bypassCSP: false,
    });
    const troubles = await watch(context);
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    await page.goto(url);
    return { page, troubles };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#browser.close();
  }
}

async function watch(context: BrowserContext): Promise<readonly string[]> {
  const troubles: string[] = [];
  await context.exposeBinding("__policyBroken", (_, rule: string) => void troubles.push(`policy: ${rule}`));
  await context.addInitScript(
    'document.addEventListener("securitypolicyviolation", (e) => window.__policyBroken(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));',
  );
  context.on("page", (page) => {
    page.on("pageerror", (error) => troubles.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => {
      troubles.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      if (/Content Security Policy|TrustedHTML|Trusted Type/i.test(message.text()))
        troubles.push(`console: ${message.text()}`);
    });
  });
  return troubles;
}
