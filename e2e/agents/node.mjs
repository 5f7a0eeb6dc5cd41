// node node.mjs FIRST SECOND KEY: AgentClient and agentFetch against two gateways. Each check is a
// line {check, got}.
import { AgentClient, agentFetch } from 'agents/client';
import WebSocket from 'ws';

const [first, second, key] = process.argv.slice(2);
const patience = 60_000;
const report = (check, got) => process.stdout.write(`${JSON.stringify({ check, got })}\n`);

async function until(what, holds) {
  for (const end = Date.now() + patience; !holds(); await new Promise((next) => setTimeout(next, 5))) {
    if (Date.now() > end) {
      throw new Error(`still waiting: ${what}`);
    }
  }
}

function open(host, more = {}) {
  const errors = [];
  const client = new AgentClient({
    host, agent: 'Counter', name: 'room', protocols: ['holdfast.v2', `holdfast.key.${key}`], WebSocket,
    onStateUpdateError: (error) => errors.push(error), ...more,
  });
  return Object.assign(client, { errors });
}

const a = open(first);
const b = open(second);
await Promise.all([a.ready, b.ready]);
report('identity', [a.name, a.agent, a.identified]);

a.setState({ count: 1 });
await until('the other gateway shows the state', () => b.state?.count === 1);
b.setState({ count: 2 });
await until('the first gateway shows the state', () => a.state?.count === 2);
report('state', [a.state, b.state]);

report('call', await a.call('add', [1, 2]));
report('stub', await b.stub.increment());
await until('the state of the method', () => a.state?.count === 3 && b.state?.count === 3);
const chunks = [];
report('stream', [await a.call('countdown', [3], { stream: { onChunk: (chunk) => chunks.push(chunk) } }), chunks]);
report('unknown method', await a.call('missing').catch((error) => error.message));
report('tool', await a.call('lookup').catch((error) => error.message));

const reader = open(first, { query: { readonly: 'true' } });
await reader.ready;
reader.setState({ count: 9 });
await until('the refusal', () => reader.errors.length > 0);
report('read-only', [reader.errors[0], await reader.call('increment').catch((error) => error.message)]);

const authorized = { headers: { Authorization: `Bearer ${key}` } };
report('fetch', await (await agentFetch({ host: first, agent: 'Counter', name: 'room' }, authorized)).json());

const failure = (more) => new Promise((resolve) => open(first, { ...more, onConnectionError: (error) => resolve([error.code, error.reason]) }));
report('bad key', await failure({ protocols: ['holdfast.v2', 'holdfast.key.wrong'] }));
report('unknown agent', await failure({ agent: 'Nobody' }));
process.exit(0);
