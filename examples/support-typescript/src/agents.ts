import { agent, tool } from '@holdfast/sdk/agents';
import { z } from 'zod';
import { shop } from './shop.js';

const state = z.object({ refunded: z.number().default(0) });

const orders = tool({
  name: 'orders',
  description: 'Lists the orders of the customer.',
  readOnly: true,
  // The user is the one that the runtime has authenticated. The model cannot name another one.
  execute: (_, { user }) => shop.ordersOf(user?.id ?? 'guest'),
});

const refund = tool({
  name: 'refund',
  description: 'Refunds an order of the customer.',
  input: z.object({ order: z.string(), amount: z.number().positive() }),
  state,
  approval: ({ input, state }) => state.refunded + input.amount > 50,
  safe: true, // the shop recognizes a repeated refund by its key
  async execute({ order, amount }, call) {
    call.emit('progress', { text: `Refunding ${order} …` }, { id: call.id, transient: true });
    const receipt = await shop.refund(order, amount, call.idempotencyKey);
    call.state.refunded += amount;
    return receipt;
  },
});

export const support = agent({
  name: 'support',
  description: 'Answers questions about orders, and refunds them.',
  model: process.env.MODEL ?? 'scripted/support',
  prompt: ({ state }) => `You help a customer of a shop. Refunded so far: ${state.refunded} euros.`,
  state,
  tools: [orders, refund],
});
