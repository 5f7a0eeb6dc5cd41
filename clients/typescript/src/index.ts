/**
 * The client of Holdfast. `Holdfast.http` has every route, typed by the gateway's OpenAPI document; the other
 * methods add what a description cannot: waiting, pages, and streams that survive a broken connection.
 */
import createClient, { type Client } from 'openapi-fetch';
import { Calls } from './calls.js';
import { HoldfastError, RunFailedError } from './errors.js';
import { events, type Frame, type ServerEvent } from './events.js';
import { Files } from './files.js';
import { Retry } from './retry.js';
import type { components, paths } from './schema.js';

export { Calls, type ApprovalName, type CallFilter, type CallName, type Submitted } from './calls.js';
export { HoldfastError, RunFailedError } from './errors.js';
export { Files, type Uploaded } from './files.js';
export type { Chunk, Frame } from './events.js';
export type { components, paths } from './schema.js';

type Schemas = components['schemas'];
export type Session = Schemas['Session'];
export type Run = Schemas['Run'];
export type RunResult = Schemas['RunResult'];
export type PendingCall = Schemas['PendingCall'];
/** A message as useChat has it. */
export type UIMessage = Schemas['UIMessage'];
export type UsageRollup = Schemas['UsageRollup'];
export type UsageQuery = NonNullable<paths['/usage/query']['get']['parameters']['query']>;
export type StartRequest = Schemas['StartRequest'];
/** What `setStatus` did: the new version, or the status and the version of a session that was not as expected. */
export type StatusAnswer = Schemas['StatusSet'] | Schemas['StatusConflict'];
export type SessionFilter = Omit<NonNullable<paths['/sessions']['get']['parameters']['query']>, 'cursor' | 'offset'>;

/** `limit` is the size of a page. */
export type MessageFilter = Omit<NonNullable<paths['/messages']['get']['parameters']['query']>, 'sessionId' | 'offset'>;

export interface Options {
  /** The gateway's address, such as https://agents.example.com. */
  baseUrl: string;
  apiKey?: string | undefined;
  fetch?: typeof globalThis.fetch;
  /** How long an outage may last before a call fails, in milliseconds. */
  patience?: number;
  /** How long a stream may be silent before it is opened again, in milliseconds. The gateway sends a comment every 15 s. */
  silence?: number;
}

export interface Answer {
  /** The output, if it is a text; else its JSON. */
  text: string;
  output: unknown;
  run: RunResult;
  /** The calls that the run waits for; see `calls`. */
  pendingCalls: PendingCall[];
}

export interface StreamRequest {
  sessionId: string;
  /** One run alone; the whole session if missing. */
  runId?: string;
  /** Everything after this sequence. */
  fromSequence?: number;
  /** false leaves out the sessions of sub-agents. */
  family?: boolean;
  signal?: AbortSignal;
}

/** waitMs is how long one request waits for the end of a run. */
const waitMs = 25_000;
/** steadyMs is how long a quiet connection lasts before it counts as a success. */
const steadyMs = 10_000;
/** notBegun is the cause of a stream without a response. The server cannot refuse a request that the browser holds back. */
const notBegun =
  'The stream has not begun. Over HTTP/1.1 a browser opens six connections to a host, and more streams wait for one to end: serve the gateway over HTTP/2.';

export class Holdfast {
  /** All routes. An error is a value here; see `unwrap`. */
  readonly http: Client<paths>;
  readonly sessions: Sessions;
  readonly calls: Calls;
  readonly files: Files;
  readonly #options: Required<Omit<Options, 'apiKey'>>;
  readonly #headers: Record<string, string>;

