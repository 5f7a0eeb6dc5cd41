// The chat page in a real browser, as its user meets it: keys in, what is on
// the screen out.
import { chromium } from 'playwright-core';

// patience ends a wait that would never end; it is no measure of speed.
const patience = 60_000;

const launchFlags = [
  '--no-sandbox', // the tests may run as root
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  // What reaches for another host fails, and shows among the errors.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

// open starts a browser with a profile of its own and goes to the page.
// options: gateway, its address; browser, the executable; width, height and
// dark, how the user sees the page; shots, a folder for screenshots or ''.
export async function open(options) {
  const browser = await chromium.launch({ executablePath: options.browser, headless: true, args: launchFlags, timeout: patience });
  try {
    const context = await browser.newContext({
      viewport: { width: options.width || 1000, height: options.height || 760 },
      colorScheme: options.dark ? 'dark' : 'light',
      reducedMotion: 'reduce',
    });
    context.setDefaultTimeout(patience);
    const chat = new Chat(browser, await context.newPage(), options);
    await chat.page.goto(options.gateway);
    await chat.settled();
    return chat;
  } catch (error) {
    await browser.close();
    throw error;
  }
}

class Chat {
  #browser;
  #options;
  #shots = 0;
  #errors = []; // what the page complains of, or the browser about it
  #foreign = []; // requests to other hosts

  constructor(browser, page, options) {
    this.#browser = browser;
    this.#options = options;
    this.page = page;
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) {
        this.#errors.push(message.text());
      }
    });
    page.on('pageerror', (error) => this.#errors.push(String(error)));
    const origin = new URL(options.gateway).origin;
    page.context().on('request', (request) => {
      if (new URL(request.url()).origin !== origin) {
        this.#foreign.push(request.url());
      }
    });
  }

  // The session's id, as the address has it.
  get session() {
    return decodeURIComponent(new URL(this.page.url()).hash.slice(1));
  }

  // say types a message into whatever has the focus, a new line as Shift and
  // Enter, sends it with Enter, and does not wait for the answer.
  async say(text) {
    for (const [i, line] of text.split('\n').entries()) {
      if (i > 0) {
        await this.page.keyboard.press('Shift+Enter');
      }
      await this.page.keyboard.type(line);
    }
    await this.page.keyboard.press('Enter');
  }

  // choose selects the agent of a new chat, and returns to the field of the message.
  async choose(agent) {
    await this.page.locator('#agent').selectOption(agent);
    await this.page.locator('#text').focus();
  }

  // choose selects the agent of a new chat, and returns to the field of the message.
  async choose(agent) {
    await this.page.locator('#agent').selectOption(agent);
    await this.page.locator('#text').focus();
  }

  // press clicks the first button of this name.
  async press(button) {
    await this.page.getByRole('button', { name: button, exact: true }).first().click();
  }

  // fill replaces what the field of this label holds.
  async fill(label, text) {
    await this.page.getByLabel(label, { exact: true }).first().fill(text);
  }

  // pressByKeyboard presses the first button of this name that Tab leads to.
  async pressByKeyboard(button) {
    const found = this.page.getByRole('button', { name: button, exact: true }).first();
    for (let n = 0; n < 50; n++) {
      if (await found.evaluate((element) => element === document.activeElement)) {
        await this.page.keyboard.press('Enter');
        return;
      }
      await this.page.keyboard.press('Shift+Tab');
    }
    throw new Error(`Tab does not lead to ${button}`);
  }

  // settled resolves when nothing is under way and all of it has been drawn.
  async settled() {
    await this.page.locator('[role=log][aria-busy=false]').waitFor();
    await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  }

  // answerOf gives the last text of the answer that is being written as soon as
  // it has this many characters.
  async answerOf(length) {
    const found = await this.page.waitForFunction((n) => {
      const texts = document.querySelectorAll('article[aria-label=Agent]:last-child .text');
      const text = [...texts].at(-1)?.textContent ?? '';
      return text.length >= n && text;
    }, length);
    return found.jsonValue();
  }

  // noticed resolves when the page says something about its state that matches.
  async noticed(pattern) {
    await this.page.getByRole('status').filter({ hasText: pattern }).waitFor();
  }

  async reload() {
    await this.page.reload();
    await this.settled();
  }

  // look tells what can be seen.
  async look() {
    if (this.#options.shots) {
      this.#shots += 1;
      await this.page.screenshot({ path: `${this.#options.shots}-${this.#shots}.png` });
    }
    const seen = await this.page.evaluate(seenInDocument);
    return { ...seen, errors: [...this.#errors], foreign: [...this.#foreign] };
  }

  close() {
    return this.#browser.close();
  }
}

// seenInDocument runs in the page. What is there and cannot be seen is left out.
function seenInDocument() {
  const visible = (element) => element.checkVisibility({ visibilityProperty: true });
  const texts = (root, selector) => [...root.querySelectorAll(selector)].filter(visible).map((e) => e.textContent);
  const tool = (card) => ({
    name: texts(card, '.name').join(),
    state: texts(card, '.state').join(),
    asks: texts(card, '.ask :is(legend, label, button)'),
    rows: [...card.querySelectorAll('dt')].filter(visible).map((dt) => `${dt.textContent}: ${texts(dt.nextElementSibling, '*').join()}`),
  });
  const sticksOut = (element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    const scrolls = element.scrollWidth > element.clientWidth && ['auto', 'scroll'].includes(style.overflowX);
    return style.clipPath === 'none' && (box.left < 0 || box.right > innerWidth || scrolls);
  };
  return {
    title: document.title,
    notice: texts(document, '[role=status]').join(),
    messages: [...document.querySelectorAll('[role=log] article')].map((article) => ({
      who: article.getAttribute('aria-label'),
      texts: texts(article, '.text'),
      tools: [...article.querySelectorAll('.tool')].map(tool),
      failures: texts(article, '.failure'),
    })),
    ideas: texts(document, '.ideas button'),
    made: [...document.querySelectorAll('article :is(img, script, b)')].map((e) => e.outerHTML),
    sticksOut: [...document.documentElement.querySelectorAll('*')].filter((e) => visible(e) && sticksOut(e)).map((e) => e.outerHTML.slice(0, 80)),
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
  };
}
