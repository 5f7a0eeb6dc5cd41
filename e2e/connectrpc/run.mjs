// node run.mjs OPTIONS: talks to the gateway with each client, over each protocol that it has, and
// prints one JSON object: what each saw, by client and protocol.
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import * as node from '@connectrpc/connect-node';
import * as web from '@connectrpc/connect-web';
import { AgentService } from './gen/holdfast/agent/v1/agent_pb.js';

const { url, key } = JSON.parse(process.argv[2]);

const authorized = (next) => (request) => {
  request.header.set('Authorization', `Bearer ${key}`);
  return next(request);
};
const options = { baseUrl: url, interceptors: [authorized] };
const transports = {
  'web connect': web.createConnectTransport(options),
  'web grpc-web': web.createGrpcWebTransport(options),
  'node connect': node.createConnectTransport({ ...options, httpVersion: '1.1' }),
  'node connect 2': node.createConnectTransport({ ...options, httpVersion: '2' }),
  'node grpc': node.createGrpcTransport(options),
  'node grpc-web': node.createGrpcWebTransport({ ...options, httpVersion: '1.1' }),
};

// read adds the text of a run after a sequence to the story, and stops after some words if it is cut.
async function read(client, started, story, words) {
  const cut = new AbortController();
  const request = { sessionId: started.sessionId, runId: started.runId, fromSequence: story.sequence };
  try {
    for await (const { frame } of client.stream(request, { signal: cut.signal })) {
      if (frame.case === 'rewound') throw new Error('rewound');
      if (frame.case === 'end') story.status = frame.value.status;
      if (frame.case !== 'chunk') continue;
      story.sequence = frame.value.sequence;
      const { event } = frame.value.chunk;
      if (event.case === 'textDelta') story.text += event.value.delta;
      if (story.text.split(' ').length > words) cut.abort();
    }
  } catch (failure) {
    if (!cut.signal.aborted) throw failure;
  }
}

async function talk(client, sessionId) {
  const started = await client.start({ sessionId, agentType: 'talker', message: 'tell me a story', userId: 'ada', tags: [sessionId] });
  const story = { text: '', sequence: 0n, status: '' };
  await read(client, started, story, 20);
  const cut = story.text.split(' ').length;
  await read(client, started, story, Infinity);
  const waited = await client.waitRun({ sessionId, runId: started.runId, waitMs: 60_000n });
  await client.updateSession({ sessionId, title: 'A story' });
  const merged = await client.mergeState({ sessionId, ops: [{ key: 'plan', op: { case: 'replace', value: '"free"' } }] });
  const unexpected = await client.setStatus({ sessionId, expected: ['active'], status: 'paused' });
  const set = await client.setStatus({ sessionId, expectedVersion: merged.version, status: 'paused' });
  await client.putSubSession({ sessionId, subSession: { sessionId: 'elsewhere', status: 'active', remote: true } });
  await client.recordUsage({ sessionId, usage: [{ entry: { case: 'custom', value: { type: 'host', name: 'pages', value: 3 } } }] });
  const { session, subSessions } = await client.getSession({ sessionId });
  const { usage } = await client.getUsage({ sessionId });
  const written = [session.customState, unexpected.ok, unexpected.currentStatus, set.ok, set.newVersion === merged.version + 1n, subSessions.length, usage.custom[0].value];
  const list = await client.listSessions({ userId: 'ada', tags: [sessionId] });
  const { deleted } = await client.deleteSession({ sessionId });
  const refused = await client.getSession({ sessionId }).catch((failure) => failure);
  return {
    cut, text: story.text, status: story.status, output: JSON.parse(waited.run.output), titles: list.sessions.map((s) => s.title), total: Number(list.total), deleted,
    written: JSON.stringify(written),
    refused: refused instanceof ConnectError ? Code[refused.code] : String(refused),
  };
}

const seen = await Promise.all(Object.entries(transports).map(async ([name, transport]) => [name, await talk(createClient(AgentService, transport), name)]));
process.stdout.write(JSON.stringify(Object.fromEntries(seen)), () => process.exit(0)); // HTTP/2 sessions stay open