  constructor(options: Options) {
    this.#options = {
      baseUrl: options.baseUrl.replace(/\/+$/, ''),
      fetch: options.fetch ?? ((...call) => globalThis.fetch(...call)),
      patience: options.patience ?? 30_000,
      silence: options.silence ?? 60_000,
    };
    this.#headers = { Accept: 'application/json' };
    if (options.apiKey) this.#headers.Authorization = `Bearer ${options.apiKey}`;
    this.http = createClient<paths>({ baseUrl: this.#options.baseUrl, headers: this.#headers, fetch: (request) => this.#options.fetch(request) });
    this.sessions = new Sessions(this);
    this.calls = new Calls(this);
    this.files = new Files(this);
  }

  /** start begins the next run of a session. It is repeated after a broken connection, and starts one run only. */
  async start(request: StartRequest, signal?: AbortSignal): Promise<Schemas['StartResponse']> {
    const body = { ...request, requestKey: request.requestKey || crypto.randomUUID(), sessionId: request.sessionId || crypto.randomUUID() };
    return this.retry(() => this.http.POST('/start', { body, signal: signal ?? null }), signal);
  }

  /** wait returns a run that has ended or waits for a client; without a `runId`, the newest run at the time of the call. */
  async wait(sessionId: string, options: { runId?: string; signal?: AbortSignal } = {}): Promise<RunResult> {
    const query: { sessionId: string; wait: number; runId?: string } = { sessionId, wait: waitMs };
    if (options.runId) query.runId = options.runId;
    for (;;) {
      const run = await this.retry(() => this.http.GET('/result', { params: { query }, signal: options.signal ?? null }), options.signal);
      if (run.done) return run;
      query.runId = run.runId;
    }
  }

  /** ask sends a message and returns the answer. RunFailedError: the run failed or was interrupted. */
  async ask(request: string | StartRequest, signal?: AbortSignal): Promise<Answer> {
    const started = await this.start(typeof request === 'string' ? { message: request } : request, signal);
    const run = await this.wait(started.sessionId, { runId: started.runId, ...(signal ? { signal } : {}) });
    if (run.status === 'failed' || run.status === 'interrupted') throw new RunFailedError(run);
    const output = run.output ?? '';
    return { text: typeof output === 'string' ? output : JSON.stringify(output), output, run, pendingCalls: run.pendingCalls };
  }

  /**
   * stream yields the frames of a session, the last one being `end` or `fail`. After a broken connection it continues
   * behind the last frame, so each frame comes once. The frames of a sub-agent begin again, behind a `rewound`.
   */
  async *stream(request: StreamRequest): AsyncGenerator<Frame, void, void> {
    const retry = new Retry(this.#options.patience, request.signal);
    let cursor = request.fromSequence ?? 0;
    let caughtUp = false;
    for (;;) {
      try {
        const opened = Date.now();
        for await (const event of this.#connection(request, cursor)) {
          const frame = event && ({ type: event.name, ...JSON.parse(event.data) } as Frame);
          // A connection that breaks again and again still sends its first comment, caught-up, and the frames of sub-agents.
          if ((event?.id && frame?.type !== 'caught-up') || Date.now() - opened > steadyMs) retry.succeeded();
          if (!frame) continue;
          cursor = event.id ? Number(event.id) : cursor;
          if (frame.type !== 'caught-up' || !caughtUp) yield frame;
          caughtUp ||= frame.type === 'caught-up';
          if (frame.type === 'end' || frame.type === 'fail') return;
        }
        await retry.failed(new Error('The stream ended without a last frame.'));
      } catch (error) {
        await retry.failed(error);
      }
    }
  }

  /** connection yields the events of one connection. A comment is undefined. */
  async *#connection(request: StreamRequest, cursor: number): AsyncGenerator<ServerEvent | undefined> {
    const silent = new AbortController();
    const signal = request.signal ? AbortSignal.any([request.signal, silent.signal]) : silent.signal;
    const query = new URLSearchParams({ sessionId: request.sessionId, fromSequence: String(cursor) });
    if (request.runId) query.set('runId', request.runId);
    if (request.family === false) query.set('family', 'false');
    let begun = false;
    const give = () => setTimeout(() => silent.abort(new Error(begun ? 'The stream is silent.' : notBegun)), this.#options.silence);
    let timer = give();
    try {
      const response = await this.#options.fetch(`${this.#options.baseUrl}/sse?${query}`, { headers: this.#headers, signal });
      begun = true;
      if (!response.ok || !response.body) throw new HoldfastError(response.status, await response.json().catch(() => ({})));
      for await (const event of events(response.body)) {
        clearTimeout(timer); // a consumer may take its time
        yield event;
        timer = give();
      }
    } finally {
      clearTimeout(timer);
      silent.abort();
    }
  }

  /** usage sums the usage of sessions, in buckets of `bucketMs`. */
  async usage(query: UsageQuery = {}, signal?: AbortSignal): Promise<Schemas['UsageBucket'][]> {
    return (await this.retry(() => this.http.GET('/usage/query', { params: { query }, signal: signal ?? null }), signal)).buckets;
  }

  /** retry repeats a request that changes nothing twice, while the gateway is away. */
  async retry<T>(call: () => Promise<{ data?: T; error?: unknown; response: Response }>, signal?: AbortSignal): Promise<T> {
    const retry = new Retry(this.#options.patience, signal);
    for (;;) {
      try {
        return unwrap(await call());
      } catch (error) {
        await retry.failed(error);
      }
    }
  }
}

/** unwrap returns the data of an answer of `http`, and throws HoldfastError for a refusal. */
export function unwrap<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.response.ok) return answer.data as T;
  const body = answer.error;
  throw new HoldfastError(answer.response.status, typeof body === 'object' && body !== null ? body : {});
}

/** Sessions lists, changes and deletes sessions. */
export class Sessions {
  constructor(readonly client: Holdfast) {}

