import { untrack } from 'svelte';
import { isAbort, type Problem } from './api.svelte';

/** Load is what a page loads: nothing yet, a value or a problem. A later problem keeps the former value. */
export class Load<T> {
  value = $state.raw<T | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  loading = $state(true);
  #running = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort = new AbortController();

  /** every is how often the value is loaded again while the page is visible, in milliseconds; 0 for never. */
  constructor(
    readonly load: (signal: AbortSignal) => Promise<T>,
    readonly every = 0,
  ) {}

  /** start loads the value, again and again, until the returned function is called. */
  start(): () => void {
    const wake = () => {
      if (!document.hidden) void this.refresh();
    };
    document.addEventListener('visibilitychange', wake);
    this.#abort = new AbortController();
    untrack(() => void this.refresh()); // an effect that starts it does not depend on what it reads
    return () => {
      document.removeEventListener('visibilitychange', wake);
      clearTimeout(this.#timer);
      this.#abort.abort();
    };
  }

  async refresh(): Promise<void> {
    const run = ++this.#running; // a later refresh replaces an earlier one
    const { signal } = this.#abort;
    clearTimeout(this.#timer);
    this.loading = true;
    try {
      const value = await this.load(signal);
      if (run !== this.#running) return;
      this.value = value;
      this.problem = undefined;
    } catch (error) {
      if (isAbort(error) || run !== this.#running) return;
      this.problem = error as Problem;
    }
    this.loading = false;
    if (this.every > 0 && !document.hidden && !signal.aborted) this.#timer = setTimeout(() => void this.refresh(), this.every);
  }
}

/** Action is a request that a person makes: busy, and its problem if it is refused. */
export class Action {
  busy = $state(false);
  problem = $state.raw<Problem | undefined>(undefined);

  /** run returns undefined after a problem, and while an earlier request runs. */
  async run<T>(request: () => Promise<T>): Promise<T | undefined> {
    if (this.busy) return undefined;
    this.busy = true;
    this.problem = undefined;
    try {
      return await request();
    } catch (error) {
      this.problem = error as Problem;
      return undefined;
    } finally {
      this.busy = false;
    }
  }
}
