import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  agent,
  clientTool,
  jsonSchema,
  serve,
  subAgent,
  textOf,
  tool,
  ToolError,
  type AgentOptions,
  type Call,
  type Message,
  type Tool,
} from '@holdfast/sdk/agents';
import {
  all,
  bodyOf,
  call,
  context,
  get,
  lines,
  refusal,
  request,
  secret,
  signed,
  silent,
  url,
  type Handler,
  type Line,
} from './executor.js';

type Options = Omit<AgentOptions<any, any>, 'name' | 'model'>;

/** serving serves the agent "support". */
function serving(options: Options, more = {}): Handler {
  return serve({
    agents: [agent({ name: 'support', model: 'scripted/support', ...options })],
    secrets: secret,
    log: silent,
    ...more,
  });
}

const withTool = (execute: (input: unknown, call: Call) => unknown) =>
  serving({ tools: [tool({ name: 'work', description: 'Works.', execute })] });
const work = { type: 'tool', name: 'work', input: {} };

/** promise returns a promise and the function that resolves it. */
function promise<T = void>(): { done: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const done = new Promise<T>((f) => {
    resolve = f;
  });
  return { done, resolve };
}

const refund = tool({
  name: 'refund',
  description: 'Refunds an order.',
  input: jsonSchema<{ order: string; amount: number }>({
    type: 'object',
    properties: { order: { type: 'string' }, amount: { type: 'number' } },
    required: ['order', 'amount'],
  }),
  safe: true,
  approval: ({ input }) => input.amount > 100,
  execute: ({ amount }) => amount,
});

test('the description is that of the specification', async () => {
  const support = agent({
    name: 'support',
    model: 'anthropic/claude-sonnet-4-5',
    systemPrompt: 'You help customers.',
    state: jsonSchema<{ refunds: number }>({
      type: 'object',
      properties: { refunds: { type: 'integer', default: 0 } },
    }),
    guard: { onReply: () => null },
    hooks: { beforeRun: () => {} },
    methods: { reset: () => null },
    tools: [refund],
  });
  const handler = serve({ agents: [support], secrets: secret, build: 'git:4f2c1e9' });
  const response = await handler(get());
  assert.equal(response.headers.get('content-type'), 'application/json');
  const { sources, ...described } = (await response.json()) as { sources: Record<string, string> };
  assert.deepEqual(described, {
    endpoint: 1,
    sdk: 'typescript/0.1.0',
    build: 'git:4f2c1e9',
    agents: [
      {
        name: 'support',
        model: 'anthropic/claude-sonnet-4-5',
        systemPrompt: 'You help customers.',
        stateSchema: { type: 'object', properties: { refunds: { type: 'integer', default: 0 } } },
        callbacks: ['guard.onReply', 'hooks.beforeRun'],
        methods: ['reset'],
        tools: [
          {
            name: 'refund',
            description: 'Refunds an order.',
            inputSchema: {
              type: 'object',
              properties: { order: { type: 'string' }, amount: { type: 'number' } },
              required: ['order', 'amount'],
            },
            retry: 'safe',
            callbacks: ['execute', 'approval'],
          },
        ],
      },
    ],
  });
  assert.deepEqual(Object.keys(sources), ['support', 'support/refund']);
  for (const source of Object.values(sources)) assert.match(source, /wire\.test\.[jt]s:[0-9]+$/);
});

