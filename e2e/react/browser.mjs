// node browser.mjs EXECUTABLE: a headless Chromium that does what it is told. Each
// line of the input is {id, do, …}, each line of the output its answer: {id, value}
// or {id, error}. Lines are worked on side by side. It ends with its input.
//   open {tab, profile, url}   a tab; tabs of one profile share what pages store
//   reload, close {tab}
//   type {tab, label, text}    replaces what a field holds
//   press {tab, button}        clicks the first button of this name
//   offline {tab, off}         takes the network away from the tab's profile
//   look {tab}                 gives what can be seen
import { createInterface } from 'node:readline';
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
  // What reaches for another host fails, and shows among the complaints.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

const browser = await chromium.launch({ executablePath: process.argv[2], headless: true, args: launchFlags, timeout: patience });
const profiles = new Map(); // promises of contexts, by name
const tabs = new Map(); // {page, complaints}, by name

async function profile(name) {
  const context = await browser.newContext();
  context.setDefaultTimeout(patience);
  return context;
}

const commands = {
  async open({ tab, profile: name, url }) {
    if (!profiles.has(name)) {
      profiles.set(name, profile(name));
    }
    const page = await (await profiles.get(name)).newPage();
    const complaints = []; // of the page, or of the browser about it
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) {
        complaints.push(message.text());
      }
    });
    page.on('pageerror', (error) => complaints.push(`uncaught: ${error}`)); // rejections, too
    tabs.set(tab, { page, complaints });
    await page.goto(url);
  },
  async reload({ tab }) {
    await tabs.get(tab).page.reload();
  },
  async close({ tab }) {
    await tabs.get(tab).page.close();
    tabs.delete(tab);
  },
  async type({ tab, label, text }) {
    await tabs.get(tab).page.getByLabel(label, { exact: true }).fill(text);
  },
  async press({ tab, button }) {
    await tabs.get(tab).page.getByRole('button', { name: button, exact: true }).first().click();
  },
  async offline({ tab, off }) {
    await tabs.get(tab).page.context().setOffline(off);
  },
  async look({ tab }) {
    const { page, complaints } = tabs.get(tab);
    const see = () => page.evaluate(seenInDocument);
    const seen = await see().catch(see); // once more where the page was just being loaded anew
    return { ...seen, complaints: [...complaints] };
  },
};

// seenInDocument runs in the page, and gives messages as UI messages, as far as they
// are shown.
function seenInDocument() {
  const textOf = (root, selector) => root.querySelector(selector)?.textContent;
  const json = (text) => (text === undefined ? undefined : JSON.parse(text));
  const partOf = (element) =>
    element.dataset.call === undefined
      ? { type: element.dataset.part, text: element.textContent }
      : {
          type: element.dataset.part,
          toolCallId: element.dataset.call,
          toolName: element.getAttribute('aria-label'),
          state: textOf(element, 'output'),
          input: json(textOf(element, '[data-of=input]')),
          output: json(textOf(element, '[data-of=output]')),
          errorText: textOf(element, '[data-of=error]'),
          approval: element.dataset.approval && { id: element.dataset.approval, reason: textOf(element, '[data-of=reason]') },
        };
  return {
    status: document.querySelector('main')?.dataset.status ?? 'loading',
    alert: textOf(document, '[role=alert]'),
    buttons: [...document.querySelectorAll('button:enabled')].map((button) => button.textContent),
    messages: [...document.querySelectorAll('article')].map((article) => ({
      id: article.dataset.id,
      role: article.getAttribute('aria-label'),
      parts: [...article.querySelectorAll('[data-part]')].map(partOf),
    })),
  };
}

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, ...rest } = JSON.parse(line);
  commands[name](rest).then(
    (value) => print({ id, value }),
    (error) => print({ id, error: error.message }),
  );
}
await browser.close();
