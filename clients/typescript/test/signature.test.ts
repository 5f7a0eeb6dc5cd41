import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agent, serve, tool } from '@holdfast/sdk/agents';
import { all, bodyOf, get, lines, otherSecret, refusal, request, secret, signature, signed } from './executor.js';

let executed = 0;
const support = agent({
  name: 'support',
  model: 'scripted/support',
  tools: [tool({ name: 'count', description: 'Counts.', execute: () => ++executed })],
});
const body = bodyOf({ type: 'tool', name: 'count', input: {} });
const handlerWith = (secrets: string | string[], more = {}) => serve({ agents: [support], secrets, ...more });
const now = () => Math.floor(Date.now() / 1000);
const post = (headers: Record<string, string>, text = body) =>
  new Request('http://app.test/', { method: 'POST', body: text, headers });

test('a signed request is executed', async () => {
  const before = executed;
  const response = await handlerWith(secret)(request(body));
  assert.deepEqual(await all(lines(response)), [{ result: before + 1 }]);
});

test('a signature is that of Standard Webhooks', async () => {
  // The values are the example of the specification's libraries.
  const key = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const payload = '{"test": 2432232314}';
  assert.equal(
    signature(key, 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1614265330, payload),
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  );
});

test('while a secret rotates, either side may be first', async () => {
  for (const [signing, accepting] of [
    [[secret], [otherSecret, secret]],
    [[secret, otherSecret], [otherSecret]],
    [[secret, otherSecret], [secret]],
    [[otherSecret], `${secret}, ${otherSecret}`],
  ] as [string[], string | string[]][]) {
    const response = await handlerWith(accepting)(post(signed(body, { secrets: signing })));
    assert.equal(response.status, 200);
    await response.body?.cancel();
  }
});

test('an unsigned, forged or changed request is refused, and nothing is executed', async () => {
  const before = executed;
  const handler = handlerWith(secret);
  const good = signed(body);
  const without = (name: string) => Object.fromEntries(Object.entries(signed(body)).filter(([key]) => key !== name));
  const rows: [string, Request, [number, string]][] = [
    ['no headers', post({}), [401, 'SIGNATURE_MISSING']],
    ['no id', post(without('webhook-id')), [401, 'SIGNATURE_MISSING']],
    ['no time', post(without('webhook-timestamp')), [401, 'SIGNATURE_MISSING']],
    ['no signature', post(without('webhook-signature')), [401, 'SIGNATURE_MISSING']],
    ['another secret', post(signed(body, { secrets: [otherSecret] })), [401, 'SIGNATURE_INVALID']],
    ['another body', post(good, `${body} `), [401, 'SIGNATURE_INVALID']],
    ['another id', post({ ...good, 'webhook-id': 'another' }), [401, 'SIGNATURE_INVALID']],
    ['another time', post({ ...good, 'webhook-timestamp': String(now() + 1) }), [401, 'SIGNATURE_INVALID']],
    [
      'another version of the signature',
      post({ ...good, 'webhook-signature': (good['webhook-signature'] ?? '').replace('v1', 'v2') }),
      [401, 'SIGNATURE_INVALID'],
    ],
    ['an empty signature', post({ ...good, 'webhook-signature': 'v1,' }), [401, 'SIGNATURE_INVALID']],
    [
      'a shortened signature',
      post({ ...good, 'webhook-signature': (good['webhook-signature'] ?? '').slice(0, -1) }),
      [401, 'SIGNATURE_INVALID'],
    ],
    ['an id of 65 bytes', post(signed(body, { id: 'x'.repeat(65) })), [401, 'SIGNATURE_INVALID']],
    ['a time that is none', post(signed(body, { time: 'soon' })), [401, 'TIMESTAMP_INVALID']],
    ['a time with a fraction', post(signed(body, { time: `${now()}.5` })), [401, 'TIMESTAMP_INVALID']],
    ['an unsigned description', get({}), [401, 'SIGNATURE_MISSING']],
    ['a description with the signature of a call', get(good), [401, 'SIGNATURE_INVALID']],
    ['a nonsense body', post({}, '{'), [401, 'SIGNATURE_MISSING']],
  ];
  for (const [what, given, want] of rows) assert.deepEqual(await refusal(await handler(given)), want, what);
  assert.equal(executed, before);
});

test('a request may be five minutes old or early, and not more', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const handler = handlerWith(secret);
  for (const away of [-300, 300]) {
    const response = await handler(get(signed('', { time: now() + away })));
    assert.equal(response.status, 200, String(away));
  }
  for (const away of [-301, 301])
    assert.deepEqual(
      await refusal(await handler(get(signed('', { time: now() + away })))),
      [401, 'TIMESTAMP_INVALID'],
      String(away),
    );
});