test('every field of an agent and of its tools reaches the description', async () => {
  const none = jsonSchema({ type: 'object', properties: {} });
  const researcher = agent({ name: 'researcher', model: 'scripted/r', description: 'Looks things up.' });
  const handler = serve({
    agents: [
      agent({
        name: 'support',
        model: 'a/b',
        description: 'Helps.',
        fallbacks: ['c/d'],
        prompt: 'You help {{state.name}}.',
        output: none,
        completion: 'native',
        strictOutput: true,
        maxSteps: Number.POSITIVE_INFINITY,
        companions: [{ agent: 'critic', mode: 'blocking', timeout: '10m' }],
        maxCompanions: 2,
        maxSubAgents: 3,
        maxDepth: 4,
        maxOutputTokens: 5,
        temperature: 0,
        maxRetries: 0,
        runTimeout: '1h30m',
        cache: 'auto',
        providerOptions: { a: { b: 1 } },
        context: { maxTokens: 10, keepTokens: 5 },
        compact: () => '',
        stopWhen: [{ tool: 'ask' }],
        onBusy: 'enqueue',
        callerTools: { allow: ['page_*'], max: 4 },
        callerInstructions: true,
        tools: [
          'calculate',
          { use: 'note', approval: 'always' },
          { name: 'forecast', description: 'Forecasts.', http: { url: 'https://api.example/{city}' }, readOnly: true },
          clientTool({ name: 'ask', description: 'Asks.', input: none, answerWithin: '24h', finishWith: true }),
          subAgent(researcher, { timeout: '1h' }),
          subAgent('writer', { description: 'Writes.', input: none, output: none, strict: true, finishWith: true }),
          tool({
            name: 'work',
            description: 'Works.',
            output: jsonSchema({ type: 'string' }),
            strict: true,
            finishWith: true,
            answerWithin: '1h',
            readOnly: true,
            timeout: '30s',
            approval: { when: [{ field: 'a', equals: 1 }] },
            approvers: 'others',
            execute: () => '',
          }),
          tool({ name: 'always', description: 'Asks first.', approval: true, execute: () => '' }),
        ],
      }),
      researcher,
    ],
    secrets: secret,
  });
  const { agents } = (await (await handler(get())).json()) as { agents: object[] };
  const object = { type: 'object', properties: {} };
  assert.deepEqual(agents[0], {
    name: 'support',
    model: 'a/b',
    description: 'Helps.',
    fallbacks: ['c/d'],
    prompt: 'You help {{state.name}}.',
    outputSchema: object,
    completion: 'native',
    strictOutput: true,
    maxSteps: 'Infinity',
    companions: [{ agent: 'critic', mode: 'blocking', timeout: '10m' }],
    maxCompanions: 2,
    maxSubAgents: 3,
    maxDepth: 4,
    maxOutputTokens: 5,
    temperature: 0,
    maxRetries: 0,
    runTimeout: '1h30m',
    cache: 'auto',
    providerOptions: { a: { b: 1 } },
    context: { maxTokens: 10, keepTokens: 5, compaction: 'summary' },
    stopWhen: [{ tool: 'ask' }],
    onBusy: 'enqueue',
    callerTools: { allow: ['page_*'], max: 4 },
    callerInstructions: true,
    callbacks: ['compact'],
    tools: [
      'calculate',
      { use: 'note', approval: 'always' },
      { name: 'forecast', description: 'Forecasts.', http: { url: 'https://api.example/{city}' }, readOnly: true },
      { name: 'ask', description: 'Asks.', inputSchema: object, answerWithin: '24h', finishWith: true, client: true },
      { subAgent: 'researcher', description: 'Looks things up.', timeout: '1h' },
      {
        subAgent: 'writer',
        description: 'Writes.',
        inputSchema: object,
        outputSchema: object,
        strict: true,
        finishWith: true,
      },
      {
        name: 'work',
        description: 'Works.',
        inputSchema: object,
        outputSchema: { type: 'string' },
        strict: true,
        finishWith: true,
        answerWithin: '1h',
        readOnly: true,
        timeout: '30s',
        approval: { when: [{ field: 'a', equals: 1 }] },
        approvers: 'others',
        callbacks: ['execute'],
      },
      { name: 'always', description: 'Asks first.', inputSchema: object, approval: 'always', callbacks: ['execute'] },
    ],
  });
});

test('an unchanged description is not sent again', async () => {
  const handler = serving({});
  const etag = (await handler(get())).headers.get('etag') ?? '';
  for (const known of [etag, `W/${etag}`]) {
    const response = await handler(get({ ...signed(''), 'if-none-match': known }));
    assert.deepEqual([response.status, await response.text()], [304, '']);
  }
  assert.equal((await handler(get({ ...signed(''), 'if-none-match': '"another"' }))).status, 200);
  assert.notEqual((await serving({ maxSteps: 3 })(get())).headers.get('etag'), etag);
});

test('a request that cannot be executed is refused with a reason', async () => {
  const handler = serving({ tools: [refund, 'calculate'], methods: { reset: () => null }, prompt: () => '' });
  const rows: [string, string, [number, string]][] = [
    ['nonsense', '{', [400, 'REQUEST_INVALID']],
    ['a list', '[]', [400, 'REQUEST_INVALID']],
    ['null', 'null', [400, 'REQUEST_INVALID']],
    ['no context', JSON.stringify({ type: 'tool', agent: 'support', name: 'refund' }), [400, 'REQUEST_INVALID']],
    ['no run', bodyOf({ type: 'prompt', context: { ...context, run: undefined } }), [400, 'REQUEST_INVALID']],
    [
      'no call',
      bodyOf({ type: 'tool', name: 'refund', context: { ...context, call: undefined } }),
      [400, 'REQUEST_INVALID'],
    ],
    ['a state that is a list', bodyOf({ type: 'prompt', state: [] }), [400, 'REQUEST_INVALID']],
    ['arguments that are no list', bodyOf({ type: 'method', name: 'reset', args: {} }), [400, 'REQUEST_INVALID']],
    [
      'a deadline that is no time',
      bodyOf({ type: 'prompt', context: { ...context, deadline: 'soon' } }),
      [400, 'REQUEST_INVALID'],
    ],
    ['another agent', bodyOf({ type: 'prompt', agent: 'sales' }), [404, 'AGENT_UNKNOWN']],
    ['another tool', bodyOf({ type: 'tool', name: 'reset' }), [404, 'TOOL_UNKNOWN']],
    ['a built-in tool', bodyOf({ type: 'tool', name: 'calculate' }), [404, 'TOOL_UNKNOWN']],
    ['a tool of the prototype', bodyOf({ type: 'tool', name: 'constructor' }), [404, 'TOOL_UNKNOWN']],
    ['the approval of another tool', bodyOf({ type: 'approval', name: 'pay' }), [404, 'TOOL_UNKNOWN']],
    ['another callback', bodyOf({ type: 'stopWhen' }), [404, 'CALLBACK_UNKNOWN']],
    ['another hook', bodyOf({ type: 'hook', name: 'onStart' }), [404, 'CALLBACK_UNKNOWN']],
    ['another method', bodyOf({ type: 'method', name: 'toString' }), [404, 'CALLBACK_UNKNOWN']],
    ['another type', bodyOf({ type: 'dream' }), [404, 'CALLBACK_UNKNOWN']],
  ];
  for (const [what, body, want] of rows) assert.deepEqual(await refusal(await handler(request(body))), want, what);
  for (const method of ['PUT', 'DELETE', 'PATCH']) {
    const response = await handler(new Request(url, { method }));
    assert.equal(response.headers.get('allow'), 'GET, POST');
    assert.deepEqual(await refusal(response), [405, 'METHOD_UNKNOWN']);
  }
});

