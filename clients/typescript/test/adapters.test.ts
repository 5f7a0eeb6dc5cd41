import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createAdaptorServer } from '@hono/node-server';
import { agent, jsonSchema, serve, toNode, tool } from '@holdfast/sdk/agents';
import express from 'express';
import { Hono } from 'hono';
import { all, bodyOf, lines, refusal, secret, signed, silent, type Handler } from './executor.js';

/** application is an endpoint with a tool that tells what happens to it. */
function application(): { handler: ReturnType<typeof serve>; aborted: Promise<string> } {
  let tell: (reason: string) => void;
  const aborted = new Promise<string>((resolve) => {
    tell = resolve;
  });
  const echo = tool({
    name: 'echo',
    description: 'Echoes.',
    input: jsonSchema<{ text: string }>({ type: 'object' }),
    execute: ({ text }) => text,
  });
  const wait = tool({
    name: 'wait',
    description: 'Waits for its end.',
    async execute(_, { signal, emit }) {
      emit('waiting', null);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      tell((signal.reason as Error).name);
    },
  });
  const support = agent({ name: 'support', model: 'a/b', tools: [echo, wait] });
  return { handler: serve({ agents: [support], secrets: secret, log: silent }), aborted };
}

/** listening starts a server on a free port. */
async function listening(server: http.Server): Promise<{ url: string; close: () => void }> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/holdfast`, close: () => void server.close().closeAllConnections() };
}

const adapters: Record<string, (handler: ReturnType<typeof serve>) => http.Server> = {
  'http of Node': (handler) => http.createServer(toNode(handler)),
  Express: (handler) => http.createServer(express().use('/holdfast', toNode(handler)).use(express.json())),
  'Express with the raw body': (handler) =>
    http.createServer(
      express()
        .use(express.raw({ type: '*/*', limit: '32mb' }))
        .use('/holdfast', toNode(handler)),
    ),
  Hono: (handler) => {
    const app = new Hono();
    app.all('/holdfast', (c) => handler(c.req.raw));
    return createAdaptorServer({ fetch: app.fetch }) as http.Server;
  },
  'a Next route handler': ({ GET, POST }) =>
    // Next calls the named function of a route with the request and its parameters.
    http.createServer(
      toNode((request) => (request.method === 'GET' ? GET : POST)(request, { params: Promise.resolve({}) })),
    ),
};

for (const [name, start] of Object.entries(adapters)) {
  test(`an endpoint in ${name} describes agents, runs calls and learns of their end`, async () => {
    const { handler, aborted } = application();
    const server = await listening(start(handler));
    try {
      const described = await fetch(server.url, { headers: signed('') });
      assert.equal(((await described.json()) as { agents: [{ name: string }] }).agents[0].name, 'support');

      const run = (tool: string, input: object, signal: AbortSignal | null = null) => {
        const body = bodyOf({ type: 'tool', name: tool, input });
        return fetch(server.url, {
          method: 'POST',
          body,
          signal,
          headers: { 'content-type': 'application/json', ...signed(body) },
        });
      };
      const large = 'ä'.repeat(500_000); // more than one chunk in both directions
      assert.deepEqual(await all(lines(await run('echo', { text: large }))), [{ result: large }]);
      const forged = await fetch(server.url, { method: 'POST', body: '{}', headers: signed('{ }') });
      assert.deepEqual(await refusal(forged), [401, 'SIGNATURE_INVALID']);

      const gone = new AbortController();
      const reader = lines(await run('wait', {}, gone.signal));
      assert.deepEqual((await reader.next()).value, { event: { name: 'waiting', data: null } });
      gone.abort();
      await assert.rejects(reader.next());
      assert.equal(await aborted, 'AbortError');
    } finally {
      server.close();
    }
  });
}

test('a body that another handler has parsed cannot be verified, and the answer says so', async () => {
  const { handler } = application();
  const server = await listening(http.createServer(express().use(express.json()).use('/holdfast', toNode(handler))));
  try {
    const body = bodyOf({ type: 'tool', name: 'echo', input: { text: 'x' } });
    const response = await fetch(server.url, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json', ...signed(body) },
    });
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    assert.deepEqual([response.status, error.code], [500, 'BODY_CONSUMED']);
    assert.match(error.message, /before express\.json\(\)/);
  } finally {
    server.close();
  }
});

test('a handler that fails answers 500', async () => {
  const failing: Handler = () => Promise.reject(new Error('a defect'));
  const server = await listening(http.createServer(toNode(failing)));
  try {
    assert.equal((await fetch(server.url)).status, 500);
  } finally {
    server.close();
  }
});

test('agents need no other package and no module of Node', () => {
  const folder = new URL('../dist/agents/', import.meta.url);
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.js'))) {
    const text = readFileSync(new URL(file, folder), 'utf8');
    for (const [, from] of text.matchAll(/(?:from|import)\s*\(?['"]([^'"]+)['"]/g))
      assert.match(from ?? '', /^\.\/[a-z]+\.js$/, file);
  }
});
