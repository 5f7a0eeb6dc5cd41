import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agent, jsonSchema, serve, tool, type Schema } from '@holdfast/sdk/agents';
import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import * as v from 'valibot';
import { z } from 'zod';
import { z as z3 } from 'zod3';
import { call, get, secret, silent } from './executor.js';

const plain = {
  type: 'object',
  properties: { order: { type: 'string' }, amount: { type: 'number' }, note: { type: 'string' } },
  required: ['order', 'amount'],
};

// The same input in each library: order, amount ≥ 1, and a note with a default where the library has defaults.
const libraries: Record<string, Schema<any, { order: string; amount: number; note?: string | undefined }>> = {
  'zod 4': z.object({ order: z.string(), amount: z.number().min(1), note: z.string().default('none') }),
  'zod 3': jsonSchema(
    plain,
    z3.object({ order: z3.string(), amount: z3.number().min(1), note: z3.string().default('none') }),
  ),
  valibot: toStandardJsonSchema(
    v.object({ order: v.string(), amount: v.pipe(v.number(), v.minValue(1)), note: v.optional(v.string(), 'none') }),
  ),
  arktype: type({ order: 'string', amount: 'number >= 1', note: "string = 'none'" }),
};

for (const [library, input] of Object.entries(libraries)) {
  test(`a schema of ${library} describes and validates the arguments`, async () => {
    const seen: unknown[] = [];
    const refund = tool({ name: 'refund', description: 'Refunds.', input, execute: (given) => void seen.push(given) });
    const handler = serve({
      agents: [agent({ name: 'support', model: 'a/b', tools: [refund] })],
      secrets: secret,
      log: silent,
    });
    const { agents } = (await (await handler(get())).json()) as {
      agents: [{ tools: [{ inputSchema: Record<string, unknown> }] }];
    };
    const described = agents[0].tools[0].inputSchema;
    assert.equal(described.type, 'object');
    assert.deepEqual(Object.keys(described.properties as object).sort(), ['amount', 'note', 'order']);
    assert.deepEqual((described.required as string[]).toSorted(), ['amount', 'order']);
    assert.equal('$schema' in described, false);

    const asked = { type: 'tool', name: 'refund' };
    assert.deepEqual(await call(handler, { ...asked, input: { order: 'o-1', amount: 2 } }), [{ result: null }]);
    assert.deepEqual(seen, [{ order: 'o-1', amount: 2, note: 'none' }]);
    const [last] = (await call(handler, { ...asked, input: { order: 'o-1', amount: 0 } })) as [
      { error: { code: string; message: string } },
    ];
    assert.equal(last.error.code, 'INPUT_INVALID');
    assert.match(last.error.message, /amount/);
    assert.equal(seen.length, 1, 'the tool was not called');
  });
}

test('transforms apply to arguments, and to results after the tool', async () => {
  const work = tool({
    name: 'work',
    description: 'Works.',
    input: z.object({ day: z.string().transform((text) => new Date(text)) }),
    output: z.object({ at: z.number(), more: z.string().default('x') }),
    execute: ({ day }) => ({ at: day.getTime() }),
  });
  const handler = serve({
    agents: [agent({ name: 'support', model: 'a/b', tools: [work] })],
    secrets: secret,
    log: silent,
  });
  assert.deepEqual(await call(handler, { type: 'tool', name: 'work', input: { day: '1970-01-02' } }), [
    { result: { at: 86_400_000, more: 'x' } },
  ]);
});

test('a result that does not fit is a failure that says that the tool has run', async () => {
  const work = tool({
    name: 'work',
    description: 'Works.',
    output: z.object({ id: z.string() }),
    execute: () => ({ id: 7 }) as never,
  });
  const handler = serve({
    agents: [agent({ name: 'support', model: 'a/b', tools: [work] })],
    secrets: secret,
    log: silent,
  });
  const [last] = (await call(handler, { type: 'tool', name: 'work', input: {} })) as [
    { error: { code: string; message: string } },
  ];
  assert.equal(last.error.code, 'OUTPUT_INVALID');
  assert.match(last.error.message, /The tool has run, but its result does not fit:\nid: /);
});

test('a validator may be asynchronous', async () => {
  const input = z.object({ user: z.string().refine(async (name) => name === 'ann', 'nobody has this name') });
  const work = tool({ name: 'work', description: 'Works.', input, execute: () => 'ok' });
  const handler = serve({
    agents: [agent({ name: 'support', model: 'a/b', tools: [work] })],
    secrets: secret,
    log: silent,
  });
  assert.deepEqual(await call(handler, { type: 'tool', name: 'work', input: { user: 'ann' } }), [{ result: 'ok' }]);
  const [last] = (await call(handler, { type: 'tool', name: 'work', input: { user: 'bob' } })) as [
    { error: { message: string } },
  ];
  assert.match(last.error.message, /user: nobody has this name/);
});

test('defaults of a state are in its schema', async () => {
  const state = z
    .object({ refunds: z.int().default(0), plan: z.enum(['free', 'pro']).default('free') })
    .meta({ 'x-client-writable': true });
  const handler = serve({ agents: [agent({ name: 'support', model: 'a/b', state })], secrets: secret });
  const { agents } = (await (await handler(get())).json()) as {
    agents: [{ stateSchema: { properties: object; required?: string[]; 'x-client-writable': boolean } }];
  };
  const { properties, required = [], 'x-client-writable': writable } = agents[0].stateSchema;
  assert.deepEqual((properties as { refunds: { default: number } }).refunds.default, 0);
  assert.deepEqual([required, writable], [[], true]);
});

test('a schema without a JSON Schema says what to do', () => {
  const make = (input: Schema) => () => tool({ name: 'work', description: 'Works.', input, execute: () => 1 });
  assert.throws(
    make(z3.object({})),
    /input of The tool "work": this version of zod cannot describe its schemas .* jsonSchema\(DESCRIPTION, SCHEMA\)/,
  );
  assert.throws(make(v.object({})), /toStandardJsonSchema of @valibot\/to-json-schema/);
  const output = z.object({ at: z.string().transform((text) => new Date(text)) });
  assert.throws(
    () => tool({ name: 'work', description: 'Works.', output, execute: () => ({ at: '' }) }),
    /output of The tool "work" has no JSON Schema/,
  );
});
