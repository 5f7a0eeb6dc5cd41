import { untrack } from 'svelte';
import type { Chunk } from '@holdfast/sdk';
import { api, isAbort, type Details, type Problem } from './api.svelte';
import { executes } from './status';

/** How often the session is read again: while nothing executes, and at most while something does. */
const quietInterval = 3000;
const busyInterval = 400;
/** How long chunks are collected before they are shown. */
const drawInterval = 50;
const retryInterval = 2000;
/** A stream that lasts less is not opened again at once. */
const briefly = 1000;

/** LiveSession follows a session: its properties by requests, its step in flight by the native stream. */
export class LiveSession {
  details = $state.raw<Details | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  /** The chunks that the stored conversation does not have yet. */
  chunks = $state.raw<Chunk[]>([]);
  /** How many attempts at the step in flight were discarded while the page was open. */
  discarded = $state(0);
  /** Incremented by each read of the session. */
  reads = $state(0);
  following = $state(false);

  #buffer: { sequence: number; chunk: Chunk }[] = [];
  #drawing: ReturnType<typeof setTimeout> | undefined;
  #reading: ReturnType<typeof setTimeout> | undefined;
  #waiting: ReturnType<typeof setTimeout> | undefined;
  #abort = new AbortController();

  constructor(readonly id: string) {}

  start(): () => void {
    untrack(() => void this.#follow());
    return () => {
      this.#abort.abort();
      clearTimeout(this.#drawing);
      clearTimeout(this.#reading);
      clearTimeout(this.#waiting);
    };
  }

  /** refresh reads the session again. It throws a Problem. */
  async refresh(): Promise<Details> {
    const { signal } = this.#abort;
    const details = await api.call((http) => http.GET('/sessions/{id}', { params: { path: { id: this.id } }, signal }));
    const stored = details.session?.stepCount ?? 0;
    if (this.#buffer.some((c) => c.chunk.step <= stored)) this.#keep((c) => c.chunk.step > stored);
    this.details = details;
    this.problem = undefined;
    this.reads++;
    clearTimeout(this.#waiting);
    if (details.run?.status === 'waiting') this.#waiting = setTimeout(() => this.#readAgain(), quietInterval); // no chunk tells why a run waits
    return details;
  }

  async #follow(): Promise<void> {
    const { signal } = this.#abort;
    let brief = false; // the stream has ended at once: the session moves no more, whatever its status says
    while (!signal.aborted) {
      try {
        const details = await this.refresh();
        const moves = executes(details.run?.status ?? '') || executes(details.session?.status ?? '');
        if (moves && !brief) {
          const began = Date.now();
          await this.#stream(details);
          brief = Date.now() - began < briefly;
        } else {
          brief = false;
          await this.#pause(quietInterval);
        }
      } catch (error) {
        if (isAbort(error) || signal.aborted) return;
        this.problem = api.problem(error) as Problem;
        if (this.problem.status === 404 || this.problem.status === 401) return;
        await this.#pause(retryInterval);
      }
    }
  }

  async #stream(details: Details): Promise<void> {
    this.#keep(() => false);
    this.discarded = 0;
    this.following = true;
    try {
      const fromSequence = details.session?.streamSequence ?? 0;
      for await (const frame of api.client.stream({ sessionId: this.id, fromSequence, family: false, signal: this.#abort.signal })) {
        if (frame.type === 'chunk') this.#add(frame.sequence, frame.chunk);
        else if (frame.type === 'rewound') this.#rewind(frame.at);
      }
    } finally {
      this.following = false;
    }
  }

  #add(sequence: number, chunk: Chunk): void {
    if (chunk.type === 'step_started') this.discarded = this.#buffer.some((c) => c.chunk.step === chunk.step) ? this.discarded : 0;
    this.#buffer.push({ sequence, chunk });
    this.#drawing ??= setTimeout(() => this.#draw(), drawInterval);
    if (chunk.type.startsWith('run_') || chunk.type === 'step_committed' || chunk.type === 'error') this.#readSoon();
  }

  #rewind(at: number): void {
    const attempts = this.#buffer.filter((c) => c.sequence > at && c.chunk.type === 'step_started').length;
    this.#keep((c) => c.sequence <= at);
    this.discarded += attempts;
  }

  #keep(which: (c: { sequence: number; chunk: Chunk }) => boolean): void {
    this.#buffer = this.#buffer.filter(which);
    this.#draw();
  }

  #draw(): void {
    clearTimeout(this.#drawing);
    this.#drawing = undefined;
    this.chunks = this.#buffer.map((c) => c.chunk);
  }

  #readSoon(): void {
    this.#reading ??= setTimeout(() => {
      this.#reading = undefined;
      this.#readAgain();
    }, busyInterval);
  }

  #readAgain(): void {
    this.refresh().catch(() => undefined); // the stream reports a lasting problem
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const { signal } = this.#abort;
      const timer = setTimeout(done, ms);
      function done() {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      }
      signal.addEventListener('abort', done);
    });
  }
}