test('a handler that is closing refuses new calls before any line, and finishes those in progress', async () => {
  const begun = promise();
  const going = promise();
  const execute = async () => {
    begun.resolve();
    await going.done;
    return 'done';
  };
  const tools = [tool({ name: 'work', description: 'Works.', execute })];
  const handler = serve({ agents: [agent({ name: 'support', model: 'scripted/support', tools })], secrets: secret });
  const first = await handler(request(bodyOf(work)));
  await begun.done;
  handler.close();
  assert.deepEqual(await refusal(await handler(request(bodyOf(work)))), [503, 'STOPPING']);
  assert.equal((await handler(get())).status, 200); // the description
  going.resolve();
  assert.deepEqual(await all(lines(first)), [{ result: 'done' }]);
});

test('a body has a limit, which is at least 16 MiB', async () => {
  const body = (size: number) => {
    const head = bodyOf({ type: 'prompt', padding: '' });
    return bodyOf({ type: 'prompt', padding: 'x'.repeat(size - head.length) });
  };
  const limited = serving({ prompt: () => 'hello' }, { maxRequestBytes: 2000 });
  assert.deepEqual(await all(lines(await limited(request(body(2000))))), [{ result: 'hello' }]);
  assert.deepEqual(await refusal(await limited(request(body(2001)))), [413, 'REQUEST_TOO_LARGE']);
  const declared = request(body(1000), { headers: { 'content-length': '2001' } });
  assert.deepEqual(await refusal(await limited(declared)), [413, 'REQUEST_TOO_LARGE']);
  assert.equal((await serving({ prompt: () => 'hello' })(request(body(16 << 20)))).status, 200);
});

test('each callback receives the members of its row, and the trusted context', async () => {
  const seen = new Map<string, object>();
  const note = (what: string, result?: unknown) => (given: any) => {
    const {
      log: _log,
      signal: _signal,
      update: _update,
      emit: _emit,
      metadata: _metadata,
      usage: _usage,
      ...rest
    } = given;
    seen.set(what, rest);
    return result as never;
  };
  const hooks = [
    'beforeRun',
    'onStart',
    'onResume',
    'beforeModel',
    'afterModel',
    'beforeTool',
    'afterTool',
    'beforeSubAgent',
    'afterSubAgent',
    'onStateChange',
    'onMessage',
    'afterRun',
  ];
  const handler = serving({
    prompt: note('prompt', 'You help.'),
    stopWhen: note('stopWhen', true),
    compact: note('compact', 'They talked.'),
    context: { maxTokens: 1000 },
    guard: { onOutput: note('guard.onOutput', { replace: { a: 1 } }), onReply: note('guard.onReply') },
    hooks: Object.fromEntries(hooks.map((name) => [name, note(`hook.${name}`)])),
  });
  const reply: Message = {
    id: 'm-1',
    role: 'assistant',
    parts: [
      { type: 'text', text: 'Done' },
      { type: 'reasoning', text: 'hm' },
      { type: 'text', text: '.' },
    ],
  };
  assert.equal(textOf(reply), 'Done.');
  const toolCall = { callId: 'call_1', name: 'refund', arguments: { order: 'o-1' } };
  const toolResult = { callId: 'call_1', name: 'refund', success: false, error: 'no' };
  const model = { model: 'a/b', attempt: 1 };
  const rows: [type: string, name: string | undefined, members: object, result: unknown][] = [
    ['prompt', undefined, {}, 'You help.'],
    ['stopWhen', undefined, { steps: 2, reply, results: [toolResult] }, true],
    ['compact', undefined, { messages: [reply] }, 'They talked.'],
    ['guard', 'onOutput', { steps: 2, output: { a: 0 }, reply }, { replace: { a: 1 } }],
    ['guard', 'onReply', { steps: 2, output: 'Done.', reply }, null],
    ['hook', 'beforeRun', {}, null],
    ['hook', 'onStart', {}, null],
    ['hook', 'onResume', {}, null],
    ['hook', 'beforeModel', { ...model, system: 'You help.', messages: [reply], tools: ['refund'] }, null],
    ['hook', 'afterModel', { ...model, reply, error: null }, null],
    ['hook', 'beforeTool', { toolCall }, null],
    ['hook', 'afterTool', { toolCall, toolResult }, null],
    ['hook', 'beforeSubAgent', { toolCall, subAgent: { agentType: 'worker', sessionId: 's-2' } }, null],
    ['hook', 'afterSubAgent', { toolCall, subAgent: { agentType: 'worker', sessionId: 's-2' }, toolResult }, null],
    ['hook', 'onStateChange', { ops: [{ op: 'replace', key: 'a', value: 1 }] }, null],
    ['hook', 'onMessage', { message: reply }, null],
    [
      'hook',
      'afterRun',
      { status: 'completed', output: 'Done.', error: null, code: null, steps: 2, durationMs: 12 },
      null,
    ],
  ];
  const { call: _call, ...trusted } = context;
  for (const [type, name, members, result] of rows) {
    assert.deepEqual(
      await call(handler, { type, name, state: { refunds: 1 }, unknown: 'ignored', context: trusted, ...members }),
      [{ result }],
      `${type} ${name}`,
    );
    const { unknown: _unknown, ...got } = seen.get(name ? `${type}.${name}` : type) as Record<string, unknown>;
    assert.deepEqual(
      got,
      { agent: 'support', ...trusted, deadline: undefined, state: { refunds: 1 }, ...members },
      `${type} ${name}`,
    );
  }
});

