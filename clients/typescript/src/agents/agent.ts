import { checkDuration, checkFields, checkKey, sourceOf } from './checks.js';
import type { Context, ContextRow, Guard, Hooks, Methods, Older, Progress, StepView } from './context.js';
import { describeObject, type OutputOf, type Schema } from './schema.js';
import { Tool, type Duration, type ToolEntry } from './tool.js';

type Awaitable<T> = T | Promise<T>;
type AnySchema = Schema<any, any>;

/** StopRule ends a run after a step. */
export type StopRule = { tool: string } | { stateEquals: Record<string, unknown> };

/**
 * AgentOptions describe an agent. Fields without a comment here are those of an agents file: see docs/agents-yaml.md.
 */
export interface AgentOptions<S extends Schema, O extends Schema> {
  /** The agent type, as clients name it. */
  name: string;
  /** What the agent does, for people and for agents that call it. */
  description?: string;
  /** provider/name, such as anthropic/claude-sonnet-4-5: a model of the executor. */
  model?: string;
  fallbacks?: string[];
  /** The system prompt. */
  systemPrompt?: string;
  /**
   * In place of systemPrompt: a text with placeholders such as {{state.name}}, or a function, called at the start of
   * each step.
   */
  prompt?: string | ((context: Context<OutputOf<S>>) => Awaitable<string>);
  /** What the agent can call: tools, and names of built-in tools. */
  tools?: ToolEntry[];
  /** The custom state of a session: an object. Give its properties defaults: a new session has nothing else. */
  state?: S;
  /** The output: an object. A run completes only with an output that fits. The text of the model by default. */
  output?: O;
  completion?: 'tool' | 'native';
  strictOutput?: boolean;
  /** Infinity: no limit. 50 by default. */
  maxSteps?: number;
  remote?: { url: string; agent?: string };
  companions?: { agent: string; description?: string; mode?: 'blocking' | 'non-blocking'; timeout?: Duration }[];
  maxCompanions?: number;
  maxSubAgents?: number;
  maxDepth?: number;
  maxOutputTokens?: number;
  temperature?: number;
  maxRetries?: number;
  runTimeout?: Duration;
  cache?: 'auto' | 'none';
  providerOptions?: Record<string, Record<string, unknown>>;
  context?: { maxTokens: number; keepTokens?: number; compaction?: 'window' | 'summary' };
  /** Writes the summary of older messages, in place of the agent's model. It needs a context. */
  compact?: (older: Older<OutputOf<S>>) => Awaitable<string>;
  /** Returns rows of context for the next model call. An error fails the run. Called again after a crash. */
  stepContext?: (view: StepView<OutputOf<S>>) => Awaitable<ContextRow[] | void>;
  /** Ends the run as completed: rules, or a function that is called after each step that does not end it. */
  stopWhen?: StopRule | StopRule[] | ((progress: Progress<OutputOf<S>>) => Awaitable<boolean>);
  onBusy?: 'reject' | 'enqueue' | 'interrupt' | 'rollback';
  /** Callers may bring tools whose calls they answer: true for every name, or patterns such as page_*. At most max, 16 by default. */
  callerTools?: { allow: true | string | string[]; max?: number };
  /** Callers may add instructions behind the system prompt. With them, a caller can make the model ignore the prompt. */
  callerInstructions?: boolean;
  guard?: Guard<OutputOf<O>, OutputOf<S>>;
  hooks?: Hooks<OutputOf<S>>;
  methods?: Methods<OutputOf<S>>;
}

/** AgentDescription is an agent on the wire. */
export interface AgentDescription {
  readonly name: string;
  readonly description?: string | undefined;
  readonly [field: string]: unknown;
}

/** Agent is what agent returns. */
export class Agent {
  readonly tools: ReadonlyMap<string, Tool>;

  constructor(
    readonly name: string,
    readonly description: AgentDescription,
    readonly source: string,
    tools: readonly Tool[],
    /** The functions by the names of callbacks, such as guard.onReply. */
    readonly callbacks: ReadonlyMap<string, (context: never) => unknown>,
    readonly methods: ReadonlyMap<string, Methods[string]>,
  ) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
  }
}

const guards = ['onOutput', 'onReply'];
const hooks = [
  'beforeRun',
  'onStart',
  'onResume',
  'beforeModel',
  'afterModel',
  'beforeTool',
  'afterTool',
  'beforeSubAgent',
  'afterSubAgent',
  'onStateChange',
  'onMessage',
  'afterRun',
];
const plain = [
  'description',
  'model',
  'fallbacks',
  'systemPrompt',
  'completion',
  'strictOutput',
  'remote',
  'companions',
  'maxCompanions',
  'maxSubAgents',
  'maxDepth',
  'maxOutputTokens',
  'temperature',
  'maxRetries',
  'runTimeout',
  'cache',
  'providerOptions',
  'onBusy',
  'callerTools',
  'callerInstructions',
] as const;
const known = [
  ...plain,
  'name',
  'prompt',
  'tools',
  'state',
  'output',
  'maxSteps',
  'context',
  'compact',
  'stepContext',
  'stopWhen',
  'guard',
  'hooks',
  'methods',
];

