import type { Message, ToolCall, ToolResult } from './messages.js';
import type { Store, StoreWrites } from './store.js';
import type { StateOp } from './wire.js';

/**
 * Context is what every function of an agent receives. The runtime fills it; neither the model nor a user can change
 * it.
 */
export interface Context<State = any> {
  /** The agent's name. */
  readonly agent: string;
  readonly tenant: string;
  /** The user of the session; null without one. */
  readonly user: { readonly id: string } | null;
  readonly session: {
    readonly id: string;
    /** The session of the agent that called this one; null without one. */
    readonly parentId: string | null;
    readonly tags: readonly string[];
    readonly metadata: Readonly<Record<string, string>>;
  };
  readonly run: { readonly id: string; readonly turn: number };
  /** The step of the session; 0 outside of steps. */
  readonly step: number;
  /** When the runtime ends the call, by its clock. */
  readonly deadline: Date | undefined;
  /**
   * Aborts when the run was stopped, the connection is lost, or the deadline has passed. What the call does afterwards
   * does not count.
   */
  readonly signal: AbortSignal;
  /** The custom state of the session. */
  readonly state: State;
  /** W3C Trace Context of the call, for spans of your own. */
  readonly traceparent: string | undefined;
  /** Logs with the ids of the call. */
  readonly log: Log;
}