  /** list yields all sessions that meet the filter, newest first. It loads pages as they are needed. */
  async *list(filter: SessionFilter = {}, signal?: AbortSignal): AsyncGenerator<Session, void, void> {
    for (let cursor = ''; ; ) {
      const query = cursor ? { ...filter, cursor } : filter;
      const page = await this.client.retry(() => this.client.http.GET('/sessions', { params: { query }, signal: signal ?? null }), signal);
      yield* page.sessions;
      if (!page.nextCursor) return;
      cursor = page.nextCursor;
    }
  }

  async get(id: string): Promise<Schemas['GetSessionResponse']> {
    return this.client.retry(() => this.client.http.GET('/sessions/{id}', { params: { path: { id } } }));
  }

  /** messages yields the conversation from its beginning, as messages of useChat. It loads pages as they are needed. */
  async *messages(id: string, filter: MessageFilter = {}, signal?: AbortSignal): AsyncGenerator<UIMessage, void, void> {
    for (let offset = 0; ; ) {
      const query = { ...filter, sessionId: id, offset };
      const page = await this.client.retry(() => this.client.http.GET('/messages', { params: { query }, signal: signal ?? null }), signal);
      yield* page.messages;
      if (!page.hasMore) return;
      offset = page.offset + page.limit;
    }
  }

  /** runs yields the runs of a session, newest first. It loads pages as they are needed. */
  async *runs(id: string, signal?: AbortSignal): AsyncGenerator<Run, void, void> {
    for (let beforeTurn = 0; ; ) {
      const query = { sessionId: id, beforeTurn, limit: 200 };
      const page = await this.client.retry(() => this.client.http.GET('/runs', { params: { query }, signal: signal ?? null }), signal);
      yield* page.runs;
      const last = page.runs.at(-1);
      if (!page.hasMore || !last) return;
      beforeTurn = last.turn;
    }
  }

  /** usage sums the usage of a session, or of one of its runs. */
  async usage(id: string, options: { runId?: string } = {}): Promise<UsageRollup> {
    const query = { ...options, sessionId: id, mode: 'rollup' as const };
    return (await this.client.retry(() => this.client.http.GET('/usage', { params: { query } }))) as UsageRollup;
  }

  async update(id: string, body: Schemas['UpdateSessionRequest']): Promise<Schemas['UpdateSessionResponse']> {
    return unwrap(await this.client.http.PATCH('/sessions/{id}', { params: { path: { id } }, body }));
  }

  /**
   * mergeState writes keys of the custom state, in order, for a server with the scope operate. The next run reads them.
   * After a broken connection, a repetition appends again, unless `expectedVersion` refuses it.
   */
  async mergeState(id: string, body: Schemas['MergeStateRequest']): Promise<Schemas['MergeStateResponse']> {
    return unwrap(await this.client.http.PATCH('/sessions/{id}/state', { params: { path: { id } }, body }));
  }

  /** setStatus sets the status of a session if it is as expected; `ok` tells. It needs the scope operate. */
  async setStatus(id: string, body: Schemas['SetStatusRequest']): Promise<StatusAnswer> {
    return unwrap(await this.client.http.PATCH('/sessions/{id}/status', { params: { path: { id } }, body }));
  }

  /** delete removes a session and all sessions below it. It returns how many. */
  async delete(id: string): Promise<number> {
    return unwrap(await this.client.http.DELETE('/sessions/{id}', { params: { path: { id } } })).deleted;
  }

  /** branch creates a session from a checkpoint of another. */
  async branch(body: Schemas['BranchRequest']): Promise<Session> {
    const answer = unwrap(await this.client.http.POST('/branch', { body }));
    if (!answer.session) throw new Error('The gateway returned no session.');
    return answer.session;
  }
}