test('members of a request never replace the trusted context', async () => {
  const users: unknown[] = [];
  const handler = serving({
    hooks: { onMessage: ({ user, tenant, run }) => void users.push(user?.id, tenant, run.id) },
  });
  await call(handler, {
    type: 'hook',
    name: 'onMessage',
    message: {},
    user: { id: 'mallory' },
    tenant: 'mallory',
    run: { id: 'mallory' },
  });
  assert.deepEqual(users, ['u-17', 'acme', 'r-1']);
});

test('a tool knows its call, and an approval its arguments', async () => {
  const seen: object[] = [];
  const handler = serving({
    tools: [
      tool({
        name: 'pay',
        description: 'Pays.',
        input: jsonSchema<{ amount: number }>({ type: 'object' }),
        approval: ({ input, user, state, id }) => {
          seen.push({ input, user, state, id });
          return input.amount > state.limit;
        },
        execute: (input, { id, idempotencyKey, attempt, tenant, user, session, run, step, deadline, agent: name }) => {
          seen.push({ input, id, idempotencyKey, attempt, tenant, user, session, run, step, deadline, name });
          return { paid: true };
        },
      }),
    ],
  });
  const deadline = '2999-01-01T00:00:00Z';
  const asked = { name: 'pay', input: { amount: 5 }, state: { limit: 3 }, context: { ...context, deadline } };
  assert.deepEqual(await call(handler, { type: 'approval', ...asked }), [{ result: true }]);
  assert.deepEqual(await call(handler, { type: 'approval', ...asked, state: { limit: 5 } }), [{ result: false }]);
  assert.deepEqual(await call(handler, { type: 'tool', ...asked }), [{ result: { paid: true } }]);
  const { call: identity, traceparent: _traceparent, ...trusted } = context;
  assert.deepEqual(seen[0], { input: { amount: 5 }, user: { id: 'u-17' }, state: { limit: 3 }, id: 'call_1' });
  assert.deepEqual(seen[2], {
    input: { amount: 5 },
    ...identity,
    ...trusted,
    deadline: new Date(deadline),
    name: 'support',
  });
});

test('a method has arguments, state and sends, and no run', async () => {
  const handler = serving({
    methods: {
      async add(method, a: number, b: number) {
        assert.ok(!('emit' in method) && !('usage' in method));
        method.update((state) => {
          state.total = a;
        });
        method.send({ halfway: true });
        method.state.total += b;
        return method.state.total;
      },
      quiet: () => undefined,
    },
  });
  const { run: _run, step: _step, call: _call, ...trusted } = context;
  assert.deepEqual(await call(handler, { type: 'method', name: 'add', args: [1, 2], context: trusted }), [
    { state: [{ op: 'replace', key: 'total', value: 1 }] },
    { send: { halfway: true } },
    { state: [{ op: 'replace', key: 'total', value: 3 }] },
    { result: 3 },
  ]);
  assert.deepEqual(await call(handler, { type: 'method', name: 'quiet', context: trusted }), [{ result: null }]);
});

