import { checkKey } from './checks.js';
import { ToolError } from './errors.js';
import type { StateOp } from './wire.js';

/** Draft is a custom state that a call may change in any way. */
export class Draft {
  readonly state: Record<string, unknown>;
  #base: Map<string, string>; // the JSON of the values that are written or were given

  constructor(given: Record<string, unknown>) {
    this.state = structuredClone(given);
    this.#base = texts(given);
  }

  /** take returns the writes since the last call of take. A list with new items at its end is appended to. */
  take(): StateOp[] {
    const before = this.#base;
    const after = texts(this.state);
    const ops: StateOp[] = [];
    for (const [key, text] of after) {
      const old = before.get(key);
      if (old !== text) ops.push(write(key, old, text));
    }
    for (const key of before.keys()) if (!after.has(key)) ops.push({ op: 'delete', key });
    this.#base = after;
    return ops;
  }

  /** attempt runs change, and takes its changes back if it fails. */
  attempt(change: (state: never) => void): void {
    const before = structuredClone(this.state);
    try {
      change(this.state as never);
    } catch (error) {
      for (const key of Object.keys(this.state)) delete this.state[key];
      Object.assign(this.state, before);
      throw error;
    }
  }
}

function texts(state: Record<string, unknown>): Map<string, string> {
  const all = new Map<string, string>();
  for (const key of Object.keys(state)) {
    let text: string | undefined;
    try {
      text = JSON.stringify(state[key]);
    } catch (error) {
      throw new ToolError(`state.${key} cannot be written as JSON: ${(error as Error).message}`, {
        code: 'STATE_INVALID',
      });
    }
    if (text === undefined) continue; // undefined deletes
    checkKey(key, 'a key of the state');
    all.set(key, text);
  }
  return all;
}

function write(key: string, old: string | undefined, text: string): StateOp {
  const value: unknown = JSON.parse(text);
  const was: unknown = old === undefined ? undefined : JSON.parse(old);
  const grown = Array.isArray(was) && Array.isArray(value) && was.length > 0 && value.length > was.length;
  if (grown && JSON.stringify(value.slice(0, was.length)) === old)
    return { op: 'append', key, value: value.slice(was.length) };
  return { op: 'replace', key, value };
}
