import type { components } from './schema.js';

type Body = components['schemas']['Error'];
type Run = components['schemas']['RunResult'];

/** HoldfastError is a refused request. `code` is stable; `detail` is for developers. */
export class HoldfastError extends Error {
  override readonly name = 'HoldfastError';
  readonly code: string;
  readonly detail: string | undefined;
  readonly retryable: boolean;

  constructor(
    /** status is the HTTP status. */
    readonly status: number,
    /** body has facts for programs: kind, limitBytes, sizeBytes, currentStatus, currentRunId. */
    readonly body: Partial<Body>,
  ) {
    super(body.error ?? `The gateway answered ${status}.`);
    this.code = body.code ?? 'UNKNOWN';
    this.detail = body.detail;
    this.retryable = body.retryable ?? (status === 429 || status >= 502);
  }
}

/** RunFailedError is a run that has failed, or was interrupted: then its `code` is RUN_INTERRUPTED. */
export class RunFailedError extends Error {
  override readonly name = 'RunFailedError';
  readonly code: string | undefined;

  constructor(readonly run: Run) {
    super(run.failure?.error ?? `The run is ${run.status}.`);
    this.code = run.status === 'interrupted' ? 'RUN_INTERRUPTED' : run.failure?.code;
  }
}
