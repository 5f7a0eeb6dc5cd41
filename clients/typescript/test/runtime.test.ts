// Agents of this package on the real runtime. HOLDFAST_BIN names the program.
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { agent, clientTool, subAgent, tool, ToolError, type Agent } from '@holdfast/sdk/agents';
import { call, everyCrash, holdfast, type Script } from '@holdfast/sdk/test';
import { z } from 'zod';

async function started(t: TestContext, agents: Agent[], script: Script) {
  const runtime = await holdfast({ agents, script });
  t.after(async () => {
    if (process.env.HOLDFAST_TEST_LOG) console.log(runtime.log());
    await runtime.close();
  });
  return runtime;
}

const state = z.object({ paid: z.number().default(0) });

test('a tool sees who asks, an approval sees its arguments, and both the state', async (t) => {
  const seen: object[] = [];
  const pay = tool({
    name: 'pay',
    description: 'Pays a bill.',
    input: z.object({ amount: z.number(), note: z.string().default('none') }),
    output: z.object({ paid: z.number() }),
    state,
    approval: ({ input, state, user }) => {
      seen.push({ asked: input, user, state: { ...state } });
      return input.amount > 100;
    },
    execute({ amount, note }, call) {
      seen.push({
        note,
        user: call.user,
        tags: call.session.tags,
        metadata: call.session.metadata,
        tenant: call.tenant,
        turn: call.run.turn,
        attempt: call.attempt,
      });
      call.state.paid += amount;
      return { paid: amount };
    },
  });
  const treasurer = agent({
    name: 'treasurer',
    model: 'a/b',
    state,
    tools: [pay],
    prompt: ({ state, user }) => `${user?.id} has paid ${state.paid}.`,
  });
  const runtime = await started(t, [treasurer], {
    treasurer: [
      call('pay', { amount: 50 }),
      'Paid.',
      call('pay', { amount: 500, note: '{{.LastUser}}' }),
      'Paid again.',
      call('pay', { amount: 101 }),
      'Never mind.',
    ],
  });
  const chat = runtime.chat('treasurer', { userId: 'ann', tags: ['vip'], metadata: { plan: 'gold' } });
  assert.equal((await chat.say('Pay the small bill.')).text, 'Paid.');
  await chat.say('Pay the large bill.');
  assert.deepEqual(
    chat.pending.map(({ toolName }) => toolName),
    ['pay'],
  );
  await assert.rejects(chat.approve('refund'), /No call of refund waits\. Waiting: pay\./);
  assert.equal((await chat.approve('pay')).text, 'Paid again.');
  await chat.say('One more.');
  assert.equal((await chat.deny('pay', 'enough')).text, 'Never mind.');
  assert.deepEqual(await chat.state(), { paid: 550 });
  assert.deepEqual(await chat.transcript(), [
    'user: Pay the small bill.',
    'call: pay {"amount":50}',
    'result: pay {"paid":50}',
    'agent: Paid.',
    'user: Pay the large bill.',
    'call: pay {"amount":500,"note":"{{.LastUser}}"}',
    'result: pay {"paid":500}',
    'agent: Paid again.',
    'user: One more.',
    'call: pay {"amount":101}',
    'error: pay denied',
    'agent: Never mind.',
  ]);
  const user = { id: 'ann' };
  assert.deepEqual(seen[0], { asked: { amount: 50, note: 'none' }, user, state: { paid: 0 } });
  assert.deepEqual(seen[1], {
    note: 'none',
    user,
    tags: ['vip'],
    metadata: { plan: 'gold' },
    tenant: 'default',
    turn: 1,
    attempt: 1,
  });
});

