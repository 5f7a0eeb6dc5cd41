// node browser.mjs CHROMIUM PAGE FIRST SECOND KEY: useAgent and useAgentChat in two tabs, at two
// gateways. Each check is a line {check, got}.
import { chromium } from 'playwright-core';

const [executablePath, page, first, second, key] = process.argv.slice(2);
const timeout = 60_000;
const report = (check, got) => process.stdout.write(`${JSON.stringify({ check, got })}\n`);
const browser = await chromium.launch({ executablePath, headless: true, args: ['--no-sandbox', '--disable-gpu'], timeout });

const complaints = [];
async function open(host, more = {}) {
  const tab = await (await browser.newContext()).newPage();
  tab.setDefaultTimeout(timeout);
  tab.on('pageerror', (error) => complaints.push(String(error)));
  tab.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  await tab.goto(`${page}/?${new URLSearchParams({ name: 'room', host, key, ...more })}`);
  await tab.waitForSelector('main[data-identified=true]', { state: 'attached' });
  return tab;
}

const look = (tab) =>
  tab.evaluate(() => ({
    state: document.querySelector('#state').textContent,
    error: document.querySelector('#error').textContent,
    messages: [...document.querySelectorAll('article')].map((article) => ({
      role: article.dataset.role,
      parts: JSON.parse(article.textContent).flatMap((p) => (p.type === 'step-start' ? [] : [p.text ?? `${p.type} ${p.state} ${JSON.stringify(p.output ?? null)}`])),
    })),
  }));
const shows = (tab, text) =>
  tab.waitForFunction((text) => document.querySelector('main')?.textContent.includes(text), text).catch(async (error) => {
    throw new Error(`waited for ${text}; the tabs show ${JSON.stringify([await look(a), await look(b)])}`, { cause: error });
  });
const ready = (tab) => tab.waitForSelector('main[data-ready=true]', { state: 'attached' });
const send = (tab, text) => tab.evaluate((text) => void window.chat.sendMessage({ text }), text);
// Resolves when the page has read, applied and rendered all frames so far. The hook renders at most every 50 ms.
const drained = (tab) =>
  tab.evaluate(async () => {
    await window.agent.call('missing').catch(() => {});
    await new Promise((rendered) => setTimeout(rendered, 100));
  });
const last = async (tab) => (await look(tab)).messages.at(-1)?.parts;
const both = async (check) => report(check, [await last(a), await last(b)]);

const a = await open(first);
const b = await open(second);
await a.evaluate(() => window.agent.setState({ colour: 'green' }));
await shows(b, 'green');
report('state', [(await look(a)).state, (await look(b)).state]);

await send(a, 'Hello');
await shows(b, 'say help to hear');
await Promise.all([ready(a), ready(b)]);
await both('answer in both tabs');

await send(a, 'Tell me a story');
await shows(a, 'lighthouse');
await a.reload();
await shows(a, 'two.');
await Promise.all([ready(a), shows(b, 'two.').then(() => ready(b))]);
report('reload in the middle', [await last(a), await last(b), (await look(a)).messages.length, (await look(b)).messages.length]);

await send(b, 'Ask me something');
await shows(b, 'input-available');
await ready(b);
await b.evaluate(() => {
  const call = window.chat.messages.at(-1).parts.find((part) => part.toolCallId);
  window.chat.addToolOutput({ toolCallId: call.toolCallId, toolName: 'ask_user', output: 'red' });
});
await Promise.all([shows(a, 'waited for that'), shows(b, 'waited for that')]);
await Promise.all([ready(a), ready(b)]);
await both('client tool');

await send(a, 'What is 1234 * 5678?');
await Promise.all([shows(a, 'approval-requested'), shows(b, 'approval-requested')]);
await ready(a);
await a.evaluate(() => {
  const call = window.chat.messages.at(-1).parts.find((part) => part.approval);
  window.chat.addToolApprovalResponse({ id: call.approval.id, approved: true });
});
await Promise.all([shows(a, 'That makes'), shows(b, 'That makes')]);
await Promise.all([ready(a), ready(b)]);
await both('approval');

await send(a, 'Wait 30 seconds');
await shows(b, '"state":"input-available"'); // the tool is waiting
await a.evaluate(() => window.chat.stop());
await Promise.all([ready(a), ready(b)]);
await send(b, 'Hello again');
await Promise.all([shows(a, 'Hello again'), shows(b, 'You said “Hello again”')]);
await ready(b);
report('after stop', await last(b));

// Pages whose tools answer by themselves show each answer once: a fast one, a slow one, and one whose frames come in bursts.
for (const [what, more] of Object.entries({ fast: { busy: 0 }, slow: { busy: 1500 }, burst: { busy: 0, burst: 1 } })) {
  const c = await open(first, { name: what, answer: 'blue', ...more });
  const answers = [];
  for (let turn = 1; turn <= 3; turn++) {
    await send(c, 'Ask me something');
    await c.waitForFunction((turns) => document.querySelector('main').textContent.split('waited for that').length > turns, turn);
    await ready(c);
    await drained(c);
    const { messages } = await look(c);
    answers.push([messages.length, JSON.stringify(messages).split('waited for that').length - 1]);
  }
  await send(c, 'What is 1234 * 5678?');
  await c.waitForFunction(() => document.querySelector('main').textContent.includes('approval-requested'));
  await ready(c);
  await c.evaluate((busy) => {
    const call = window.chat.messages.at(-1).parts.find((part) => part.approval);
    window.chat.addToolApprovalResponse({ id: call.approval.id, approved: true });
    for (const end = Date.now() + busy; Date.now() < end; ); // the page is at work
  }, more.busy);
  await c.waitForFunction(() => document.querySelector('main').textContent.includes('That makes'));
  await ready(c);
  await drained(c);
  const { messages } = await look(c);
  answers.push([messages.length, JSON.stringify(messages).split('That makes').length - 1]);
  report(`a tool of the page, ${what}`, answers);
}

await a.evaluate(() => window.chat.clearHistory());
await Promise.all([a, b].map((tab) => tab.waitForFunction(() => document.querySelectorAll('article').length === 0)));
report('cleared', [(await look(a)).state, (await look(b)).messages]);
report('complaints', complaints);
await browser.close();
