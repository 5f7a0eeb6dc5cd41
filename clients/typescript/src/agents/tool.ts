import type { Agent } from './agent.js';
import { checkDuration, checkFields, sourceOf } from './checks.js';
import type { ApprovalCall, Call } from './context.js';
import { describe, describeObject, type InputOf, type JSONSchema, type OutputOf, type Schema } from './schema.js';

/** Duration is a text such as 500ms, 30s, 5m or 1h30m. */
export type Duration = `${number}${'ms' | 's' | 'm' | 'h'}` | `${number}h${number}m` | `${number}m${number}s`;
type Awaitable<T> = T | Promise<T>;
/** AnySchema is the schema of a value that is not described. */
type AnySchema = Schema<any, any>;

/** Condition holds if all of its operators do: see Approval in docs/agents-yaml.md. */
export interface Condition {
  /** A value in the arguments, such as to.mail. */
  field?: string;
  /** A value in the custom state. */
  state?: string;
  equals?: unknown;
  notEquals?: unknown;
  greaterThan?: number;
  lessThan?: number;
  /** RE2. */
  matches?: string;
  exists?: boolean;
}

/** ApprovalRule says which calls wait for a human: by a rule that the runtime decides. */
export type ApprovalRule = boolean | 'always' | 'never' | { when: Condition[] };

interface Common {
  /** 1 to 64 characters of A-Z a-z 0-9 _ -. */
  name: string;
  /** What the tool does, for the model. */
  description: string;
  /** Asks the provider to keep to the input schema. */
  strict?: boolean;
  /** A successful call ends the run, with its result as the output. */
  finishWith?: boolean;
  /**
   * How long a client or a human has to answer; without an answer the call has a timeout result. No limit by default.
   */
  answerWithin?: Duration;
}

/** ToolOptions describe a tool whose calls your application runs. */
export interface ToolOptions<I extends Schema, O extends Schema, S extends Schema> extends Common {
  /** The arguments: an object. Calls whose arguments do not fit never reach execute. None by default. */
  input?: I;
  /** The result. A result that does not fit is a failed call. Any JSON by default. */
  output?: O;
  /** The state of the agent, for the type of `call.state`. */
  state?: S;
  /**
   * Which calls wait for a human: true, a rule, or a function. A function that fails means that the call waits. None
   * by default.
   */
  approval?: ApprovalRule | ((call: ApprovalCall<OutputOf<I>, OutputOf<S>>) => Awaitable<boolean>);
  /** Who may approve: every caller that reaches the session (default), or others than the one that started the run. */
  approvers?: 'any' | 'others';
  /**
   * A call whose outcome is unknown runs again with the same idempotency key. Without safe and readOnly, the model
   * learns that it is unknown.
   */
  safe?: boolean;
  /** Calls change nothing, so they may run again, and the runtime records nothing before the end of the step. */
  readOnly?: boolean;
  /**
   * Beginnings of the keys of the private store that `call.store` can read. Each request then carries their entries: at
   * most 16 prefixes, 1,000 keys and 1 MiB. None by default.
   */
  storeReads?: string[];
  /** How long a call may take. The executor's limit by default. */
  timeout?: Duration;
  /** execute runs a call. An error is a failed result for the model, and does not fail the run. */
  execute(input: OutputOf<I>, call: Call<OutputOf<S>>): Awaitable<InputOf<O>>;
}

/** ClientToolOptions describe a tool whose calls a client answers, for example the user's browser. */
export interface ClientToolOptions extends Common {
  /** The arguments: an object. None by default. */
  input?: Schema<any, any>;
  /** The answer. Any JSON by default. */
  output?: Schema<any, any>;
}

/** SubAgentOptions describe a tool whose calls another agent answers, each in a session of its own. */
export interface SubAgentOptions {
  /** What the agent does, for the model. The description of the agent by default. */
  description?: string;
  /** The arguments: an object. {"message": TEXT} by default. */
  input?: Schema<any, any>;
  output?: Schema<any, any>;
  /** From the call to the end of the sub-agent. No limit by default. */
  timeout?: Duration;
  strict?: boolean;
  finishWith?: boolean;
}

/** UsedTool is a built-in tool with other settings. */
export interface UsedTool {
  use: string;
  approval?: 'always' | 'never' | { when: Condition[] };
  approvers?: 'any' | 'others';
  answerWithin?: Duration;
  retry?: 'never' | 'safe';
  readOnly?: boolean;
  timeout?: Duration;
  strict?: boolean;
  finishWith?: boolean;
  setState?: Record<string, unknown>;
}

/** HTTPTool is a tool whose calls the executor makes as HTTP requests: see docs/agents-yaml.md. */
export interface HTTPTool extends Omit<UsedTool, 'use'> {
  name: string;
  description: string;
  inputSchema?: JSONSchema;
  outputSchema?: JSONSchema;
  http: { url: string; method?: string; [field: string]: unknown };
}

/** ToolDescription is a tool on the wire. */
export type ToolDescription = { readonly [field: string]: unknown };