test('readers see events, metadata and usage of a tool as it runs', async (t) => {
  const report = tool({
    name: 'report',
    description: 'Reports.',
    execute(_, { emit, metadata, usage }) {
      emit('progress', { percent: 50 }, { id: 'bar' });
      metadata({ source: 'crm' });
      usage('reports', 'crm', 2);
      return 'done';
    },
  });
  const runtime = await started(t, [agent({ name: 'reporter', model: 'a/b', tools: [report] })], {
    reporter: [call('report'), 'Done.'],
  });
  const chat = runtime.chat('reporter');
  await chat.say('Report.');
  const events: unknown[] = [];
  for await (const frame of runtime.client.stream({ sessionId: chat.sessionId })) {
    if (frame.type === 'chunk' && frame.chunk.type === 'custom' && frame.chunk.eventName === 'progress')
      events.push(frame.chunk.data);
  }
  assert.deepEqual(events, [{ percent: 50 }]);
  const messages = [];
  for await (const message of runtime.client.sessions.messages(chat.sessionId)) messages.push(message);
  assert.equal((messages[1]?.metadata as { source?: string } | undefined)?.source, 'crm');
  const { custom } = await runtime.client.sessions.usage(chat.sessionId);
  assert.equal(custom.length, 1);
});

test('the model reads the message of an error, and users its public message', async (t) => {
  const fails = tool({
    name: 'fails',
    description: 'Fails.',
    execute() {
      throw new ToolError('The bank says 503.', { publicMessage: 'The bank is closed.' });
    },
  });
  const script =
    'models: {clerk: {rules: [{when: {toolFailed: fails}, reply: "I read: {{.LastResult}}"}, ' +
    '{reply: [{call: {name: fails}}]}]}}';
  const runtime = await started(t, [agent({ name: 'clerk', model: 'a/b', tools: [fails] })], script);
  const chat = runtime.chat('clerk');
  assert.match((await chat.say('Go.')).text, /I read: .*The bank says 503\./);
  assert.equal((await chat.transcript())[2], 'error: fails The bank is closed.');
});

test('a client answers, and another agent does', async (t) => {
  const reader = agent({ name: 'reader', model: 'a/b', description: 'Reads.' });
  const boss = agent({
    name: 'boss',
    model: 'a/b',
    tools: [
      clientTool({ name: 'ask', description: 'Asks.', input: z.object({ question: z.string() }) }),
      subAgent(reader),
    ],
  });
  const runtime = await started(t, [boss, reader], {
    boss: [call('ask', { question: 'Which?' }), call('subagent__reader', { message: 'Read it.' }), 'It is good.'],
    reader: ['A good book.'],
  });
  const chat = runtime.chat('boss');
  await chat.say('Read a book.');
  assert.equal((await chat.answer('ask', { title: 'Emma' })).text, 'It is good.');
  assert.deepEqual(
    (await chat.transcript()).filter((line) => line.startsWith('result')),
    ['result: ask {"title":"Emma"}', 'result: subagent__reader "A good book."'],
  );
});

test('guards, rules, hooks and methods are those of the application', async (t) => {
  const heard: string[] = [];
  const writer = agent({
    name: 'writer',
    model: 'a/b',
    state: z.object({ drafts: z.number().default(0) }),
    prompt: ({ state }) => `drafts: ${state.drafts}`,
    guard: { onReply: ({ output }) => (output.includes('!') ? { revise: 'Be calm.' } : undefined) },
    hooks: {
      beforeRun: ({ user }) => {
        if (!user) throw new ToolError('Please log in.');
      },
      onMessage: ({ message, state }) => {
        if (message.role === 'assistant') state.drafts += 1;
      },
      afterRun: ({ status }) => void heard.push(status),
    },
  });
  const runtime = await started(t, [writer], { writer: ['Wow!', 'Good.'] });
  const chat = runtime.chat('writer', { userId: 'ann' });
  assert.equal((await chat.say('Write.')).text, 'Good.');
  assert.deepEqual(await chat.state(), { drafts: 2 });
  await assert.rejects(runtime.chat('writer').say('Write.'), /Please log in\./);
  await until(async () => (heard.length >= 1 ? heard : undefined));
  assert.equal(heard[0], 'completed');
});

