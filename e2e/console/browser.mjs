// The console in a real browser.
import { readFile } from 'node:fs/promises';
import { chromium } from 'playwright-core';

// patience ends a wait that would never end; it is no measure of speed.
const patience = 120_000;

const launchFlags = [
  '--no-sandbox', // the tests may run as root
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  // A request to another host fails, and appears among the errors.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

// open starts a browser with a profile of its own and opens a page of the console.
// options: gateway, its address; path, of the page; browser, the executable; width,
// height and dark, how the user sees the page; shots, a prefix of screenshots or ''.
export async function open(options) {
  const browser = await chromium.launch({ executablePath: options.browser, headless: true, args: launchFlags, timeout: patience });
  try {
    const context = await browser.newContext({
      viewport: { width: options.width || 1280, height: options.height || 850 },
      colorScheme: options.dark ? 'dark' : 'light',
      reducedMotion: 'reduce',
    });
    context.setDefaultTimeout(patience);
    const view = new View(browser, await context.newPage(), options);
    await view.go(options.path ?? '/console/');
    return view;
  } catch (error) {
    await browser.close();
    throw error;
  }
}

class View {
  #browser;
  #options;
  #shots = 0;
  errors = []; // of the page, and of the browser about it
  foreign = []; // requests to other hosts

  constructor(browser, page, options) {
    this.#browser = browser;
    this.#options = options;
    this.page = page;
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) this.errors.push(message.text());
    });
    page.on('pageerror', (error) => this.errors.push(String(error)));
    const origin = new URL(options.gateway).origin;
    page.context().on('request', (request) => {
      if (new URL(request.url()).origin !== origin) this.foreign.push(request.url());
    });
  }

  go(path) {
    return this.page.goto(this.#options.gateway + path);
  }

  // path is the address without the host.
  get path() {
    return this.page.url().slice(this.#options.gateway.length);
  }

  press(name, root = this.page) {
    return root.getByRole('button', { name, exact: true }).click();
  }

  status(name) {
    return this.page.locator('.session-title .status', { hasText: name }).waitFor();
  }

  // loaded resolves when the page shows what it has loaded.
  async loaded() {
    await this.page.locator('main :is(h1)').first().waitFor();
    await this.page.waitForFunction(() => !document.querySelector('main .loading'));
  }

  // tabTo presses Tab until the element has the focus.
  async tabTo(element, key = 'Tab') {
    for (let n = 0; n < 80; n++) {
      if ((await element.count()) > 0 && (await element.first().evaluate((e) => e === document.activeElement))) return;
      await this.page.keyboard.press(key);
    }
    throw new Error(`${key} does not lead to ${element}`);
  }

  // look returns what any page has to be checked for.
  async look() {
    if (this.#options.shots) await this.page.screenshot({ path: `${this.#options.shots}-${++this.#shots}.png` });
    return {
      path: this.path, title: await this.page.title(), sticksOut: await this.page.evaluate(sticksOut),
      violations: await this.violations(), errors: [...this.errors], foreign: [...this.foreign],
    };
  }

  // violations are those of the accessibility rules of axe.
  async violations() {
    await this.page.evaluate(await axe);
    return this.page.evaluate(async () => {
      const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
      return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)} ${n.failureSummary}`));
    });
  }

  close() {
    return this.#browser.close();
  }
}

const axe = readFile(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

// sticksOut runs in the page. It returns the visible elements that are wider than the window.
function sticksOut() {
  const found = [...document.querySelectorAll('body *')].filter((e) => {
    const box = e.getBoundingClientRect();
    return e.checkVisibility({ visibilityProperty: true }) && getComputedStyle(e).clipPath === 'none' && box.right > innerWidth + 1;
  });
  const wide = document.documentElement.scrollWidth > innerWidth ? ['the document scrolls sideways'] : [];
  return [...wide, ...found.filter((e) => !e.closest('.extent, pre, .what, .gist')).map((e) => e.outerHTML.slice(0, 120))];
}
