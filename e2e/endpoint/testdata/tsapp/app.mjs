// The conformance app for the TypeScript package: an endpoint with the agents of goapp. Their tools, hooks and other
// functions do what the suite says, in the arguments of a call or in the custom state.
//
//     node app.mjs HOST PORT
//
// OUTSIDE_URL is the world of the suite, SECRETS are those of the endpoint, EDITION is that of the app: edition 2 has
// another prompt and one agent more. With TLS_CERT, TLS_KEY and TLS_CA it demands a certificate of its clients.

import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { agent, clientTool, jsonSchema, serve, subAgent, textOf, tool, ToolError, toNode } from '@holdfast/sdk/agents';

const [host, port] = process.argv.slice(2);
const { OUTSIDE_URL: outside, SECRETS: secrets, EDITION: edition } = process.env;
const model = 'suite/model';

/** ask has an effect in the ledger, or waits at a gate. */
async function ask(path, body, signal) {
  const answer = await fetch(outside + path, { method: 'POST', body: JSON.stringify(body), signal });
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
}

const program = jsonSchema({
  type: 'object',
  properties: { do: { type: 'array', items: { type: 'object' } }, amount: { type: 'number' } },
  required: ['do'],
  additionalProperties: false,
});

/** act runs the program of a call. */
async function act({ do: ops }, call) {
  for (const op of ops) {
    switch (op.op) {
      case 'return':
        return op.value;
      case 'size':
        return 'x'.repeat(op.count);
      case 'nothing':
        return undefined;
      case 'nojson':
        return 12n;
      case 'context':
        return describeCall(call);
      case 'state':
        return call.state;
      case 'fail':
        throw new ToolError(op.text, op.public ? { publicMessage: op.public, code: op.code } : { code: op.code });
      case 'crash':
        throw op.text; // what is thrown is no error on purpose
      case 'aborted': // waits for the cancellation, and reports it
        await new Promise((resolve) => call.signal.addEventListener('abort', resolve, { once: true }));
        await ask('/post', { key: call.idempotencyKey, label: op.text });
        throw call.signal.reason;
      case 'emit':
        for (let n = 0; n < Math.max(op.count ?? 1, 1); n++) {
          const options = { ...('id' in op && { id: op.id }), ...(op.transient && { transient: true }) };
          call.emit(op.name, op.value ?? null, options);
        }
        break;
      case 'emitsize':
        call.emit(op.name, 'x'.repeat(op.count));
        break;
      case 'metadata':
        call.metadata(op.value);
        break;
      case 'set':
        put(call.state, op.key, op.value ?? null);
        break;
      case 'setsize':
        put(call.state, op.key, 'x'.repeat(op.count));
        break;
      case 'append':
        put(call.state, op.key, [...(call.state[op.key] ?? []), ...op.value]);
        break;
      case 'delete':
        delete call.state[op.key];
        break;
      case 'put':
        call.store.put(op.key, op.value);
        break;
      case 'addto':
        call.store.add(op.key, op.count);
        break;
      case 'drop':
        call.store.delete(op.key);
        break;
      case 'stored':
        return Object.fromEntries(call.store.list(op.key));
      case 'usage':
        call.usage(op.kind ?? '', op.name ?? '', op.amount);
        break;
      case 'post':
        await ask('/post', { key: call.idempotencyKey, label: op.text }, call.signal);
        break;
      case 'gate':
        await ask('/gate', { name: op.text }, call.signal);
        break;
      case 'late': // does not notice the end of the call
        await ask('/gate', { name: op.text });
        await ask('/post', { key: call.idempotencyKey, label: op.name });
        break;
      default:
        throw new Error(`the puppet knows no op ${JSON.stringify(op.op)}`);
    }
  }
  return 'done';
}

/** put writes a key that may have any name: an assignment to __proto__ would be lost. */
function put(state, key, value) {
  Object.defineProperty(state, key, { value, writable: true, enumerable: true, configurable: true });
}

/** describeCall describes the trusted context of a call in the form that all languages use. */
function describeCall(call) {
  return {
    tenant: call.tenant, user: call.user?.id ?? null, session: call.session.id, parent: call.session.parentId,
    tags: call.session.tags, metadata: call.session.metadata, run: call.run.id, turn: call.run.turn, step: call.step,
    call: call.id, key: call.idempotencyKey, deadline: call.deadline.toISOString(), agent: call.agent,
  };
}

const told = 'Does what it is told.';
const puppet = (name, more) => tool({ name, description: told, input: program, execute: act, ...more });

/**
 * needsApproval asks for amounts above the limit in the state, and for all calls of the user mallory. The amount 13
 * makes it fail.
 */
function needsApproval({ input, state, user }) {
  if (input.amount === 13) throw new Error('nobody approves thirteen');
  return (input.amount ?? 0) > (state.limit ?? 100) || user?.id === 'mallory';
}

