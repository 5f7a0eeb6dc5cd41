import type { Agent } from './agent.js';
import { checkKey } from './checks.js';
import type { Context, Log } from './context.js';
import { ToolError } from './errors.js';
import { check } from './schema.js';
import type { Refusal } from './signature.js';
import { Draft } from './state.js';
import { type StoreEntries, storeOf } from './store.js';
import type { Last, Lines } from './wire.js';

/** CallRequest is the body of a call. Members that are not named here belong to its type. */
export interface CallRequest {
  type: string;
  agent: string;
  name?: string;
  context: {
    tenant: string;
    user: { id: string } | null;
    session: { id: string; parentId?: string | null; tags?: string[]; metadata?: Record<string, string> };
    run?: { id: string; turn: number }; // a method has none
    step?: number;
    call?: { id: string; idempotencyKey: string; attempt: number };
    deadline?: string;
    traceparent?: string;
  };
  state?: Record<string, unknown>;
  store?: StoreEntries;
  input?: unknown;
  args?: unknown[];
  [member: string]: unknown;
}

/** Work runs a call and returns its result. */
type Work = (lines: Lines) => unknown;

/** reservedMetadata are keys of the runtime, which refuses them. */
const reservedMetadata = [
  'runId',
  'agentType',
  'createdAt',
  'usage',
  'interrupted',
  'completionReason',
  '__proto__',
  'constructor',
  'prototype',
];

/** parseCall returns the call of a body, or why it is refused. */
export function parseCall(body: Uint8Array): { call: CallRequest } | { refusal: Refusal } {
  let call: CallRequest | undefined;
  try {
    call = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as CallRequest;
  } catch {
    return invalid('The body is not JSON in UTF-8.');
  }
  if (typeof call?.type !== 'string' || typeof call.agent !== 'string')
    return invalid('The body needs the members type and agent, which are texts.');
  const { context } = call;
  if (!isObject(context) || !isObject(context.session)) return invalid('The body needs a context with a session.');
  if (call.type !== 'method' && !isObject(context.run)) return invalid('The context needs the run.');
  if (call.state !== undefined && call.state !== null && !isObject(call.state))
    return invalid('The state must be an object.');
  if ((call.type === 'tool' || call.type === 'approval') && !isObject(context.call))
    return invalid('The context of a tool needs its call.');
  if (call.type === 'method' && call.args !== undefined && !Array.isArray(call.args))
    return invalid('The args of a method must be a list.');
  if (context.deadline !== undefined && Number.isNaN(Date.parse(context.deadline)))
    return invalid('The deadline is not a time of RFC 3339.');
  return { call };
}