/** agent defines an agent, for serve. TypeError for mistakes. */
export function agent<S extends Schema = AnySchema, O extends Schema = AnySchema>(options: AgentOptions<S, O>): Agent {
  const what = `The agent ${JSON.stringify(options.name)}`;
  checkKey(options.name, 'The name of an agent');
  checkFields(options, known, what);
  if (!options.model && !options.remote)
    throw new TypeError(`${what} has no model. Give provider/name, such as anthropic/claude-sonnet-4-5.`);
  if (options.prompt !== undefined && options.systemPrompt !== undefined) {
    throw new TypeError(
      `${what} has both prompt and systemPrompt. Remove one: a prompt is a text with placeholders, or a function.`,
    );
  }
  if (options.compact && !options.context)
    throw new TypeError(
      `${what} has compact without context. Give context: { maxTokens: … }, above which it is called.`,
    );
  if (options.compact && options.context?.compaction === 'window') {
    throw new TypeError(
      `${what} has compact, and context.compaction is "window", which omits messages. Write "summary" there.`,
    );
  }
  checkDuration(options.runTimeout, `runTimeout of ${what}`);

  const callbacks = new Map<string, (context: never) => unknown>();
  const callback = (name: string, given: unknown) => {
    if (typeof given === 'function') callbacks.set(name, given as (context: never) => unknown);
    return typeof given === 'function' ? undefined : given;
  };
  const description: Record<string, unknown> & { name: string } = { name: options.name };
  for (const field of plain) description[field] = options[field];
  description.prompt = callback('prompt', options.prompt);
  description.stopWhen = callback('stopWhen', options.stopWhen);
  callback('compact', options.compact);
  callback('stepContext', options.stepContext);
  for (const [group, names, given] of [
    ['guard', guards, options.guard],
    ['hooks', hooks, options.hooks],
  ] as const) {
    checkFields(given ?? {}, names, `${group} of ${what}`);
    for (const name of names) {
      const f = (given as Record<string, unknown> | undefined)?.[name];
      if (f !== undefined && typeof f !== 'function')
        throw new TypeError(`${group}.${name} of ${what} must be a function.`);
      callback(`${group}.${name}`, f);
    }
  }
  description.context = options.compact ? { ...options.context, compaction: 'summary' } : options.context;
  description.maxSteps = options.maxSteps === Number.POSITIVE_INFINITY ? 'Infinity' : options.maxSteps;
  description.stateSchema = options.state && describeObject(options.state, 'input', `state of ${what}`);
  description.outputSchema = options.output && describeObject(options.output, 'output', `output of ${what}`);
  description.callbacks = callbacks.size > 0 ? [...callbacks.keys()] : undefined;

  const entries = options.tools ?? [];
  const names = new Set<string>();
  for (const entry of entries) {
    const name = nameOf(entry, what);
    if (names.has(name))
      throw new TypeError(`${what} lists the tool ${JSON.stringify(name)} twice. Remove one, or rename it.`);
    names.add(name);
    if (entry instanceof Tool && entry.state && !options.state) {
      throw new TypeError(
        `The tool ${JSON.stringify(name)} has a state, and ${what} has none. Give the agent the same state.`,
      );
    }
  }
  description.tools =
    entries.length > 0 ? entries.map((entry) => (entry instanceof Tool ? entry.description : entry)) : undefined;
  const methods = new Map(Object.entries(options.methods ?? {}));
  for (const [name, method] of methods) {
    if (typeof method !== 'function')
      throw new TypeError(`The method ${JSON.stringify(name)} of ${what} must be a function.`);
    if (names.has(name))
      throw new TypeError(`${what} has a method and a tool with the name ${JSON.stringify(name)}. Rename one.`);
  }
  description.methods = methods.size > 0 ? [...methods.keys()] : undefined;
  return new Agent(
    options.name,
    description,
    sourceOf(agent),
    entries.filter((entry) => entry instanceof Tool),
    callbacks,
    methods,
  );
}

function nameOf(entry: ToolEntry, what: string): string {
  if (typeof entry === 'string') return entry;
  const name = entry instanceof Tool || 'http' in entry ? entry.name : entry.use;
  if (typeof name !== 'string')
    throw new TypeError(
      `${what} lists a tool that is none. Give tool(…), clientTool(…), subAgent(…), a name, or { use: NAME }.`,
    );
  return name;
}