const question = jsonSchema({
  type: 'object',
  properties: { question: { type: 'string', description: 'what the user is asked' } },
  required: ['question'],
  additionalProperties: false,
});
const booking = jsonSchema({
  type: 'object',
  properties: { city: { type: 'string', description: 'where to' }, days: { type: 'integer' } },
  required: ['city', 'days'],
  additionalProperties: false,
});
const answer = jsonSchema({ type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] });

/** verdict decides about a text: bad is revised, fatal fails, broken breaks the guard. */
function verdict(text) {
  if (text.startsWith('bad')) return { revise: `Say it better than ${text}.` };
  if (text.startsWith('fatal')) return { fail: 'We do not say that.' };
  if (text.startsWith('broken')) throw new Error('the guard is broken');
  if (text.startsWith('swap')) return { replace: { answer: 'swapped' } };
  return null;
}

/** tell tells the ledger of the call of a hook. */
const tell = (hook, text) => ask('/post', { key: '', label: `${hook.session.id}/${text}` });

const hooks = {
  async beforeRun(hook) {
    await tell(hook, `beforeRun turn ${hook.run.turn} of ${hook.user?.id ?? ''}`);
    if (hook.state.refuse) throw new ToolError(hook.state.refuse);
  },
  async onStart(hook) {
    await tell(hook, 'onStart');
    if (hook.state.busy) {
      hook.emit('started', { turn: hook.run.turn });
      hook.metadata({ mood: 'busy' });
      hook.update((state) => {
        state.started = true;
      });
      hook.usage('hooks', 'started', 2);
    }
    if (hook.state.broken) throw new Error('the hook is broken');
  },
  onResume: (hook) => tell(hook, 'onResume'),
  beforeModel(hook) {
    const { model: asked, attempt, messages, tools, system } = hook;
    const sent = `${messages.length} messages, tools ${tools.join(' ')}, ${system}`;
    return tell(hook, `beforeModel ${asked} attempt ${attempt}, ${sent}`);
  },
  afterModel(hook) {
    const { model: asked, reply, error } = hook;
    const calls = reply.parts.filter((part) => part.type === 'tool-call').length;
    const text = JSON.stringify(textOf(reply));
    return tell(hook, `afterModel ${asked} says ${text} with ${calls} calls, failed ${error !== null}`);
  },
  beforeTool: (hook) => tell(hook, `beforeTool ${hook.toolCall.name}`),
  afterTool({ toolCall, toolResult, ...hook }) {
    const outcome = toolResult.success ? JSON.stringify(toolResult.result) : toolResult.error;
    return tell(hook, `afterTool ${toolCall.name} success ${toolResult.success} ${outcome}`);
  },
  onStateChange(hook) {
    const ops = hook.ops.map(({ op, key, value }) => `${op} ${key} ${JSON.stringify(value) ?? ''}`);
    return tell(hook, `onStateChange ${ops.join(', ')}`);
  },
  onMessage: (hook) => tell(hook, `onMessage ${hook.message.role} ${JSON.stringify(textOf(hook.message))}`),
  afterRun(hook) {
    const output = hook.output == null ? '' : JSON.stringify(hook.output);
    return tell(hook, `afterRun ${hook.status} ${output}${hook.error ?? ''} steps ${hook.steps}`);
  },
};

const worker = agent({
  name: 'worker', model, description: 'Does a part.', systemPrompt: 'You are a worker.',
  tools: [puppet('act'), puppet('act_asked', { approval: true })],
});

