// node support.mjs CHROMIUM HOLDFAST FOLDER APP-PORT GATEWAY-PORT DATA: starts the example support-typescript with its
// two commands, and uses its page like a person. Both programs are killed and started again while an approval waits.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chromium } from 'playwright-core';

const patience = 60_000;
const [executablePath, holdfast, folder, appPort, gatewayPort, data] = process.argv.slice(2);
const app = `http://127.0.0.1:${appPort}`;
const gateway = `http://127.0.0.1:${gatewayPort}`;
const env = { ...process.env, PORT: appPort, HOLDFAST_URL: gateway };
const running = new Set();

/** start starts a program in a process group of its own, and returns what kills it. */
function start(...command) {
  const child = spawn(command[0], command.slice(1), {
    cwd: folder,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
    detached: true,
  });
  const ended = once(child, 'exit');
  const kill = async () => {
    running.delete(kill);
    if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGKILL');
    await ended;
  };
  running.add(kill);
  return kill;
}

async function until(what, holds) {
  for (
    const end = Date.now() + patience;
    !(await holds().catch(() => false));
    await new Promise((r) => setTimeout(r, 20))
  ) {
    assert.ok(Date.now() < end, `waited for ${what}`);
  }
}

const startApp = () => start('npm', 'start', '--silent');
const startRuntime = () =>
  start(
    holdfast,
    'dev',
    '--listen',
    `127.0.0.1:${gatewayPort}`,
    '--data',
    data,
    '--agents',
    'models.yaml',
    '--endpoint',
    `${app}/holdfast`,
  );
const ready = () =>
  until('the agent to be served', async () => {
    await fetch(app);
    const { agents } = await (await fetch(`${gateway}/agents`)).json();
    return agents.some(({ agentType, executors }) => agentType === 'support' && executors > 0);
  });

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
try {
  let killApp = startApp();
  let killRuntime = startRuntime();
  await ready();
  const page = await browser.newPage();
  page.setDefaultTimeout(patience);
  await page.goto(app);
  const says = async (text) => {
    await page.getByLabel('Message').fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  };
  const approval = page.getByRole('group', { name: 'Approval' });

  await says('hello');
  await page.getByText('Write "refund"').waitFor();
  await says('refund my lamp');
  await approval.waitFor();
  assert.match(await approval.innerText(), /refund \{"amount":120,"order":"o-1"\}/);

  await Promise.all([killApp(), killRuntime()]);
  killApp = startApp();
  killRuntime = startRuntime();
  await ready();
  await approval.getByRole('button', { name: 'Approve' }).click();
  await page.getByText('I have refunded 120 euros.').waitFor();
  const { sessions } = await (await fetch(`${gateway}/sessions`)).json();
  assert.equal(sessions.length, 1);
  const { session } = await (await fetch(`${gateway}/sessions/${sessions[0].sessionId}`)).json();
  assert.deepEqual(session.customState, { refunded: 120 });

  await says('refund it again');
  await approval.waitFor();
  await approval.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('I could not refund it').waitFor();
} finally {
  await browser.close();
  await Promise.all([...running].map((kill) => kill()));
}