test('the store of a tool reads what the request has, with the writes of the call', async () => {
  const run = (execute: (store: Call['store']) => unknown, store?: object) =>
    call(
      serving({ tools: [tool({ name: 'keep', description: 'Keeps.', execute: (_input, { store }) => execute(store) })] }),
      { type: 'tool', name: 'keep', ...(store && { store }) },
    );
  const entries = { 'a/n': 1, 'a/x': [1] };
  assert.deepEqual(
    await run(
      (store) => {
        store.add('a/n', 2);
        store.put('a/ü', null);
        store.delete('a/x');
        return [store.get('a/n'), store.get('a/x') ?? 'none', store.list('a/')];
      },
      { reads: ['a/'], entries, complete: true },
    ),
    [
      { store: [{ op: 'add', key: 'a/n', value: 2 }] },
      { store: [{ op: 'put', key: 'a/ü', value: null }] },
      { store: [{ op: 'delete', key: 'a/x' }] },
      {
        result: [
          3,
          'none',
          [
            ['a/n', 3],
            ['a/ü', null],
          ],
        ],
      },
    ],
  );
  const cut = { reads: ['a/'], entries, complete: false };
  const failing: [(store: Call['store']) => unknown, object | undefined, RegExp][] = [
    [(store) => store.get('a/none'), cut, /Name longer prefixes/],
    [(store) => store.list('a/'), cut, /Name longer prefixes/],
    [(store) => store.get('b'), cut, /storeReads/],
    [(store) => store.get('a/n'), undefined, /storeReads/],
    [(store) => store.put('', 1), undefined, /1 to 512 bytes/],
    [(store) => store.put('ü'.repeat(257), 1), undefined, /1 to 512 bytes/],
    [(store) => store.put('k', undefined), undefined, /no JSON/],
    [(store) => store.add('k', 1.5), undefined, /an integer/],
    [(store) => store.add('a/x', 1), cut, /no number/],
  ];
  for (const [execute, store, want] of failing) {
    const [last, ...more] = await run(execute, store);
    assert.match((last as any).error.message, want);
    assert.deepEqual(more, []);
  }
});

test('a tool and a hook send events, metadata, usage and state as they happen', async () => {
  const does = ({ emit, metadata, usage, update, state }: any) => {
    emit('progress', { percent: 50 }, { id: 'bar', transient: true });
    emit('found', undefined);
    metadata({ source: 'crm' });
    usage('cost', 'crm', 0.25);
    update((draft: any) => {
      draft.step = 2;
    });
    state.done = true;
  };
  const want = [
    { event: { name: 'progress', data: { percent: 50 }, id: 'bar', transient: true } },
    { event: { name: 'found', data: null } },
    { metadata: { source: 'crm' } },
    { usage: { kind: 'cost', name: 'crm', value: 0.25 } },
    { state: [{ op: 'replace', key: 'step', value: 2 }] },
    { state: [{ op: 'replace', key: 'done', value: true }] },
    { result: null },
  ];
  const handler = serving({
    tools: [tool({ name: 'work', description: 'Works.', execute: (_, c) => does(c) })],
    hooks: { onStart: does },
  });
  assert.deepEqual(await call(handler, work), want);
  assert.deepEqual(await call(handler, { type: 'hook', name: 'onStart' }), want);
});

test('a line is sent when it happens', async () => {
  const read = promise();
  const handler = withTool(async (_, { emit }) => {
    emit('progress', 1);
    await read.done; // never, unless the line arrives before the result
    return 'done';
  });
  const response = await handler(request(bodyOf(work)));
  assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
  assert.equal(response.headers.get('x-accel-buffering'), 'no');
  const got: Line[] = [];
  for await (const line of lines(response)) {
    got.push(line);
    read.resolve();
  }
  assert.deepEqual(got, [{ event: { name: 'progress', data: 1 } }, { result: 'done' }]);
});

test('a silent call sends a ping within fifteen seconds', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const more = promise();
  const handler = withTool(async (_, { emit }) => {
    await more.done;
    emit('late', null);
    return 1;
  });
  const reader = lines(await handler(request(bodyOf(work))));
  t.mock.timers.tick(15_000);
  assert.deepEqual((await reader.next()).value, { ping: {} });
  t.mock.timers.tick(15_000);
  assert.deepEqual((await reader.next()).value, { ping: {} });
  more.resolve();
  assert.deepEqual(await all(reader), [{ event: { name: 'late', data: null } }, { result: 1 }]);
});

test('a closed connection aborts the call, and nothing is sent afterwards', async () => {
  for (const close of ['reader', 'request'] as const) {
    const aborted = promise<unknown>();
    const handler = withTool(async (_, { signal, emit }) => {
      emit('begun', null);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      emit('ignored', null);
      aborted.resolve((signal.reason as Error).name);
      return 'ignored';
    });
    const gone = new AbortController();
    const body = bodyOf(work);
    const response = await handler(
      new Request(url, { method: 'POST', body, headers: signed(body), signal: gone.signal }),
    );
    const reader = lines(response);
    assert.deepEqual((await reader.next()).value, { event: { name: 'begun', data: null } });
    if (close === 'reader') await reader.return();
    else gone.abort();
    assert.equal(await aborted.done, 'AbortError');
    if (close === 'request') assert.deepEqual(await all(reader), []);
  }
});