/** Log is a log with levels, such as `console`. */
export interface Log {
  debug(message: string, fields?: object): void;
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

/** Writes are what a tool or a hook does beside its result. The runtime stores them with the step, or not at all. */
export interface Writes<State = any> extends Context<State> {
  /**
   * update changes the state, and sends the changes. If change throws, nothing is changed. Assignments to `state` are
   * sent before
   * the result; a failed call writes nothing.
   */
  update(change: (state: State) => void): void;
  /**
   * emit sends an event to the readers of the session; useChat has it as a part `data-NAME`. With an id it replaces
   * the earlier event
   * of the same name and id. A transient event is not stored.
   */
  emit(name: string, data: unknown, options?: { id?: string; transient?: boolean }): void;
  /** metadata merges values into the metadata of the assistant message. */
  metadata(values: Record<string, unknown>): void;
  /** usage adds a value to the usage of the session, which is summed by kind and name. */
  usage(kind: string, name: string, value: number): void;
}

/**
 * ContextRow is a message to the model that users do not see. A row with a key is added only if it says something new.
 * Rows of the kind tools disable and enable tools by their names; their text may be missing.
 */
export type ContextRow =
  | { kind: 'instruction' | 'notice' | 'memory'; text: string; key?: string }
  | { kind: 'tools'; text?: string; key?: string; disable?: string[]; enable?: string[] };

/** StepView is what stepContext receives before a model call. */
export interface StepView<State = any> extends Writes<State> {
  /** The run's replies so far. */
  readonly steps: number;
  readonly model: string;
  readonly messages: readonly Message[];
  /** The names of the tools that the model is offered. */
  readonly tools: readonly string[];
}

/** CallIdentity is a call of a tool. */
export interface CallIdentity {
  readonly id: string;
  /** The same for all attempts at this call, and unique among calls. Pass it on to other services. */
  readonly idempotencyKey: string;
  /** Counts the requests for this call by one executor, from 1. */
  readonly attempt: number;
}

/** Call is one execution of a tool. */
export interface Call<State = any> extends Writes<State>, CallIdentity {
  /** The private storage of the session. */
  readonly store: Store;
  /** addContext adds rows of context behind the results of the step. They are dropped if the call fails. */
  addContext(...rows: ContextRow[]): void;
}

/** ApprovalCall is a call that may need an approval. */
export interface ApprovalCall<Input = any, State = any> extends Context<State>, CallIdentity {
  readonly input: Input;
}

/** MethodCall is a call of a method by a client, outside of runs. Its writes are stored when they are sent. */
export interface MethodCall<State = any> extends Omit<Context<State>, 'run' | 'step'> {
  /** As in a tool; without update, changes of the state are sent before the result. */
  update(change: (state: State) => void): void;
  /** The private storage of the session, which a method can only write. It is written when the method succeeds. */
  readonly store: StoreWrites;
  /** send sends a value to the client before the result. */
  send(value: unknown): void;
}

/** Ending is the end of a run that a guard checks. */
export interface Ending<Output = any, State = any> extends Context<State> {
  /** The steps of the run, including the last one. */
  readonly steps: number;
  /** The output; the text of a reply for an agent without an output schema. */
  readonly output: Output;
  /** The model's message. */
  readonly reply: Message;
}

/**
 * Verdict of a guard; null and undefined accept the end. `replace` is for onOutput, and is not checked against the
 * schema.
 */
export type Verdict<Output = any> =
  | { revise: string }
  | { fail: string }
  | { replace: Output }
  | null
  | undefined
  | void;

/** Progress is a run after a step that does not end it. */
export interface Progress<State = any> extends Context<State> {
  readonly steps: number;
  readonly reply: Message;
  readonly results: readonly ToolResult[];
}

/** Older has the messages that compact summarizes. */
export interface Older<State = any> extends Context<State> {
  readonly messages: readonly Message[];
}

/** ModelRequest is a request to a model. */
export interface ModelRequest {
  readonly model: string;
  readonly attempt: number;
  readonly system: string;
  readonly messages: readonly Message[];
  /** The names of the tools. */
  readonly tools: readonly string[];
}

type Awaitable<T> = T | Promise<T>;
type Hook<State, Fields = unknown> = (hook: Writes<State> & Fields) => Awaitable<void>;

/**
 * Hooks are called during a run, and again after a crash. An error is logged and has no effect, except in beforeRun,
 * where it fails the
 * run. Changes of the state are committed with the step; those of afterRun are dropped.
 */
export interface Hooks<State = any> {
  /** First, when an executor claims the run. */
  beforeRun?: Hook<State>;
  /** Before the first step of a new run. */
  onStart?: Hook<State>;
  /** Before the first step of a run that continues another one. */
  onResume?: Hook<State>;
  beforeModel?: Hook<State, ModelRequest>;
  afterModel?: Hook<
    State,
    { readonly model: string; readonly attempt: number; readonly reply: Message; readonly error: string | null }
  >;
  beforeTool?: Hook<State, { readonly toolCall: ToolCall }>;
  afterTool?: Hook<State, { readonly toolCall: ToolCall; readonly toolResult: ToolResult }>;
  /** Before the commit that gives a sub-agent its task. */
  beforeSubAgent?: Hook<State, { readonly toolCall: ToolCall; readonly subAgent: SubAgentRef }>;
  /** When the run takes in the answer of a sub-agent. */
  afterSubAgent?: Hook<
    State,
    { readonly toolCall: ToolCall; readonly subAgent: SubAgentRef; readonly toolResult: ToolResult }
  >;
  /** The writes of one tool call, or of an earlier hook. */
  onStateChange?: Hook<State, { readonly ops: readonly StateOp[] }>;
  /** Each message before the step appends it. */
  onMessage?: Hook<State, { readonly message: Message }>;
  /** After the end of the run is committed; at most once. */
  afterRun?: Hook<State, RunEnd>;
}

/** SubAgentRef is the sub-agent of a call. */
export interface SubAgentRef {
  readonly agentType: string;
  readonly sessionId: string;
}

/** RunEnd is the end of a run. */
export interface RunEnd {
  readonly status: string;
  readonly output: unknown;
  readonly error: string | null;
  readonly code: string | null;
  readonly steps: number;
  /** Since the first claim. */
  readonly durationMs: number;
}

/** Guard can reject the end of a run. An error fails the run. */
export interface Guard<Output = any, State = any> {
  /** Checks an output that fits the output schema. */
  onOutput?: (ending: Ending<Output, State>) => Awaitable<Verdict<Output>>;
  /** Checks the final text of an agent without an output schema. */
  onReply?: (ending: Ending<string, State>) => Awaitable<Verdict<never>>;
}

/**
 * Methods are functions that clients of /agents call by name, outside of runs: agent.call and agent.stub of the npm
 * package agents.
 */
export type Methods<State = any> = Record<string, (call: MethodCall<State>, ...args: any[]) => unknown>;
