import type { Holdfast } from './index.js';
import type { components, paths } from './schema.js';

type Schemas = components['schemas'];
export type CallFilter = Omit<NonNullable<paths['/calls']['get']['parameters']['query']>, 'cursor'>;
/** What became of an answer: see "Answering calls" in docs/clients.md. */
export type Submitted = Schemas['Submitted'];

/** CallName names a call that waits. A `PendingCall` has these fields. */
export interface CallName {
  /** The session that waits, or any session above it. */
  sessionId: string;
  toolCallId: string;
}

/** ApprovalName names a call that waits for an approval. */
export interface ApprovalName extends CallName {
  approvalId: string;
}

/**
 * Calls lists and answers the calls that wait for a client or a human. The first answer is final; a repetition changes
 * nothing.
 */
export class Calls {
  constructor(readonly client: Holdfast) {}

  /** list yields the waiting calls of all sessions, oldest first. It loads pages as they are needed. */
  async *list(filter: CallFilter = {}, signal?: AbortSignal): AsyncGenerator<Schemas['PendingCall'], void, void> {
    for (let cursor = ''; ; ) {
      const query = cursor ? { ...filter, cursor } : filter;
      const page = await this.client.retry(
        () => this.client.http.GET('/calls', { params: { query }, signal: signal ?? null }),
        signal,
      );
      yield* page.calls;
      if (!page.nextCursor) return;
      cursor = page.nextCursor;
    }
  }

  /** approve lets a call run. It needs the scope approve. */
  async approve(call: ApprovalName, reason?: string): Promise<Submitted> {
    return this.#decide(call, true, reason);
  }

  /** deny refuses a call: the model reads the reason. */
  async deny(call: ApprovalName, reason?: string): Promise<Submitted> {
    return this.#decide(call, false, reason);
  }

  /** answer gives the result of a client tool: any JSON. */
  async answer(call: CallName, result: unknown): Promise<Submitted> {
    return this.#submit(call, { result: result ?? null });
  }

  /** fail says that a call did not happen, and why: the model reads it. For client tools and approvals. */
  async fail(call: CallName, error: string): Promise<Submitted> {
    return this.#submit(call, { error });
  }

  #decide(call: ApprovalName, approved: boolean, reason: string | undefined): Promise<Submitted> {
    const { approvalId } = call;
    return this.#submit(call, {
      kind: 'approval-response',
      approvalId,
      approved,
      ...(reason === undefined ? {} : { reason }),
    });
  }

  #submit({ sessionId, toolCallId }: CallName, answer: Omit<Schemas['Submission'], 'toolCallId'>): Promise<Submitted> {
    return this.client.retry(() =>
      this.client.http.POST('/submit-tool-result', { body: { sessionId, toolCallId, ...answer } }),
    );
  }
}