test('the deadline aborts the call and ends the answer', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_800_000_000_000 });
  const aborted = promise<unknown>();
  const handler = withTool(async (_, { signal }) => {
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    aborted.resolve((signal.reason as Error).name);
    return 'late';
  });
  const deadline = new Date(1_800_000_000_000 + 5000).toISOString();
  const response = await handler(request(bodyOf({ ...work, context: { ...context, deadline } })));
  const reader = lines(response);
  t.mock.timers.tick(5000);
  assert.equal(await aborted.done, 'TimeoutError');
  assert.deepEqual(await all(reader), []);
});

test('the clock of the application may be another one', async (t) => {
  const now = 1_800_000_000_000;
  for (const behind of [-200, 200]) {
    t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now });
    const time = now / 1000 - behind;
    const deadline = new Date((time + 5) * 1000).toISOString();
    const body = bodyOf({ ...work, context: { ...context, deadline } });
    const handler = withTool(
      async (_, { signal }) => new Promise((resolve) => signal.addEventListener('abort', () => resolve('late'))),
    );
    let ended = false;
    const response = await handler(new Request(url, { method: 'POST', body, headers: signed(body, { time }) }));
    const read = all(lines(response)).then((got) => {
      ended = true;
      assert.deepEqual(got, []);
    });
    t.mock.timers.tick(4999);
    await new Promise(setImmediate);
    assert.equal(ended, false);
    t.mock.timers.tick(1);
    await read;
    t.mock.timers.reset();
  }
});

test('a deadline beyond the range of timers does not end a call', async () => {
  const handler = withTool(async () => 'done');
  const deadline = new Date(Date.now() + 2 ** 32).toISOString();
  assert.deepEqual(await call(handler, { ...work, context: { ...context, deadline } }), [{ result: 'done' }]);
});

test('a thrown error is the last line', async () => {
  const logged: unknown[] = [];
  const log = { ...silent, error: (message: string, fields?: object) => void logged.push([message, fields]) };
  const fails = (thrown: unknown) =>
    serving(
      {
        tools: [
          tool({
            name: 'work',
            description: 'Works.',
            execute: () => {
              throw thrown;
            },
          }),
        ],
      },
      { log },
    );
  const failure = new Error('The bank is closed.');
  const rows: [unknown, object][] = [
    [failure, { message: 'The bank is closed.', publicMessage: 'Something went wrong.' }],
    [new TypeError(''), { message: 'TypeError', publicMessage: 'Something went wrong.' }],
    ['text', { message: 'text', publicMessage: 'Something went wrong.' }],
    [undefined, { message: 'undefined', publicMessage: 'Something went wrong.' }],
    [new ToolError('no account'), { message: 'no account' }],
    [
      new ToolError('no account', { publicMessage: 'Sorry.', code: 'NO_ACCOUNT' }),
      { message: 'no account', publicMessage: 'Sorry.', code: 'NO_ACCOUNT' },
    ],
  ];
  for (const [thrown, error] of rows) assert.deepEqual(await call(fails(thrown), work), [{ error }]);
  // What the author did not intend is logged, with the ids of the call.
  assert.equal(logged.length, 4);
  assert.deepEqual(logged[0], [
    'The bank is closed.',
    { agent: 'support', tool: 'work', session: 's-1', run: 'r-1', call: 'call_1', error: failure },
  ]);
});

test('a failed call writes no state', async () => {
  const handler = withTool((_, { state }) => {
    state.paid = true;
    throw new ToolError('no');
  });
  assert.deepEqual(await call(handler, work), [{ error: { message: 'no' } }]);
});

test('a callback that returns another type fails', async () => {
  const handler = serving({
    prompt: (() => 7) as never,
    stopWhen: (() => 'yes') as never,
    guard: { onReply: (() => ({ reject: true })) as never, onOutput: (() => ({})) as never },
    tools: [tool({ name: 'work', description: 'Works.', approval: (() => undefined) as never, execute: () => 1 })],
  });
  for (const [type, name, wanted] of [
    ['prompt', undefined, /Return a string/],
    ['stopWhen', undefined, /Return true to end/],
    ['guard', 'onReply', /Return \{ revise \}/],
    ['guard', 'onOutput', /Return \{ revise \}/],
    ['approval', 'work', /Return true if the call needs approval/],
  ] as const) {
    const [last] = (await call(handler, { type, name })) as [{ error: { message: string } }];
    assert.match(last.error.message, wanted);
  }
});

