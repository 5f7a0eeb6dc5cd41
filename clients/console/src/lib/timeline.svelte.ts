import type { Chunk } from '@holdfast/sdk';
import { SvelteMap } from 'svelte/reactivity';
import { api, isAbort, type Problem, type Run, type Schemas, type Session } from './api.svelte';
import { stepsOf, type Step } from './steps';

/** How many steps are loaded at once. */
const pageSteps = 40;
/** How many pages are kept, besides those that are shown. */
const keptPages = 20;
/** How many chunks are requested at a time: those of a page with one tool call a step, and some more. */
const historyLimit = 500;

type History = Schemas['HistoryPage'];

/**
 * Timeline is the steps of a run. It loads the pages that are looked at, from any place of the run. Sequences rise
 * with the steps, so it estimates the sequence of a step from those of the run's ends, and looks where it has arrived.
 */
export class Timeline {
  /** The number of the run's first step; 0 while it is unknown. */
  first = $state(0);
  problem = $state.raw<Problem | undefined>(undefined);
  /** Incremented when loaded pages become stale. */
  changes = $state(0);
  #pages = new SvelteMap<number, Map<number, Step>>();
  #shown = new Set<number>();
  #loading = new Set<number>();
  #stale = new Set<number>();
  #known = { count: 0, status: '' }; // of the run, when the pages were loaded
  #abort = new AbortController();

  constructor(
    readonly sessionId: string,
    readonly run: Run,
  ) {}

  async open(): Promise<void> {
    try {
      const page = await this.#history(this.run.startSequence, 1);
      const chunk = page.chunks[0]?.chunk as Chunk | undefined;
      if (chunk) this.first = chunk.type === 'step_started' ? chunk.step : chunk.step + 1;
    } catch (error) {
      this.#fail(error);
    }
  }

  close(): void {
    this.#abort.abort();
  }

  /** update makes the pages stale that were incomplete when the run had fewer steps, or had not ended. */
  update({ stepCount, status }: Run): void {
    const { count } = this.#known;
    if (stepCount === count && status === this.#known.status) return;
    for (const step of [count - 1, count]) this.#stale.add(this.#pageOf(this.first + step));
    this.#known = { count: stepCount, status };
    this.changes++;
  }

  /** forget makes the timeline load everything again. */
  forget(): void {
    this.#pages.clear();
    this.changes++;
  }

  #pageOf(step: number): number {
    return Math.floor((step - this.first) / pageSteps);
  }

  /** step returns a step; undefined if it is not loaded, null if the session has it no more. */
  step(number: number): Step | null | undefined {
    const page = this.#pages.get(this.#pageOf(number));
    return page ? (page.get(number) ?? null) : undefined;
  }

  /** show loads the steps of the ranges, both ends inclusive, as far as they are missing. */
  show(ranges: [first: number, last: number][], ends: { session: Session; run: Run }): void {
    this.#shown.clear();
    for (const [first, last] of ranges) {
      for (let page = this.#pageOf(first); page <= this.#pageOf(last); page++) this.#shown.add(page);
    }
    for (const page of this.#shown) {
      if ((this.#pages.has(page) && !this.#stale.has(page)) || this.#loading.has(page)) continue;
      this.#loading.add(page);
      void this.#load(page, ends).catch((error) => this.#fail(error)).finally(() => this.#loading.delete(page));
    }
  }

  #fail(error: unknown): void {
    if (!isAbort(error)) this.problem = error as Problem;
  }

  async #load(page: number, ends: { session: Session; run: Run }): Promise<void> {
    const first = this.first + page * pageSteps;
    this.#stale.delete(page);
    const chunks = await this.#chunks(first, first + pageSteps, ends);
    const steps = new Map(stepsOf(chunks).map((s) => [s.step, s]));
    const unseen = [...this.#pages.keys()].filter((p) => !this.#shown.has(p)); // in the order of loading
    for (const old of unseen.slice(0, Math.max(0, unseen.length - keptPages))) this.#pages.delete(old);
    this.#pages.set(page, steps);
    this.problem = undefined;
  }

  /** chunks returns the chunks of the steps from first to before. */
  async #chunks(first: number, before: number, ends: { session: Session; run: Run }): Promise<Chunk[]> {
    let page: History = await this.#begin(first, ends);
    const chunks: Chunk[] = [];
    for (;;) {
      for (const { chunk } of page.chunks as { chunk: Chunk }[]) {
        const step = chunk.type === 'run_started' || chunk.type === 'run_resumed' ? chunk.step + 1 : chunk.step;
        if (step >= before) return chunks;
        if (step >= first || (first === this.first && chunk.step >= first - 1)) chunks.push(chunk);
      }
      if (!page.hasMore) return chunks;
      page = await this.#history(page.nextSequence, historyLimit);
    }
  }

  /** begin returns a page of history that begins at the step or before. */
  async #begin(step: number, { session, run }: { session: Session; run: Run }): Promise<History> {
    const start = run.startSequence;
    const end = run.endSequence || session.streamSequence;
    const steps = Math.max(run.stepCount, 1);
    for (let back = 1; ; back *= 4) {
      const share = (step - this.first - back) / steps;
      if (share <= 0) return this.#history(start, historyLimit);
      const page = await this.#history(Math.floor(start + (end - start) * share), historyLimit);
      const chunk = page.chunks[0]?.chunk as Chunk | undefined;
      if (chunk && chunk.step < step) return page;
    }
  }

  #history(fromSequence: number, limit: number): Promise<History> {
    const query = { sessionId: this.sessionId, runId: this.run.runId, fromSequence, limit };
    return api.call((http) => http.GET('/history', { params: { query }, signal: this.#abort.signal }));
  }
}