test('a repeated request is refused, also when both arrive at once', async () => {
  const before = executed;
  const handler = handlerWith(secret);
  const headers = signed(body, { id: 'x'.repeat(64) });
  const responses = await Promise.all([handler(post(headers)), handler(post(headers)), handler(post(headers))]);
  assert.deepEqual(responses.map((response) => response.status).sort(), [200, 409, 409]);
  for (const response of responses)
    if (response.status === 409) assert.deepEqual(await refusal(response), [409, 'REPLAYED']);
  assert.equal(executed, before + 1);
});

test('the last 10,000 ids are remembered', async () => {
  const handler = handlerWith(secret);
  const first = signed('');
  await handler(get(first));
  for (let i = 0; i < 10_000; i++) await handler(get());
  assert.deepEqual(await refusal(await handler(get(first))), [409, 'REPLAYED']);
});

test('an id is remembered until its time is too old', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const handler = handlerWith(secret);
  const headers = signed('', { time: now() + 300 });
  assert.equal((await handler(get(headers))).status, 200);
  t.mock.timers.setTime(1_800_000_000_000 + 600_000);
  await handler(get());
  assert.deepEqual(await refusal(await handler(get(headers))), [409, 'REPLAYED']);
  t.mock.timers.setTime(1_800_000_000_000 + 601_000);
  assert.deepEqual(await refusal(await handler(get(headers))), [401, 'TIMESTAMP_INVALID']);
});

test('an application without a secret refuses everything, unless its author allows unsigned requests', async () => {
  assert.deepEqual(await refusal(await handlerWith([])(request(body))), [401, 'SECRET_MISSING']);
  assert.deepEqual(await refusal(await handlerWith(['', ' '])(get({}))), [401, 'SECRET_MISSING']);
  assert.equal((await handlerWith([], { allowUnsigned: true })(get({}))).status, 200);
  // Pages in a browser are not allowed to: they could reach the machine of a developer.
  assert.deepEqual(
    await refusal(await handlerWith([], { allowUnsigned: true })(post({ origin: 'https://evil.example' }))),
    [401, 'SIGNATURE_MISSING'],
  );
  // A secret is never ignored.
  assert.deepEqual(await refusal(await handlerWith(secret, { allowUnsigned: true })(get({}))), [
    401,
    'SIGNATURE_MISSING',
  ]);
});

test('the environment has the secrets', async (t) => {
  t.after(() => {
    delete process.env.HOLDFAST_ENDPOINT_SECRET;
    delete process.env.HOLDFAST_ENDPOINT_ALLOW_UNSIGNED;
    delete process.env.HOLDFAST_ENDPOINT_BUILD;
  });
  process.env.HOLDFAST_ENDPOINT_SECRET = `${otherSecret},${secret}`;
  process.env.HOLDFAST_ENDPOINT_BUILD = 'git:4f2c1e9';
  const described = await serve({ agents: [support] })(get());
  assert.equal(described.status, 200);
  assert.equal(((await described.json()) as { build: string }).build, 'git:4f2c1e9');
  process.env.HOLDFAST_ENDPOINT_SECRET = '';
  assert.equal((await serve({ agents: [support] })(get())).status, 401);
  process.env.HOLDFAST_ENDPOINT_ALLOW_UNSIGNED = '1';
  assert.equal((await serve({ agents: [support] })(get({}))).status, 200);
});

test('a secret has 24 to 64 bytes', async () => {
  const of = (bytes: number) => `whsec_${Buffer.alloc(bytes, 7).toString('base64')}`;
  for (const bytes of [24, 64])
    assert.equal((await handlerWith(of(bytes))(get(signed('', { secrets: [of(bytes)] })))).status, 200);
  for (const bad of [of(23), of(65), 'whsec_', 'whsec_!', of(32).slice(6), 'secret'])
    assert.throws(() => handlerWith(bad), /must be whsec_ and base64 of 24 to 64 bytes/, bad);
});

test('an application that speaks another version says which', async () => {
  const handler = handlerWith(secret);
  const response = await handler(get({ ...signed(''), 'holdfast-endpoint': '2' }));
  assert.equal(response.status, 400);
  const { error } = (await response.json()) as { error: { code: string; versions: number[] } };
  assert.deepEqual([error.code, error.versions], ['VERSION_UNSUPPORTED', [1]]);
});
