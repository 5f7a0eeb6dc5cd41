// Compiles and runs the examples of docs/agents-typescript.md, and compiles those of the two READMEs.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { agent, serve, type Agent } from '@holdfast/sdk/agents';
import { call, get, secret, signed, silent, type Handler } from './executor.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = join(root, 'out-docs'); // in the package, so that its own name and its packages are found
const run = promisify(execFile);
const compiled = (file: string): string => join(folder, 'out', file.replace(/\.ts$/, '.js'));
const load = async (file: string): Promise<Record<string, any>> => import(pathToFileURL(compiled(file)).href);
const files: string[] = [];

before(async () => {
  rmSync(folder, { recursive: true, force: true });
  const blocks = [
    ...readFileSync(join(root, '../../docs/agents-typescript.md'), 'utf8').matchAll(/```ts\n([^]*?)```/g),
  ];
  for (const [, text = ''] of blocks) {
    const [, file] = text.match(/^\/\/ ([\w./-]+\.ts)/) ?? [];
    assert.ok(file, `an example does not begin with the name of its file: ${text.slice(0, 80)}`);
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
    files.push(file);
  }
  const [, readme = ''] = readFileSync(join(root, 'README.md'), 'utf8').match(/```ts\n([^]*?)```/) ?? [];
  writeFileSync(join(folder, 'readme.ts'), readme);
  // The front page shows the middle of a program.
  const [, front = ''] = readFileSync(join(root, '../../README.md'), 'utf8').match(/```ts\n([^]*?)```/) ?? [];
  assert.match(front, /agent\(/);
  const beginning = [
    "import { createServer } from 'node:http';",
    "import { agent, serve, tool, toNode } from '@holdfast/sdk/agents';",
    "import { z } from 'zod';",
    'declare const bank: { refund(user: { id: string } | null, order: string, amount: number, key: string): string };',
  ];
  writeFileSync(join(folder, 'front.ts'), [...beginning, front].join('\n'));
  const config = {
    extends: '../tsconfig.json',
    compilerOptions: { rootDir: '.', outDir: 'out', declaration: false },
    include: ['.'],
    exclude: ['out'],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  await run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', folder]).catch(({ stdout }) =>
    assert.fail(stdout),
  );
});

test('each example compiles', () => assert.equal(files.length, 11));

for (const server of ['server.ts', 'express.ts', 'hono.ts']) {
  test(`the example ${server} serves the agent`, async (t) => {
    const port = await freePort();
    const app = spawn(process.execPath, [compiled(server)], {
      env: { ...process.env, PORT: String(port), HOLDFAST_ENDPOINT_SECRET: secret },
      stdio: 'inherit',
    });
    t.after(() => app.kill());
    const url = `http://127.0.0.1:${port}/${server === 'server.ts' ? '' : 'holdfast'}`;
    for (;;) {
      assert.equal(app.exitCode, null, 'the server has ended');
      const response = await fetch(url, { headers: signed('') }).catch(() => undefined);
      if (!response) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        continue;
      }
      assert.equal(((await response.json()) as { agents: [{ name: string }] }).agents[0].name, 'support');
      return;
    }
  });
}

test('the example of Next exports the two methods', async () => {
  process.env.HOLDFAST_ENDPOINT_SECRET = secret;
  const { GET, POST } = await load('app/holdfast/route.ts');
  assert.equal((await (GET as Handler)(get())).status, 200);
  assert.equal((await (POST as Handler)(get({}))).status, 401);
});

test('the other examples do what the page says', async () => {
  const { clerk } = await load('more.ts');
  const { weather } = await load('schemas.ts');
  const { report } = await load('progress.ts');
  const { writer } = await load('callbacks.ts');
  const support = agent({ name: 'support', model: 'a/b', tools: [weather, report] });
  const handler = serve({ agents: [support, clerk as Agent, writer as Agent], secrets: secret, log: silent });
  assert.deepEqual(await call(handler, { type: 'tool', name: 'weather', input: { city: 'Oslo' } }), [
    { result: 'It rains in Oslo.' },
  ]);
  assert.deepEqual(await call(handler, { type: 'tool', name: 'report', input: { orders: ['o-1'] } }), [
    { event: { name: 'progress', data: { order: 'o-1', percent: 0 }, id: 'bar', transient: true } },
    { usage: { kind: 'reports', name: 'orders', value: 1 } },
    { result: { lines: 1 } },
  ]);
  const ending = {
    type: 'guard',
    name: 'onOutput',
    agent: 'writer',
    steps: 1,
    reply: {},
    output: { headline: 'x'.repeat(61) },
  };
  assert.deepEqual(await call(handler, ending), [{ result: { revise: 'At most 60 characters.' } }]);
  assert.deepEqual(await call(handler, { type: 'method', name: 'pause', agent: 'writer', args: [true] }), [
    { state: [{ op: 'replace', key: 'paused', value: true }] },
    { result: { paused: true } },
  ]);
});

test('the test of the page passes on the real runtime', async () => {
  await run(process.execPath, ['--test', compiled('agents.test.ts')], {
    env: { ...process.env, NODE_TEST_CONTEXT: '' },
  }).catch(({ stdout, stderr }) => assert.fail(`${stdout}${stderr}`));
});

async function freePort(): Promise<number> {
  const server = http.createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