test('a line has a limit, and so has an answer', async () => {
  const most = 2 << 20;
  const line = (text: string, member: string) => JSON.stringify({ [member]: text }).length + 1;
  const text = (size: number) => 'x'.repeat(size - line('', 'result'));
  const returns = (size: number) =>
    call(
      withTool(() => text(size)),
      work,
    ) as Promise<[{ result?: string; error?: { code: string } }]>;
  assert.equal((await returns(most))[0].result?.length, text(most).length);
  assert.equal((await returns(most + 1))[0].error?.code, 'RESULT_TOO_LARGE');
  const emits = (size: number) =>
    call(
      withTool((_, { emit }) => emit('e', 'x'.repeat(size))),
      work,
    ) as Promise<[{ error?: { code: string } }]>;
  assert.equal((await emits(most - 100))[0].error, undefined);
  assert.equal((await emits(most))[0].error?.code, 'LINE_TOO_LARGE');
  const floods = withTool((_, { emit }) => {
    for (let i = 0; i < 16; i++) emit('e', 'x'.repeat((1 << 20) - 100));
  });
  const flood = await call(floods, work);
  assert.deepEqual((flood.at(-1) as { error: { code: string } }).error.code, 'ANSWER_TOO_LARGE');
  assert.ok(flood.reduce((sum, l) => sum + JSON.stringify(l).length + 1, 0) <= 16 << 20);
});

test('a result without JSON is a failure', async () => {
  for (const result of [
    10n,
    (() => {
      const o: any = {};
      o.o = o;
      return o;
    })(),
  ]) {
    const [last] = (await call(
      withTool(() => result),
      work,
    )) as [{ error: { code: string } }];
    assert.equal(last.error.code, 'RESULT_INVALID');
  }
});

test('what the runtime would refuse fails at once', async () => {
  const rows: [(c: any) => void, RegExp][] = [
    [({ emit }) => emit('', 1), /The name of an event must have 1 to 256 bytes/],
    [({ emit }) => emit('x'.repeat(257), 1), /The name of an event/],
    [({ emit }) => emit('a\nb', 1), /The name of an event/],
    [({ emit }) => emit('a', 1, { id: '' }), /The id of an event/],
    [({ metadata }) => metadata([1]), /must be an object/],
    [({ metadata }) => metadata({ runId: '1' }), /belongs to the runtime/],
    [({ usage }) => usage('cost', 'x', Number.NaN), /finite number/],
    [({ usage }) => usage('', 'x', 1), /kind of usage/],
    [
      ({ state }) => {
        state[''] = 1;
      },
      /key of the state/,
    ],
    [
      ({ state }) => {
        state.big = 1n;
      },
      /cannot be written as JSON/,
    ],
  ];
  for (const [does, want] of rows) {
    const [last] = (await call(
      withTool((_, c) => does(c)),
      work,
    )) as [{ error: { message: string } }];
    assert.match(last.error.message, want);
  }
  assert.deepEqual(
    await call(
      withTool((_, { emit }) => emit('x'.repeat(256), 1)),
      work,
    ),
    [{ event: { name: 'x'.repeat(256), data: 1 } }, { result: null }],
  );
});

test('the state is a draft', async () => {
  const state = { count: 1, list: [1, 2], nested: { a: 1 }, gone: true, same: 'same', empty: [] };
  const writes = async (change: (state: any) => void) => {
    const all = await call(
      withTool((_, c) => change(c.state)),
      { ...work, state },
    );
    return (all.find((line) => 'state' in line)?.state ?? []) as object[];
  };
  const rows: [(state: any) => void, object[]][] = [
    [() => {}, []],
    [
      (s) => {
        s.count += 1;
      },
      [{ op: 'replace', key: 'count', value: 2 }],
    ],
    [
      (s) => {
        s.list.push(3, 4);
      },
      [{ op: 'append', key: 'list', value: [3, 4] }],
    ],
    [
      (s) => {
        s.list = [0, 1, 2];
      },
      [{ op: 'replace', key: 'list', value: [0, 1, 2] }],
    ],
    [
      (s) => {
        s.empty.push(1);
      },
      [{ op: 'replace', key: 'empty', value: [1] }],
    ],
    [
      (s) => {
        s.nested.a = 2;
      },
      [{ op: 'replace', key: 'nested', value: { a: 2 } }],
    ],
    [
      (s) => {
        delete s.gone;
      },
      [{ op: 'delete', key: 'gone' }],
    ],
    [
      (s) => {
        s.gone = undefined;
      },
      [{ op: 'delete', key: 'gone' }],
    ],
    [
      (s) => {
        s.gone = null;
      },
      [{ op: 'replace', key: 'gone', value: null }],
    ],
    [
      (s) => {
        s.same = 'other';
        s.same = 'same';
      },
      [],
    ],
    [
      (s) => {
        s.at = new Date(0);
      },
      [{ op: 'replace', key: 'at', value: '1970-01-01T00:00:00.000Z' }],
    ],
    [
      (s) => {
        Object.assign(s, { a: 1, b: [] });
      },
      [
        { op: 'replace', key: 'a', value: 1 },
        { op: 'replace', key: 'b', value: [] },
      ],
    ],
  ];
  for (const [change, want] of rows) assert.deepEqual(await writes(change), want, String(change));
});

test('an update that fails changes nothing', async () => {
  const handler = withTool((_, { update, state }) => {
    state.kept = true;
    try {
      update((draft) => {
        draft.count = 2;
        draft.extra = 1;
        throw new Error('no');
      });
    } catch {
      // The tool goes on.
    }
    return state;
  });
  assert.deepEqual(await call(handler, { ...work, state: { count: 1 } }), [
    { state: [{ op: 'replace', key: 'kept', value: true }] },
    { result: { count: 1, kept: true } },
  ]);
});

