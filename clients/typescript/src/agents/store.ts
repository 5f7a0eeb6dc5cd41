import { ToolError } from './errors.js';
import type { Lines } from './wire.js';

/** StoreWrites are the writes to the private store of a session. A failed call writes nothing. */
export interface StoreWrites {
  /** put writes the value of a key: JSON of at most 1 MiB. A key has 1 to 512 bytes without control characters. */
  put(key: string, value: unknown): void;
  delete(key: string): void;
  /** add adds an integer to the value of a key. A missing key counts as 0, and parallel calls lose none. */
  add(key: string, delta: number): void;
}

/**
 * Store is the private storage of the session: values by key that neither clients nor the model see. What a finished
 * call has written stays, also after a rewind; a branch begins with an empty store. Reads see the entries that
 * `storeReads` of the tool names, with the writes of this call.
 */
export interface Store extends StoreWrites {
  /** get returns the value of a key; undefined for none. ToolError STORE_UNREAD: storeReads does not name the key. */
  get<T = any>(key: string): T | undefined;
  /** list returns the entries whose keys begin with a prefix, ordered by key. Errors as of get. */
  list<T = any>(prefix: string): [key: string, value: T][];
}

/** StoreOp is a write to a key of the private store. */
export interface StoreOp {
  op: 'put' | 'delete' | 'add';
  key: string;
  value?: unknown;
}

/** StoreEntries are the entries in a request. */
export interface StoreEntries {
  reads?: string[];
  entries?: Record<string, unknown>;
  complete?: boolean;
}

const encoder = new TextEncoder();

/** storeOf returns the store of a call whose request has these entries, of the keys that begin as reads says. */
export function storeOf(lines: Lines, given: StoreEntries = {}): Store {
  const entries = new Map(Object.entries(given.entries ?? {}));
  const write = (op: StoreOp) => {
    checkStoreKey(op.key);
    lines.send({ store: [op] });
  };
  const readable = (key: string) => {
    if (given.reads?.some((prefix) => key.startsWith(prefix))) return;
    throw new ToolError(`The tool does not read ${JSON.stringify(key)} of the store. Name its beginning in storeReads.`, {
      code: 'STORE_UNREAD',
    });
  };
  const whole = () => {
    if (given.complete !== false) return;
    throw new ToolError('The entries that storeReads names exceed 1 MiB or 1,000 keys. Name longer prefixes.', {
      code: 'STORE_UNREAD',
    });
  };
  return {
    get(key) {
      readable(key);
      if (!entries.has(key)) whole();
      return entries.get(key) as never;
    },
    list(prefix) {
      readable(prefix);
      whole();
      return [...entries]
        .filter(([key]) => key.startsWith(prefix))
        .sort(([a], [b]) => compareBytes(a, b)) as never;
    },
    put(key, value) {
      const text = JSON.stringify(value);
      if (text === undefined) throw new TypeError(`The value of the key ${JSON.stringify(key)} of the store has no JSON.`);
      write({ op: 'put', key, value });
      entries.set(key, JSON.parse(text));
    },
    delete(key) {
      write({ op: 'delete', key });
      entries.delete(key);
    },
    add(key, delta) {
      if (!Number.isSafeInteger(delta)) throw new TypeError(`add takes an integer, and not ${String(delta)}.`);
      const before = entries.get(key) ?? 0;
      if (typeof before !== 'number')
        throw new TypeError(`The value of the key ${JSON.stringify(key)} of the store is no number.`);
      write({ op: 'add', key, value: delta });
      entries.set(key, before + delta);
    },
  };
}

function checkStoreKey(key: unknown): void {
  if (typeof key === 'string' && key !== '' && encoder.encode(key).length <= 512 && !/[\u0000-\u001f\u007f-\u009f]/.test(key))
    return;
  throw new TypeError(
    `A key of the store must have 1 to 512 bytes without control characters, and is ${JSON.stringify(key)?.slice(0, 80)}.`,
  );
}

function compareBytes(a: string, b: string): number {
  const [x, y] = [encoder.encode(a), encoder.encode(b)];
  for (let i = 0; i < x.length && i < y.length; i++) {
    if (x[i] !== y[i]) return (x[i] as number) - (y[i] as number);
  }
  return x.length - y.length;
}
