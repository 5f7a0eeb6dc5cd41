import { HoldfastError } from './errors.js';

const firstPause = 50;
const longestPause = 2_000;

/** Retry decides whether a failed call is repeated, and waits before. */
export class Retry {
  #pause = firstPause;
  #since: number | undefined; // the first failure of the outage

  constructor(
    readonly patience: number,
    readonly signal: AbortSignal | undefined,
  ) {}

  /** succeeded begins a new outage at the next failure. */
  succeeded(): void {
    this.#pause = firstPause;
    this.#since = undefined;
  }

  /** failed waits, or throws the error if a repetition is of no use. */
  async failed(error: unknown): Promise<void> {
    this.signal?.throwIfAborted();
    const refused = error instanceof HoldfastError && !error.retryable;
    this.#since ??= Date.now();
    if (refused || Date.now() - this.#since > this.patience) throw error;
    const pause = this.#pause * (0.5 + Math.random() / 2);
    this.#pause = Math.min(2 * this.#pause, longestPause);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, pause);
      const signal = this.signal;
      function done() {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      }
      signal?.addEventListener('abort', done);
    });
    this.signal?.throwIfAborted();
  }
}