function invalid(message: string): { refusal: Refusal } {
  return { refusal: { status: 400, code: 'REQUEST_INVALID', message } };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** find returns the work of a call, or why it is refused. */
export function find(agent: Agent, call: CallRequest, log: Log): Work | Refusal {
  const name = call.name ?? '';
  const quoted = JSON.stringify(name);
  const described = `${call.type}${name && ` ${quoted}`} of the agent ${JSON.stringify(agent.name)}`;
  const unknown: Refusal = {
    status: 404,
    code: 'CALLBACK_UNKNOWN',
    message: `There is no ${described}. Does another application answer this URL?`,
  };
  switch (call.type) {
    case 'tool':
    case 'approval': {
      const functions = agent.tools.get(name)?.functions;
      if (!functions?.execute) {
        return {
          status: 404,
          code: 'TOOL_UNKNOWN',
          message: `The agent ${JSON.stringify(agent.name)} has no tool ${quoted} that runs here.`,
        };
      }
      if (call.type === 'tool') return runTool(functions as ToolFunctions, call, log);
      return functions.approval ? approve(functions as ToolFunctions, call, log) : unknown;
    }
    case 'method': {
      const method = agent.methods.get(name);
      return method ? runMethod(method, call, log) : unknown;
    }
    case 'hook':
    case 'guard':
    case 'prompt':
    case 'stopWhen':
    case 'stepContext':
    case 'compact': {
      const group = call.type === 'hook' ? 'hooks.' : call.type === 'guard' ? 'guard.' : '';
      const f = agent.callbacks.get(group ? group + name : call.type) as ((context: object) => unknown) | undefined;
      if (!f) return unknown;
      if (call.type === 'hook' || call.type === 'stepContext') return runHook(f, call, log, described);
      return async (lines) =>
        checkAnswer(
          call.type,
          await f({ ...members(call), ...contextOf(call, lines, log, call.state ?? {}) }),
          described,
        );
    }
  }
  return unknown;
}

interface ToolFunctions {
  input?: Parameters<typeof check>[0];
  output?: Parameters<typeof check>[0];
  execute: (input: unknown, call: object) => unknown;
  approval: (call: object) => unknown;
}

function runTool({ input, output, execute }: ToolFunctions, call: CallRequest, log: Log): Work {
  return async (lines) => {
    const given = await checked(input, call.input ?? {}, 'INPUT_INVALID', 'The arguments do not fit');
    const draft = new Draft(call.state ?? {});
    const context = {
      ...call.context.call,
      ...contextOf(call, lines, log, draft.state),
      ...writesOf(draft, lines),
      store: storeOf(lines, call.store),
      addContext: (...rows: object[]) => void lines.send({ context: rows }),
    };
    let result = await execute(given, context);
    if (output)
      result = await checked(output, result, 'OUTPUT_INVALID', 'The tool has run, but its result does not fit');
    flush(draft, lines);
    return result;
  };
}

function approve({ input, approval }: ToolFunctions, call: CallRequest, log: Log): Work {
  return async (lines) => {
    const given = await checked(input, call.input ?? {}, 'INPUT_INVALID', 'The arguments do not fit');
    const needs = await approval({
      ...call.context.call,
      ...contextOf(call, lines, log, call.state ?? {}),
      input: given,
    });
    if (typeof needs !== 'boolean')
      throw new TypeError(
        `approval returned ${JSON.stringify(needs)}. Return true if the call needs approval, else false.`,
      );
    return needs;
  };
}

function runHook(hook: (call: object) => unknown, call: CallRequest, log: Log, described: string): Work {
  return async (lines) => {
    const draft = new Draft(call.state ?? {});
    const result = await hook({ ...members(call), ...contextOf(call, lines, log, draft.state), ...writesOf(draft, lines) });
    flush(draft, lines);
    return call.type === 'hook' ? null : checkAnswer(call.type, result ?? [], described);
  };
}

function runMethod(method: (call: never, ...args: unknown[]) => unknown, call: CallRequest, log: Log): Work {
  return async (lines) => {
    const draft = new Draft(call.state ?? {});
    const { update } = writesOf(draft, lines);
    const send = (value: unknown) => void lines.send({ send: value ?? null });
    const result = await method(
      { ...contextOf(call, lines, log, draft.state), update, send, store: storeOf(lines) } as never,
      ...(call.args ?? []),
    );
    flush(draft, lines);
    return result;
  };
}

/** members are those of the request that belong to its type. */
function members({
  type: _type,
  agent: _agent,
  build: _build,
  name: _name,
  context: _context,
  state: _state,
  ...rest
}: CallRequest): object {
  return rest;
}

/** checkAnswer checks what a callback has returned: the runtime would take a wrong type for a broken application. */
function checkAnswer(type: string, result: unknown, described: string): unknown {
  const wrong = (wanted: string) =>
    new TypeError(`The ${described} returned ${JSON.stringify(result)?.slice(0, 80)}. Return ${wanted}.`);
  if ((type === 'prompt' || type === 'compact') && typeof result !== 'string') throw wrong('a string');
  if (type === 'stopWhen' && typeof result !== 'boolean') throw wrong('true to end the run, else false');
  if (type === 'stepContext' && !Array.isArray(result)) throw wrong('a list of rows, or nothing');
  if (type === 'guard' && result !== null && result !== undefined) {
    const keys = isObject(result) ? Object.keys(result) : [];
    if (keys.length !== 1 || !['revise', 'fail', 'replace'].includes(keys[0] ?? ''))
      throw wrong('{ revise }, { fail }, { replace }, or nothing to accept');
  }
  return result;
}

async function checked(
  schema: Parameters<typeof check>[0] | undefined,
  value: unknown,
  code: string,
  what: string,
): Promise<unknown> {
  if (!schema) return value;
  const result = await check(schema, value);
  if ('problems' in result) throw new ToolError(`${what}:\n${result.problems}`, { code });
  return result.value;
}

function contextOf(call: CallRequest, lines: Lines, log: Log, state: Record<string, unknown>): Context {
  const { tenant, user, session, run, step, deadline, traceparent } = call.context;
  return {
    agent: call.agent,
    tenant,
    user: user ?? null,
    session: {
      id: session.id,
      parentId: session.parentId ?? null,
      tags: session.tags ?? [],
      metadata: session.metadata ?? {},
    },
    run: run as { id: string; turn: number },
    step: step ?? 0,
    deadline: deadline === undefined ? undefined : new Date(deadline),
    signal: lines.signal,
    state,
    traceparent,
    log,
  };
}

function writesOf(draft: Draft, lines: Lines) {
  return {
    update(change: (state: never) => void): void {
      draft.attempt(change);
      flush(draft, lines);
    },
    emit(name: string, data: unknown, options: { id?: string; transient?: boolean } = {}): void {
      checkKey(name, 'The name of an event');
      if (options.id !== undefined) checkKey(options.id, 'The id of an event');
      const more = {
        ...(options.id === undefined ? {} : { id: options.id }),
        ...(options.transient ? { transient: true } : {}),
      };
      lines.send({ event: { name, data: data ?? null, ...more } });
    },
    metadata(values: Record<string, unknown>): void {
      if (!isObject(values)) throw new TypeError('The metadata of a message must be an object.');
      const taken = Object.keys(values).find((key) => reservedMetadata.includes(key));
      if (taken)
        throw new TypeError(`The metadata key ${JSON.stringify(taken)} belongs to the runtime. Choose another name.`);
      lines.send({ metadata: values });
    },
    usage(kind: string, name: string, value: number): void {
      checkKey(kind, 'The kind of usage');
      checkKey(name, 'The name of usage');
      if (typeof value !== 'number' || !Number.isFinite(value))
        throw new TypeError(`Usage must be a finite number, and is ${String(value)}.`);
      lines.send({ usage: { kind, name, value } });
    },
  };
}

function flush(draft: Draft, lines: Lines): void {
  const state = draft.take();
  if (state.length > 0) lines.send({ state });
}

/**
 * run runs the work of a call. It returns every failure as the last line, and logs those that the author did not
 * intend. Their texts are for the model alone: an error of a database driver may have addresses and queries in it.
 */
export async function run(work: Work, lines: Lines, log: Log): Promise<Last> {
  try {
    return { result: await work(lines) };
  } catch (error) {
    const message = (error instanceof Error && (error.message || error.name)) || String(error);
    if (error instanceof ToolError) {
      const { publicMessage, code } = error;
      return {
        error: {
          message,
          ...(publicMessage === undefined ? {} : { publicMessage }),
          ...(code === undefined ? {} : { code }),
        },
      };
    }
    if (!lines.signal.aborted) log.error(message, { error });
    return { error: { message, publicMessage: 'Something went wrong.' } };
  }
}