const agents = [
  agent({
    name: 'puppet', model, description: told,
    systemPrompt: edition === '2' ? 'You are the second puppet.' : 'You are a puppet.',
    tools: [
      puppet('act'),
      puppet('act_safe', { safe: true, storeReads: ['k/'] }),
      puppet('act_read', { readOnly: true }),
      puppet('act_quick', { timeout: '3s' }),
      puppet('act_out', {
        output: jsonSchema({ type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }),
      }),
      puppet('act_asked', { approval: true }),
      puppet('act_ruled', { approval: needsApproval }),
      puppet('act_others', { approval: 'always', approvers: 'others' }),
      puppet('act_within', { approval: true, answerWithin: '1s' }),
      tool({
        name: 'book', description: 'Books a trip.', input: booking, strict: true,
        execute: ({ city, days }) => `${days} days in ${city}`,
      }),
      clientTool({ name: 'ask', description: 'Asks the user.', input: question }),
      clientTool({ name: 'ask_within', description: 'Asks the user.', input: question, answerWithin: '1s' }),
      subAgent(worker),
    ],
  }),
  worker,
  agent({
    name: 'schemed', model, tools: [puppet('act')],
    state: jsonSchema({
      type: 'object',
      properties: { count: { type: 'integer', default: 7 }, items: { type: 'array', items: { type: 'string' } } },
      additionalProperties: false,
    }),
  }),
  agent({
    name: 'prompter', model, tools: [puppet('act')],
    prompt({ state, user, step }) {
      if (state.broken) throw new Error(state.broken);
      return `You serve ${user?.id ?? ''} in mode ${state.mode}, step ${step}.`;
    },
  }),
  agent({
    name: 'stopper', model, tools: [puppet('act')],
    stopWhen({ state, reply, results, steps }) {
      if (state.broken) throw new Error(state.broken);
      if (results.some(({ name, success, result }) => name === 'act' && success && result === 'stop')) return true;
      return state.stop === true || textOf(reply).includes('stop here') || steps >= 3;
    },
  }),
  agent({ name: 'finisher', model, output: answer, tools: [puppet('act'), puppet('finish', { finishWith: true })] }),
  agent({ name: 'guarded', model, guard: { onReply: ({ reply }) => verdict(textOf(reply)) } }),
  agent({ name: 'guarded-output', model, output: answer, guard: { onOutput: ({ output }) => verdict(output.answer) } }),
  agent({
    name: 'leading', model, systemPrompt: 'You lead.', tools: [subAgent(worker)],
    hooks: {
      async beforeSubAgent(hook) {
        const { toolCall, subAgent: sub, session } = hook;
        const other = sub.sessionId !== session.id;
        await tell(hook, `beforeSubAgent ${toolCall.name} by ${sub.agentType}, another session ${other}`);
        hook.update((state) => {
          state.asked = sub.agentType;
        });
      },
      afterSubAgent({ toolCall, toolResult, subAgent: sub, ...hook }) {
        const outcome = `success ${toolResult.success} ${JSON.stringify(toolResult.result)}`;
        return tell(hook, `afterSubAgent ${toolCall.name} by ${sub.agentType}, ${outcome}`);
      },
    },
  }),
  agent({
    name: 'hooked', model, systemPrompt: 'You have hooks.', hooks,
    tools: [puppet('act'), puppet('act_asked', { approval: true })],
  }),
  agent({
    name: 'compacting', model, context: { maxTokens: 300, keepTokens: 100 },
    compact: ({ messages: [first, ...more] }) =>
      `SUMMARY of ${more.length + 1} messages from ${first.role}, the first says ${textOf(first).slice(0, 20)}`,
  }),
  agent({
    name: 'advised', model,
    tools: [
      puppet('act'),
      tool({
        name: 'remember', description: 'Remembers.',
        input: jsonSchema({ type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }),
        execute: ({ text }, call) => {
          call.addContext({ kind: 'memory', text });
          return 'done';
        },
      }),
    ],
    stepContext: ({ state, steps }) => {
      if (state.broken) throw new Error(state.broken);
      const rows = [{ kind: 'instruction', key: 'mode', text: `Be ${state.mode}.` }];
      return steps > 0 ? [...rows, { kind: 'tools', key: 'hours', disable: ['act'] }] : rows;
    },
  }),
  agent({
    name: 'limited', model, description: 'Has limits.', maxSteps: 2, maxOutputTokens: 99, temperature: 0.5,
    onBusy: 'enqueue', tools: [puppet('act')], providerOptions: { suite: { seed: 7 } },
  }),
  agent({ name: 'equipped', model, tools: ['calculate'] }),
  agent({ name: 'careful', model, tools: [{ use: 'calculate', approval: 'always' }] }),
  agent({
    name: 'ruled', model, prompt: 'You help {{state.name}}.', stopWhen: { stateEquals: { stop: true } },
    tools: [puppet('act')],
  }),
  agent({
    name: 'methodical', model,
    methods: {
      add: (_, a, b) => a + b,
      arguments: (_, ...args) => args,
      increment(call) {
        call.update((state) => {
          state.count = (state.count ?? 0) + 1;
        });
        return call.state.count;
      },
      countdown(call, from) {
        for (let n = from; n > 0; n--) call.send(n);
        return 'go';
      },
      nothing: () => undefined,
      fail() {
        throw new Error('the secret is 42');
      },
    },
  }),
  agent({
    name: 'Ünïcode агент/漢字 🙂?#%&"\'\\<x>', model, description: 'Übung 漢字 🙂', systemPrompt: 'Grüße, 漢字 🙂\u2028"\'\\',
    tools: [puppet('a'), puppet('long_Name-1'.repeat(6).slice(0, 64))],
  }),
];
if (edition === '2') agents.push(agent({ name: 'newcomer', model, systemPrompt: 'You are new.' }));

const handler = serve({ agents, secrets, build: `edition-${edition || 1}` });
const { TLS_CERT: cert, TLS_KEY: key, TLS_CA: ca } = process.env;
const server = cert
  ? https.createServer(
      { cert: readFileSync(cert), key: readFileSync(key), ca: readFileSync(ca), requestCert: true, rejectUnauthorized: true },
      toNode(handler),
    )
  : http.createServer(toNode(handler));
server.listen(Number(port), host);
