// node drive.mjs CHROMIUM APP: uses the app like a person, and fails if it does not behave.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { crc32, deflateSync } from 'node:zlib';
import { chromium } from 'playwright-core';

const patience = 60_000;
const [executablePath, app] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage();
page.setDefaultTimeout(patience);
const complaints = [];
page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
page.on('pageerror', (error) => complaints.push(`uncaught: ${error}`));

const button = (name) => page.getByRole('button', { name, exact: true });
const messages = (role) => page.getByRole('article', { name: role });
const items = page.getByRole('listitem');

async function until(what, holds) {
  for (const end = Date.now() + patience; !(await holds()); await new Promise((r) => setTimeout(r, 20))) {
    assert.ok(Date.now() < end, `waited for ${what}: ${await page.content()}`);
  }
}
const ready = () => until('the chat to be ready', async () => (await page.locator('main').getAttribute('data-status')) === 'ready');
const shown = (role) => messages(role).locator('p').allTextContents();

async function says(text) {
  await page.getByLabel('Message').fill(text);
  await button('Send').click();
}
async function answered(texts) {
  await until(`the answers ${texts}`, async () => JSON.stringify(await shown('assistant')) === JSON.stringify(texts));
  await ready();
}

// The server of the app may still be starting.
for (let tries = 0; ; tries++) {
  try {
    await page.goto(app);
    break;
  } catch (error) {
    if (tries > 200) throw error;
    await new Promise((r) => setTimeout(r, 100));
  }
}

await button('New').click();
await says('hello');
await answered(['You said: hello']);
await until('the conversation to be listed', async () => (await items.count()) === 1);

await page.reload(); // opened again
await items.first().getByRole('button').first().click();
await answered(['You said: hello']);

// noise returns a PNG of random colors. It is larger than the URLs that stay in their message.
function noise(side) {
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [size, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    size.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([size, body, sum]);
  };
  const header = Buffer.from([0, 0, 0, side, 0, 0, 0, side, 8, 2, 0, 0, 0]); // 8 bits for each of red, green and blue
  const rows = Array.from({ length: side }, () => Buffer.concat([Buffer.of(0), randomBytes(3 * side)]));
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', header), chunk('IDAT', deflateSync(Buffer.concat(rows))), chunk('IEND', Buffer.alloc(0))]);
}

const photo = noise(64);
assert.ok(photo.length > 8192);
await page.getByLabel('Photo').setInputFiles({ name: 'noise.png', mimeType: 'image/png', buffer: photo });
await says('look');
await answered(['You said: hello', 'You said: look']);
await page.reload();
await items.first().getByRole('button').first().click();
const image = page.getByRole('img', { name: 'noise.png' });
await until('the photo of the stored message', () => image.evaluate((img) => img.complete && img.naturalWidth === 64));
assert.match(await image.getAttribute('src'), /\/files\/file_/);

await messages('user').nth(1).getByRole('button', { name: 'Edit' }).click();
await says('look again');
await answered(['You said: hello', 'You said: look again']);
assert.deepEqual(await shown('user'), ['hello', 'look again']);

await says('tell me a story');
await until('the beginning of the story', async () => (await shown('assistant'))[2]?.includes('word010'));
await button('Stop').click();
await ready();
const [, , story] = await shown('assistant');
assert.ok(!story.includes('word199'), `the story was not stopped: ${story}`);
await says('thanks');
await answered(['You said: hello', 'You said: look again', story, 'You said: thanks']);

await button('Branch').click();
await until('the branch to be listed', async () => (await items.count()) === 2);
await answered(['You said: hello', 'You said: look again', story, 'You said: thanks']);
await says('only here');
await until('the answer in the branch', async () => (await shown('assistant')).at(-1) === 'You said: only here');
await ready();

const current = page.locator('li[aria-current=true]');
await current.getByRole('button', { name: 'Delete' }).click();
await until('the branch to be gone', async () => (await items.count()) === 1);
await items.first().getByRole('button').first().click();
await answered(['You said: hello', 'You said: look again', story, 'You said: thanks']);

await button('Delete').click();
await until('all to be gone', async () => (await items.count()) === 0);
assert.deepEqual(complaints, []);
await browser.close();
