import type { Answer, Holdfast, PendingCall, StartRequest } from '../index.js';

/** Chat is a conversation with an agent. */
export class Chat {
  #latest: Answer | undefined;

  constructor(
    readonly client: Holdfast,
    readonly agent: string,
    readonly sessionId: string,
    readonly request: Omit<StartRequest, 'message' | 'sessionId' | 'agentType'>,
  ) {}

  /** say sends a message and returns the answer, or what the run waits for. RunFailedError: the run has failed. */
  async say(message: string): Promise<Answer> {
    this.#latest = await this.client.ask({
      ...this.request,
      agentType: this.agent,
      sessionId: this.sessionId,
      message,
    });
    return this.#latest;
  }

  /** The calls that the conversation waits for, after say or an answer. */
  get pending(): readonly PendingCall[] {
    return this.#latest?.pendingCalls ?? [];
  }

  /** approve lets the call of a tool run, and returns as say does. */
  async approve(tool: string, reason?: string): Promise<Answer> {
    return this.#continue((await this.client.calls.approve(this.#find(tool), reason)).runId);
  }

  /** deny refuses the call of a tool, and returns as say does. */
  async deny(tool: string, reason?: string): Promise<Answer> {
    return this.#continue((await this.client.calls.deny(this.#find(tool), reason)).runId);
  }

  /** answer gives the result of a client tool, and returns as say does. */
  async answer(tool: string, result: unknown): Promise<Answer> {
    return this.#continue((await this.client.calls.answer(this.#find(tool), result)).runId);
  }

  /** state returns the custom state. */
  async state(): Promise<Record<string, unknown>> {
    const { session } = await this.client.sessions.get(this.sessionId);
    return (session?.customState ?? {}) as Record<string, unknown>;
  }

  /**
   * transcript returns the conversation, a line for each part: `user: TEXT`, `agent: TEXT`, `call: TOOL ARGUMENTS`,
   * then `result: TOOL RESULT`,
   * `error: TOOL TEXT` or `waits: TOOL`.
   */
  async transcript(): Promise<string[]> {
    const lines: string[] = [];
    for await (const { role, parts } of this.client.sessions.messages(this.sessionId)) {
      for (const part of parts as Record<string, any>[]) {
        if (part.type === 'text') lines.push(`${role === 'user' ? 'user' : 'agent'}: ${part.text}`);
        if (!part.toolCallId) continue;
        const tool = part.toolName ?? part.type.slice('tool-'.length);
        lines.push(`call: ${tool} ${JSON.stringify(part.input)}`);
        if (part.state === 'output-available') lines.push(`result: ${tool} ${JSON.stringify(part.output)}`);
        else if (part.state === 'output-error') lines.push(`error: ${tool} ${part.errorText}`);
        else if (part.state === 'output-denied') lines.push(`error: ${tool} denied`);
        else lines.push(`waits: ${tool}`);
      }
    }
    return lines;
  }

  #find(tool: string): PendingCall {
    const found = this.pending.find(({ toolName }) => toolName === tool);
    if (found) return found;
    const waiting = this.pending.map(({ toolName }) => toolName).join(', ');
    throw new Error(`No call of ${tool} waits. ${waiting ? `Waiting: ${waiting}.` : 'Nothing waits.'}`);
  }

  /** continue waits for the run that continues the conversation; without one, other calls still wait. */
  async #continue(runId: string | undefined): Promise<Answer> {
    const run = await this.client.wait(this.sessionId, runId ? { runId } : {});
    const output = run.output ?? '';
    this.#latest = {
      text: typeof output === 'string' ? output : JSON.stringify(output),
      output,
      run,
      pendingCalls: run.pendingCalls,
    };
    return this.#latest;
  }
}