/** Tool is what tool, clientTool and subAgent return. */
export class Tool {
  constructor(
    readonly name: string,
    readonly description: ToolDescription,
    readonly source: string,
    readonly functions: {
      readonly input?: Schema | undefined;
      readonly output?: Schema | undefined;
      readonly execute?: (input: never, call: Call) => unknown;
      readonly approval?: ((call: ApprovalCall) => Awaitable<boolean>) | undefined;
    } = {},
    readonly state?: Schema | undefined,
  ) {}
}

/** ToolEntry is what an agent lists: a tool, the name of a built-in tool, or a description as in agents files. */
export type ToolEntry = Tool | string | UsedTool | HTTPTool;

const common = ['name', 'description', 'strict', 'finishWith', 'answerWithin', 'input', 'output'];
const own = [...common, 'state', 'approval', 'approvers', 'safe', 'readOnly', 'storeReads', 'timeout', 'execute'];
const toolName = /^[A-Za-z0-9_-]{1,64}$/;
const reserved = /^(?:__finish__$|subagent__|companion__)/;

/** tool defines a tool whose calls your application runs. TypeError for mistakes. */
export function tool<I extends Schema = AnySchema, O extends Schema = AnySchema, S extends Schema = AnySchema>(
  options: ToolOptions<I, O, S>,
): Tool {
  const what = `The tool ${JSON.stringify(options.name)}`;
  checkFields(options, own, what);
  checkCommon(options, what);
  const { input, output, approval, execute } = options;
  if (typeof execute !== 'function')
    throw new TypeError(`${what} has no execute. Give a function, or use clientTool for calls that a client answers.`);
  const asks = typeof approval === 'function' ? (approval as (call: ApprovalCall) => Awaitable<boolean>) : undefined;
  const rule = asks ? undefined : approval === true ? 'always' : approval === false ? 'never' : approval;
  const description: ToolDescription = {
    ...describeCommon(options, what),
    retry: options.safe ? 'safe' : undefined,
    readOnly: options.readOnly,
    storeReads: options.storeReads,
    timeout: options.timeout,
    approval: rule,
    approvers: options.approvers,
    callbacks: asks ? ['execute', 'approval'] : ['execute'],
  };
  return new Tool(
    options.name,
    description,
    sourceOf(tool),
    { input, output, execute: execute.bind(options) as never, approval: asks },
    options.state,
  );
}

/** clientTool defines a tool whose calls a client answers: the run waits for the answer. TypeError for mistakes. */
export function clientTool(options: ClientToolOptions): Tool {
  const what = `The client tool ${JSON.stringify(options.name)}`;
  checkFields(options, common, what);
  checkCommon(options, what);
  return new Tool(options.name, { ...describeCommon(options, what), client: true }, sourceOf(clientTool));
}

/**
 * subAgent defines a tool whose calls another agent answers: its name is subagent__ and the agent's name. TypeError
 * for mistakes.
 */
export function subAgent(agent: Agent | string, options: SubAgentOptions = {}): Tool {
  const name = typeof agent === 'string' ? agent : agent.name;
  const what = `The sub-agent ${JSON.stringify(name)}`;
  checkFields(options, ['description', 'input', 'output', 'timeout', 'strict', 'finishWith'], what);
  checkDuration(options.timeout, `timeout of ${what}`);
  const description = {
    subAgent: name,
    description: options.description ?? (typeof agent === 'string' ? undefined : agent.description.description),
    inputSchema: options.input && describeObject(options.input, 'input', `input of ${what}`),
    outputSchema: options.output && describe(options.output, 'output', `output of ${what}`),
    timeout: options.timeout,
    strict: options.strict,
    finishWith: options.finishWith,
  };
  return new Tool(`subagent__${name}`, description, sourceOf(subAgent));
}

function checkCommon(
  { name, description, answerWithin, timeout }: Common & { timeout?: Duration },
  what: string,
): void {
  if (typeof name !== 'string' || !toolName.test(name))
    throw new TypeError(`${what} must have a name of 1 to 64 characters of A-Z a-z 0-9 _ -.`);
  if (reserved.test(name))
    throw new TypeError(
      `${what}: the names __finish__, subagent__… and companion__… are reserved. Choose another one.`,
    );
  if (typeof description !== 'string' || description === '')
    throw new TypeError(`${what} has no description. The model chooses tools by it.`);
  checkDuration(answerWithin, `answerWithin of ${what}`);
  checkDuration(timeout, `timeout of ${what}`);
}

function describeCommon(options: Common & { input?: Schema; output?: Schema }, what: string): ToolDescription {
  return {
    name: options.name,
    description: options.description,
    inputSchema: options.input
      ? describeObject(options.input, 'input', `input of ${what}`)
      : { type: 'object', properties: {} },
    outputSchema: options.output && describe(options.output, 'output', `output of ${what}`),
    strict: options.strict,
    finishWith: options.finishWith,
    answerWithin: options.answerWithin,
  };
}
