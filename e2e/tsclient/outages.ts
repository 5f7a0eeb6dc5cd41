// node outages.js: calls the installed package with a scripted fetch and a clock that runs 25 times faster, and prints
// their results as JSON.
import { Holdfast, RunFailedError, type Frame } from '@holdfast/sdk';

const speed = 25;
const [realTimeout, realNow, begin] = [globalThis.setTimeout, Date.now, Date.now()];
globalThis.setTimeout = ((f: () => void, ms?: number) => realTimeout(f, (ms ?? 0) / speed)) as typeof setTimeout;
Date.now = () => begin + (realNow() - begin) * speed;
const pause = (seconds: number) => new Promise<void>((resolve) => setTimeout(resolve, seconds * 1000));

/** Script writes the events of one connection, which breaks when it returns. */
type Script = (write: (text: string) => void, request: Request) => Promise<void> | void;

const chunk = (id: number) => `id: ${id}\nevent: chunk\ndata: {"sequence":${id},"chunk":{"type":"text_delta"}}\n\n`;
const caughtUp = 'event: caught-up\ndata: {}\n\n';
const end: Script = (write) => write('event: end\ndata: {"status":"completed"}\n\n');

/** streaming returns a client whose nth connection plays the nth script, and later ones the last. */
function streaming(asked: string[], ...scripts: Script[]): Holdfast {
  const fetch = async (input: RequestInfo | URL, init?: RequestInit) => {
    const request = new Request(input, init);
    asked.push(new URL(request.url).searchParams.get('fromSequence') ?? '');
    const script = scripts[Math.min(asked.length, scripts.length) - 1] ?? end;
    const body = new ReadableStream<Uint8Array>({
      async start(out) {
        init?.signal?.addEventListener('abort', () => out.error(init.signal?.reason));
        await script((text) => out.enqueue(new TextEncoder().encode(text)), request);
        await pause(1); // an error discards what is not read yet
        if (!init?.signal?.aborted) out.error(new Error('cut'));
      },
    });
    return new Response(body);
  };
  return new Holdfast({ baseUrl: 'http://gateway.test', fetch });
}

/** answering returns a client whose nth request has the nth answer; an error is a broken connection. */
function answering(sent: Request[], ...answers: (() => Promise<object>)[]): Holdfast {
  const fetch = async (input: RequestInfo | URL, init?: RequestInit) => {
    sent.push(new Request(input, init));
    return Response.json(await answers[Math.min(sent.length, answers.length) - 1]?.());
  };
  return new Holdfast({ baseUrl: 'http://gateway.test', fetch });
}

async function read(holdfast: Holdfast, each = async (_: Frame) => {}): Promise<string> {
  const types: string[] = [];
  try {
    for await (const frame of holdfast.stream({ sessionId: 's' })) {
      types.push(frame.type);
      await each(frame);
    }
  } catch (error) {
    types.push(String(error));
  }
  return types.join(' ');
}

const run = (more: object) => ({ runId: 'r1', done: true, status: 'completed', pendingCalls: [], ...more });
const cut = async () => { await pause(16); throw new TypeError('fetch failed'); };

const scenarios: Record<string, () => Promise<unknown>> = {
  async quiet() {
    const asked: string[] = [];
    const beats: Script = async (write) => { write(chunk(7) + caughtUp); for (let i = 0; i < 4; i++) { await pause(15); write(': keep-alive\n\n'); } };
    const breaks: Script = async (write) => { write(': open\n\n' + caughtUp); await pause(5); };
    return [await read(streaming(asked, beats, breaks, breaks, beats, end)), asked];
  },
  async silent() {
    const asked: string[] = [];
    return [await read(streaming(asked, async (write) => { write(chunk(7)); await pause(90); }, end)), asked];
  },
  async slowConsumer() {
    const asked: string[] = [];
    const all: Script = async (write) => { write(chunk(7)); await pause(40); end(write, new Request('http://x')); await pause(90); };
    return [await read(streaming(asked, all), (frame) => pause(frame.type === 'chunk' ? 80 : 0)), asked];
  },
  async dead() {
    const asked: string[] = [];
    const since = Date.now();
    const got = await read(streaming(asked, (write) => { write(': open\n\n' + caughtUp); }));
    return [got, Date.now() - since > 30_000];
  },
  async heldBack() {
    let asked = 0;
    const fetch = (_: RequestInfo | URL, init?: RequestInit) =>
      new Promise<Response>((_resolve, reject) => {
        asked++;
        init?.signal?.addEventListener('abort', () => reject(init.signal?.reason));
      });
    const got = await read(new Holdfast({ baseUrl: 'http://gateway.test', fetch }));
    return [got.slice(0, 32), asked];
  },
  async longPoll() {
    const sent: Request[] = [];
    const got = await answering(sent, cut, cut, async () => run({})).wait('s');
    return [got.status, sent.length];
  },
  async pinned() {
    const sent: Request[] = [];
    await answering(sent, async () => run({ done: false }), async () => run({})).wait('s');
    return sent.map((r) => new URL(r.url).searchParams.get('runId'));
  },
  async keys() {
    const keys: number[] = [];
    for (const requestKey of [undefined, '', 'own']) {
      const sent: Request[] = [];
      await answering(sent, cut, async () => ({})).start({ message: 'hi', requestKey } as { message: string });
      const [first, second] = await Promise.all(sent.map(async (r) => ((await r.json()) as { requestKey?: string }).requestKey));
      keys.push(first === second ? (first ?? '').length : -1);
    }
    return keys;
  },
  async interrupted() {
    const holdfast = answering([], async () => ({ sessionId: 's', runId: 'r1' }), async () => run({ status: 'interrupted' }));
    return holdfast.ask('hi').catch((error) => error instanceof RunFailedError && error.code);
  },
};

const results = await Promise.all(Object.entries(scenarios).map(async ([name, play]) => [name, await play()]));
console.log(JSON.stringify(Object.fromEntries(results)));
process.exit(); // scripts of abandoned connections still wait