test('calls of one agent do not share a state', async () => {
  const handler = withTool((_, { state }) => {
    state.list.push('x');
    return state.list;
  });
  const state = { list: ['a'] };
  const both = await Promise.all([call(handler, { ...work, state }), call(handler, { ...work, state })]);
  for (const got of both) assert.deepEqual(got.at(-1), { result: ['a', 'x'] });
});

test('a mistake in a definition says what to change', () => {
  const named = (name: string): Tool => tool({ name, description: 'Works.', execute: () => 1 });
  const support = (options: object) => () => agent({ name: 'support', model: 'a/b', ...options } as never);
  const rows: [string, () => unknown, RegExp][] = [
    ['no name', () => agent({ name: '', model: 'a/b' }), /name of an agent must have 1 to 256 bytes/],
    ['no model', () => agent({ name: 'support' }), /has no model\. Give provider\/name/],
    ['both prompts', support({ prompt: 'a', systemPrompt: 'b' }), /both prompt and systemPrompt\. Remove one/],
    ['a tool twice', support({ tools: [named('a'), { use: 'a' }] }), /lists the tool "a" twice\. Remove one/],
    [
      'a tool and a method',
      support({ tools: [named('a')], methods: { a: () => 1 } }),
      /a method and a tool with the name "a"\. Rename one/,
    ],
    ['a tool that is none', support({ tools: [{}] }), /lists a tool that is none/],
    ['an unknown field', support({ sytemPrompt: 'a' }), /has a field sytemPrompt, which does not exist/],
    ['an unknown hook', support({ hooks: { onEnd: () => {} } }), /hooks of The agent "support" has a field onEnd/],
    ['a hook that is no function', support({ hooks: { onStart: 'x' } }), /hooks\.onStart .* must be a function/],
    ['a method that is no function', support({ methods: { a: 1 } }), /must be a function/],
    ['compact without context', support({ compact: () => '' }), /compact without context/],
    [
      'compact with a window',
      support({ compact: () => '', context: { maxTokens: 1, compaction: 'window' } }),
      /Write "summary"/,
    ],
    [
      'a state of a tool alone',
      support({
        tools: [tool({ name: 'a', description: 'A.', state: jsonSchema({ type: 'object' }), execute: () => 1 })],
      }),
      /Give the agent the same state/,
    ],
    ['a state that is a list', support({ state: jsonSchema({ type: 'array' }) }), /must describe an object/],
    ['a duration', support({ runTimeout: '10' }), /must be a duration above 0/],
    ['a duration of nothing', support({ runTimeout: '0s' }), /must be a duration above 0/],
    ['a tool without a name', () => named(''), /1 to 64 characters of A-Z/],
    ['a tool with a long name', () => named('x'.repeat(65)), /1 to 64 characters/],
    ['a reserved name', () => named('subagent__x'), /reserved/],
    ['no description', () => tool({ name: 'a', description: '', execute: () => 1 }), /has no description/],
    ['no execute', () => tool({ name: 'a', description: 'A.' } as never), /has no execute/],
    [
      'an unknown field of a tool',
      () => tool({ name: 'a', description: 'A.', retry: 'safe', execute: () => 1 } as never),
      /has a field retry, which does not exist/,
    ],
    [
      'an input that is a text',
      () => tool({ name: 'a', description: 'A.', input: jsonSchema({ type: 'string' }), execute: () => 1 }),
      /must describe an object/,
    ],
    [
      'an input that is none',
      () => tool({ name: 'a', description: 'A.', input: { type: 'object' } as never, execute: () => 1 }),
      /is not a schema/,
    ],
    [
      'agents of one name',
      () => serve({ agents: [agent({ name: 'a', model: 'a/b' }), agent({ name: 'a', model: 'a/b' })] }),
      /Two agents have the name "a"/,
    ],
    ['agents that are none', () => serve({ agents: [{} as never] }), /needs agents that agent/],
    [
      'a long description',
      () => serve({ agents: [agent({ name: 'a', model: 'a/b', systemPrompt: 'x'.repeat(1 << 20) })] }),
      /at most 1048576 are allowed\. Serve them at two URLs/,
    ],
    ['a long build', () => serve({ agents: [], build: 'x'.repeat(129) }), /more than 128 bytes/],
  ];
  for (const [what, make, want] of rows) assert.throws(make, want, what);
  named('x'.repeat(64));
  serve({ agents: [], build: 'x'.repeat(128) });
  serve({ agents: [agent({ name: 'a', model: 'a/b', systemPrompt: 'x'.repeat((1 << 20) - 1000) })] });
});

test('the version of the package is in the description', async () => {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  const { sdk } = (await (await serving({})(get())).json()) as { sdk: string };
  assert.equal(sdk, `typescript/${version}`);
});
