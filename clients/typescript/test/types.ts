/** What must compile, and what must not. The compiler is the test: an unused @ts-expect-error is an error. */
import {
  agent,
  clientTool,
  jsonSchema,
  serve,
  subAgent,
  tool,
  type InputOf,
  type OutputOf,
} from '@holdfast/sdk/agents';
import { type } from 'arktype';
import * as v from 'valibot';
import { z } from 'zod';
import { z as z3 } from 'zod3';

/** Equal is true if two types are the same. */
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_same: Equal<A, B>): void {}

const state = z.object({ refunds: z.number().default(0), plan: z.enum(['free', 'pro']).default('free') });
type State = { refunds: number; plan: 'free' | 'pro' };
same<OutputOf<typeof state>, State>(true);
const input = z.object({
  order: z.string(),
  days: z.number().default(1),
  at: z.string().transform((text) => new Date(text)),
});
same<InputOf<typeof input>, { order: string; at: string; days?: number | undefined }>(true);

const refund = tool({
  name: 'refund',
  description: 'Refunds an order.',
  input,
  output: z.object({ id: z.string(), note: z.string().default('') }),
  state,
  approval: async ({ input, state, user, id }) => {
    same<typeof input, { order: string; days: number; at: Date }>(true);
    same<typeof state, State>(true);
    same<typeof user, { readonly id: string } | null>(true);
    same<typeof id, string>(true);
    return input.days > 1 && state.plan === 'free';
  },
  execute: async (input, call) => {
    same<typeof input, { order: string; days: number; at: Date }>(true);
    same<typeof call.state, State>(true);
    same<typeof call.signal, AbortSignal>(true);
    call.state.refunds += 1;
    call.update((draft) => {
      draft.plan = 'pro';
      // @ts-expect-error: not a plan
      draft.plan = 'gold';
    });
    // @ts-expect-error: no such key
    call.state.missing;
    // @ts-expect-error: the context is read-only
    call.tenant = 'other';
    // @ts-expect-error: usage is a number
    call.usage('cost', 'crm', '1');
    return { id: input.order };
  },
});

// Without schemas, values are any JSON.
tool({ name: 'free', description: 'Free.', execute: (given, { state }) => [given.any, state.any] });
// The other libraries infer as well.
tool({
  name: 'a',
  description: 'A.',
  input: v.object({ n: v.number() }),
  execute: ({ n }) => same<typeof n, number>(true),
});
tool({ name: 'a', description: 'A.', input: type({ n: 'number' }), execute: ({ n }) => same<typeof n, number>(true) });
tool({
  name: 'a',
  description: 'A.',
  input: jsonSchema<{ n: number }>({}),
  execute: ({ n }) => same<typeof n, number>(true),
});
tool({
  name: 'a',
  description: 'A.',
  input: jsonSchema({}, z3.object({ n: z3.number().default(1) })),
  execute: ({ n }) => same<typeof n, number>(true),
});

// @ts-expect-error: the result lacks its id
tool({ name: 'a', description: 'A.', output: z.object({ id: z.string() }), execute: () => ({}) });
// @ts-expect-error: the result has another type
tool({ name: 'a', description: 'A.', output: z.object({ id: z.string() }), execute: async () => ({ id: 1 }) });
// @ts-expect-error: an approval is a boolean
tool({ name: 'a', description: 'A.', approval: () => 'yes', execute: () => 1 });
// @ts-expect-error: there is no execute
tool({ name: 'a', description: 'A.' });
// @ts-expect-error: there is no description
tool({ name: 'a', execute: () => 1 });
// @ts-expect-error: a duration has a unit
tool({ name: 'a', description: 'A.', timeout: '30', execute: () => 1 });
// @ts-expect-error: no such field
tool({ name: 'a', description: 'A.', retries: 3, execute: () => 1 });
// @ts-expect-error: a client answers the calls
clientTool({ name: 'a', description: 'A.', execute: () => 1 });
// @ts-expect-error: an input is a schema
tool({ name: 'a', description: 'A.', input: { type: 'object' }, execute: () => 1 });

const support = agent({
  name: 'support',
  model: 'anthropic/claude-sonnet-4-5',
  prompt: ({ state, user, session, run }) => {
    same<typeof state, State>(true);
    return `${state.plan} ${user?.id} ${session.tags.join()} ${run.turn}`;
  },
  state,
  output: z.object({ answer: z.string() }),
  tools: [
    refund,
    'calculate',
    { use: 'note', approval: 'always' },
    clientTool({ name: 'ask', description: 'Asks.' }),
    subAgent('reader'),
  ],
  stopWhen: ({ state, steps, results }) => state.refunds > 3 || steps > 5 || results.some(({ success }) => !success),
  guard: {
    onOutput: ({ output }) => {
      same<typeof output, { answer: string }>(true);
      return output.answer === '' ? { revise: 'Say something.' } : undefined;
    },
    onReply: ({ output }) => (output === '' ? { fail: 'Nothing.' } : null),
  },
  context: { maxTokens: 1000 },
  compact: async ({ messages }) => messages.map(({ role }) => role).join(),
  hooks: {
    onStart: ({ state }) => same<typeof state, State>(true),
    afterTool: async ({ toolResult, emit }) => emit('done', toolResult.success),
    afterRun: ({ durationMs, code }) => same<[typeof durationMs, typeof code], [number, string | null]>(true),
  },
  methods: {
    add: ({ state, update, send }, by: number) => {
      same<typeof state, State>(true);
      update((draft) => void (draft.refunds += by));
      send(by);
    },
  },
});
serve({ agents: [support, agent({ name: 'reader', model: 'a/b' })], secrets: [process.env.SECRET ?? ''] });
subAgent(support, { description: 'Helps.' });

// @ts-expect-error: a prompt is a text
agent({ name: 'a', model: 'a/b', prompt: () => 7 });
// @ts-expect-error: no such hook
agent({ name: 'a', model: 'a/b', hooks: { onEnd: () => {} } });
// @ts-expect-error: no such field
agent({ name: 'a', model: 'a/b', sytemPrompt: '' });
// @ts-expect-error: not a policy
agent({ name: 'a', model: 'a/b', onBusy: 'wait' });
// @ts-expect-error: a verdict is revise, fail or replace
agent({ name: 'a', model: 'a/b', guard: { onReply: () => ({ reject: 'no' }) } });
// @ts-expect-error: onReply cannot replace
agent({ name: 'a', model: 'a/b', guard: { onReply: () => ({ replace: 'no' }) } });
// @ts-expect-error: a method has no run
agent({ name: 'a', model: 'a/b', methods: { a: ({ run }) => run } });
// @ts-expect-error: an agent is made by agent
serve({ agents: [{ name: 'a' }] });