test('a stopped run aborts its tool', async (t) => {
  const running = gate();
  const aborted = gate();
  const waits = tool({
    name: 'waits',
    description: 'Waits.',
    async execute(_, { signal }) {
      running.open();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted.open();
    },
  });
  const runtime = await started(t, [agent({ name: 'clerk', model: 'a/b', tools: [waits] })], {
    clerk: [call('waits'), 'Done.'],
  });
  const { sessionId } = await runtime.client.start({ agentType: 'clerk', message: 'Go.' });
  await running.passed;
  await runtime.client.http.POST('/interrupt', { params: { query: { sessionId } }, body: {} });
  await aborted.passed;
  assert.equal((await runtime.client.wait(sessionId)).status, 'interrupted');
});

test('a run survives a crash of the runtime and of the application', async (t) => {
  const attempts: string[] = [];
  let interrupted = gate();
  const safe = tool({
    name: 'safe',
    description: 'Works.',
    safe: true,
    async execute(_, { idempotencyKey, signal }) {
      attempts.push(idempotencyKey);
      if (attempts.length > 2) return 'worked';
      interrupted.open();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return 'too late';
    },
  });
  const runtime = await started(t, [agent({ name: 'clerk', model: 'a/b', tools: [safe] })], {
    clerk: [call('safe'), 'Done.'],
  });
  const chat = runtime.chat('clerk');
  const answer = chat.say('Go.');
  await interrupted.passed;
  interrupted = gate();
  await runtime.crash();
  await interrupted.passed;
  await runtime.crashApplication();
  assert.equal((await answer).text, 'Done.');
  assert.equal(attempts.length, 3);
  assert.equal(new Set(attempts).size, 1, 'all attempts have one key');
  assert.equal((await chat.transcript())[2], 'result: safe "worked"');
});

test('everyCrash crashes at each moment, and names the one at which a scenario fails', async () => {
  const ledger = new Map<string, number>();
  const pay = (safe: boolean) =>
    tool({
      name: 'pay',
      description: 'Pays.',
      safe,
      execute: (_, { idempotencyKey }) => void ledger.set(idempotencyKey, (ledger.get(idempotencyKey) ?? 0) + 1),
    });
  const options = (safe: boolean) => ({
    agents: [agent({ name: 'clerk', model: 'a/b', tools: [pay(safe)] })],
    script: { clerk: [call('pay'), 'Paid.'] },
  });
  let plays = 0;
  await everyCrash(options(true), async (runtime) => {
    plays++;
    ledger.clear();
    const chat = runtime.chat('clerk');
    assert.equal((await chat.say('Pay.')).text, 'Paid.');
    assert.match((await chat.transcript())[2] ?? '', /^result: pay/);
    assert.equal(ledger.size, 1);
  });
  assert.equal(plays, 1 + 2 * 3);
  const failing = everyCrash(options(false), async (runtime) => {
    const chat = runtime.chat('clerk');
    await chat.say('Pay.');
    assert.match((await chat.transcript())[2] ?? '', /^result: pay/);
  });
  await assert.rejects(failing, /The application crashed (before|after) the tool pay.*, and then: /);
});

test('a mistake in the use of the kit says what to change', async () => {
  const clerk = agent({ name: 'clerk', model: 'a/b' });
  await assert.rejects(
    holdfast({ agents: [clerk], script: { clark: ['Hi.'] } }),
    /has replies of "clark", which is not one of the agents/,
  );
  await assert.rejects(
    holdfast({ agents: [clerk], script: {}, binary: '/nowhere/holdfast' }),
    /\/nowhere\/holdfast does not start: .*HOLDFAST_BIN/,
  );
  await assert.rejects(holdfast({ agents: [clerk], script: {}, binary: process.execPath }), /ended with /);
});

/** gate is closed until open is called. */
function gate(): { passed: Promise<void>; open: () => void } {
  let open = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

/** until repeats a question until it has an answer. */
async function until<T>(ask: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
