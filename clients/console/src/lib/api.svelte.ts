import { Holdfast, HoldfastError, unwrap, type components } from '@holdfast/sdk';

export type Schemas = components['schemas'];
export type Session = Schemas['Session'];
export type Run = Schemas['Run'];
export type PendingCall = Schemas['PendingCall'];
export type Details = Schemas['GetSessionResponse'];

/** The chat page uses the same key, so a login holds for both pages of a tab. */
const keyName = 'holdfast-api-key';

/** Problem is an error as the console shows it: a sentence and a stable code. */
export interface Problem {
  sentence: string;
  code: string;
  detail?: string | undefined;
  status: number;
}

type HTTP = Holdfast['http'];
type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

class API {
  #key = sessionStorage.getItem(keyName) ?? '';
  client = $state.raw(this.#connect());
  /** The gateway refused the credential, or its absence. */
  locked = $state.raw<Problem | undefined>(undefined);
  hasKey = $state(this.#key !== '');

  #connect(): Holdfast {
    return new Holdfast({ baseUrl: location.origin, ...(this.#key ? { apiKey: this.#key } : {}) });
  }

  login(key: string): void {
    this.#key = key;
    if (key) sessionStorage.setItem(keyName, key);
    else sessionStorage.removeItem(keyName);
    this.hasKey = key !== '';
    this.client = this.#connect();
    this.locked = undefined;
  }

  /** lock leads back to the login. */
  lock(problem: Problem): void {
    this.locked = problem;
  }

  /** call performs one request and throws a Problem if it fails. */
  async call<T>(request: (http: HTTP) => Answer<T>): Promise<T> {
    try {
      return unwrap(await request(this.client.http));
    } catch (error) {
      throw this.problem(error);
    }
  }

  /** rpc calls a method of AgentService over Connect with JSON. */
  async rpc<T>(method: string, body: object, signal?: AbortSignal): Promise<T> {
    try {
      const headers: Record<string, string> = { 'content-type': 'application/json' };
      if (this.#key) headers.authorization = `Bearer ${this.#key}`;
      const response = await fetch(`/holdfast.agent.v1.AgentService/${method}`, { method: 'POST', headers, body: JSON.stringify(body), signal: signal ?? null });
      const answer = await response.json();
      if (!response.ok) throw new HoldfastError(response.status, { error: answer.message, code: reason(answer) });
      return answer as T;
    } catch (error) {
      throw this.problem(error);
    }
  }

  /** problem converts an error, and locks the console after a 401. An aborted request stays an AbortError. */
  problem(error: unknown): unknown {
    if (isAbort(error) || isProblem(error)) return error;
    if (error instanceof HoldfastError) {
      const problem = { sentence: error.message, code: error.code, detail: error.detail, status: error.status };
      if (error.status === 401) this.lock(problem);
      return problem;
    }
    return { sentence: 'The gateway cannot be reached.', code: 'UNREACHABLE', detail: error instanceof Error ? error.message : undefined, status: 0 };
  }
}

/** reason returns the stable reason of a Connect error. */
function reason(answer: { code?: string; details?: { debug?: { reason?: string } }[] }): string {
  return answer.details?.find((d) => d.debug?.reason)?.debug?.reason ?? (answer.code ?? 'unknown').toUpperCase();
}

export const api = new API();

function isProblem(error: unknown): error is Problem {
  return typeof error === 'object' && error !== null && 'sentence' in error;
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}
