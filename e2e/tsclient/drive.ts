// node drive.js SCENARIO URL [KEY]: runs a scenario with the installed package and prints its result as JSON.
import { Holdfast, HoldfastError, unwrap } from '@holdfast/sdk';

const [scenario, baseUrl = '', apiKey = ''] = process.argv.slice(2);
const holdfast = new Holdfast({ baseUrl, ...(apiKey ? { apiKey } : {}) });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
}

/** refusal returns the typed error of a call. */
async function refusal(call: Promise<unknown>): Promise<object> {
  try {
    return { result: await call };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    const { kind, currentStatus } = error.body;
    return { status: error.status, code: error.code, kind, currentStatus, said: error.message !== '' };
  }
}

const scenarios: Record<string, () => Promise<unknown>> = {
  async conversation() {
    const answer = await holdfast.ask({ sessionId: 'talk', agentType: 'talker', message: 'hello', userId: 'ann', tags: ['a'] });
    for (let i = 0; i < 3; i++) await holdfast.ask({ sessionId: `more-${i}`, agentType: 'talker', message: 'hello', userId: 'ann' });
    await holdfast.sessions.update('talk', { title: 'A talk' });
    const listed = await all(holdfast.sessions.list({ userId: 'ann', limit: 2 }));
    const tagged = await all(holdfast.sessions.list({ tags: ['a'], status: ['completed', 'failed'] }));
    const opened = await holdfast.sessions.get('talk');
    const messages = unwrap(await holdfast.http.GET('/messages', { params: { query: { sessionId: 'talk' } } }));
    const points = unwrap(await holdfast.http.GET('/checkpoints', { params: { query: { sessionId: 'talk' } } }));
    const branch = await holdfast.sessions.branch({ sessionId: 'talk', checkpointId: points.checkpoints[0]?.checkpointId ?? '', newSessionId: 'branch' });
    const usage = unwrap(await holdfast.http.GET('/usage', { params: { query: { sessionId: 'talk' } } }));
    const deleted = await holdfast.sessions.delete('branch');
    return {
      text: answer.text, status: answer.run.status, listed: listed.map((s) => s.sessionId).sort(), tagged: tagged.map((s) => s.sessionId),
      title: opened.session?.title, messages: messages.messages.map((m) => m.role), branch: branch.messageCount, deleted,
      usage: 'entryCount' in usage,
    };
  },

  async stream() {
    const started = await holdfast.start({ sessionId: 'story', agentType: 'talker', message: 'tell me a story' });
    const sequences: number[] = [];
    let text = '';
    let caughtUp = 0;
    for await (const frame of holdfast.stream({ sessionId: started.sessionId })) {
      if (frame.type === 'caught-up') caughtUp++;
      if (frame.type === 'rewound') throw new Error('nothing was lost, so nothing is void');
      if (frame.type === 'chunk') sequences.push(frame.sequence);
      if (frame.type === 'chunk' && frame.chunk.type === 'text_delta') text += frame.chunk.delta;
      if (frame.type === 'end') return { text, caughtUp, rising: sequences.every((n, i) => i === 0 || n > (sequences[i - 1] ?? 0)), status: frame.status };
    }
    throw new Error('the stream has no end');
  },

  async errors() {
    await holdfast.start({ sessionId: 'busy', agentType: 'talker', message: 'tell me a story' });
    return {
      missing: await refusal(holdfast.sessions.get('nobody')),
      busy: await refusal(holdfast.start({ sessionId: 'busy', message: 'hello', onBusy: 'reject' })),
      cursor: await refusal(all(holdfast.stream({ sessionId: 'nobody' }))),
    };
  },

  async writes() {
    await holdfast.ask({ sessionId: 'written', agentType: 'talker', message: 'hello' });
    const { session } = await holdfast.sessions.get('written');
    const merged = await holdfast.sessions.mergeState('written', {
      ops: [{ key: 'plan', replace: null }, { key: 'seen', append: [1] }, { key: 'seen', append: [2] }, { key: 'gone', delete: true }],
      expectedVersion: session?.version ?? 0,
    });
    const stale = await refusal(holdfast.sessions.mergeState('written', { ops: [{ key: 'plan', replace: 'x' }], expectedVersion: 1 }));
    const refused = await holdfast.sessions.setStatus('written', { status: 'paused', expected: ['active'] });
    const set = await holdfast.sessions.setStatus('written', { status: 'paused', expected: ['completed'], expectedVersion: merged.version });
    const now = await holdfast.sessions.get('written');
    return {
      state: now.session?.customState, warnings: merged.warnings, stale, status: now.session?.status,
      refused: refused.ok ? refused.newVersion : [refused.currentStatus, refused.currentVersion === merged.version],
      set: set.ok ? set.newVersion === merged.version + 1 : set.currentStatus,
    };
  },

  async answers() {
    const ask = async (sessionId: string, message: string) => {
      const { pendingCalls, run } = await holdfast.ask({ sessionId, agentType: 'clerk', message, userId: 'bob' });
      const [call] = pendingCalls;
      if (!call) throw new Error(`no call waits: ${JSON.stringify(run)}`);
      return call;
    };
    const end = async (sessionId: string, answered: { status: string; runId?: string }) => {
      const run = await holdfast.wait(sessionId, answered.runId ? { runId: answered.runId } : {});
      return [answered.status, run.output];
    };
    const [approved, denied, answered, failed] = await Promise.all([ask('approved', 'sum'), ask('denied', 'sum'), ask('answered', 'ask'), ask('failed', 'ask')]);
    const waiting = await all(holdfast.calls.list({ userId: 'bob', limit: 1 }));
    const approvals = await all(holdfast.calls.list({ userId: 'bob', kind: 'approval' }));
    const out = {
      waiting: waiting.map((call) => call.rootSessionId).sort(),
      approvals: approvals.map((call) => call.sessionId).sort(),
      approved: await end('approved', await holdfast.calls.approve(approved)),
      denied: await end('denied', await holdfast.calls.deny(denied, 'too much')),
      answered: await end('answered', await holdfast.calls.answer(answered, { choice: 'red' })),
      failed: await end('failed', await holdfast.calls.fail(failed, 'nobody there')),
    };
    const again = await holdfast.calls.deny(approved);
    const unknown = await refusal(holdfast.calls.approve({ sessionId: 'approved', toolCallId: 'nothing', approvalId: 'nothing' }));
    return { ...out, again: again.status, unknown, left: (await all(holdfast.calls.list({ userId: 'bob' }))).length };
  },

  async lists() {
    for (let i = 0; i < 3; i++) await holdfast.ask({ sessionId: 'long', agentType: 'talker', message: `number ${i}`, userId: 'cleo' });
    const messages = await all(holdfast.sessions.messages('long', { limit: 1 }));
    const runs = await all(holdfast.sessions.runs('long'));
    const usage = await holdfast.sessions.usage('long');
    const first = runs.at(-1);
    const ofRun = await holdfast.sessions.usage('long', { runId: first?.runId ?? '' });
    const buckets = await holdfast.usage({ userId: 'cleo', bucketMs: 0 });
    const counted = (tokens?: { totalTokens?: number }) => (tokens?.totalTokens ?? 0) > 0;
    return {
      messages: messages.map(({ role, parts }) => `${role}: ${parts.map((part) => ('text' in part ? part.text : '')).join('')}`),
      turns: runs.map((run) => run.turn),
      usage: [usage.entryCount, ofRun.entryCount, buckets.length, counted(usage.tokens) && counted(buckets[0]?.rollup?.tokens)],
      missing: await refusal(all(holdfast.sessions.runs('nobody'))),
    };
  },

  async files() {
    const bytes = Uint8Array.from({ length: 20_000 }, (_, i) => i % 251);
    const raw = await holdfast.files.upload(bytes);
    const text = await holdfast.files.upload(new Blob(['hello'], { type: 'text/plain' }));
    const named = await holdfast.files.upload(new TextEncoder().encode('a,b').buffer, { mediaType: 'text/csv' });
    const answer = await holdfast.ask({
      sessionId: 'with-file', agentType: 'talker', messages: [{ text: 'look', parts: [{ file: { url: text.url, mediaType: text.mediaType, filename: 'hello.txt' } }] }],
    });
    const read = new Uint8Array(await (await holdfast.files.download(raw.id)).arrayBuffer());
    return {
      raw: [raw.size, raw.mediaType, read.length === bytes.length && read.every((byte, i) => byte === bytes[i])],
      text: [text.size, text.mediaType, await (await holdfast.files.download(text.url)).text()],
      named: [named.size, named.mediaType],
      answer: answer.text,
      missing: await refusal(holdfast.files.download('file_0')),
      image: await refusal(holdfast.files.upload(new Blob(['no'], { type: 'image/png' }))),
    };
  },

  async key() {
    return { list: await refusal(all(holdfast.sessions.list())), stream: await refusal(all(holdfast.stream({ sessionId: 'talk' }))) };
  },
};

const run = scenarios[scenario ?? ''];
if (!run) throw new Error(`no scenario ${scenario}`);
console.log(JSON.stringify(await run()));
