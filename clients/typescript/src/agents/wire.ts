/** The lines of an answer, and the members of a call, as docs/endpoint.md has them. */
import { ToolError } from './errors.js';
import type { Refusal } from './signature.js';
import type { StoreOp } from './store.js';

/** version is that of docs/endpoint.md. */
export const version = 1;
/** maxLine bounds a line, maxAnswer all lines of an answer, in bytes. */
const maxLine = 2 << 20;
const maxAnswer = 16 << 20;
/** reserve is what earlier lines leave for the last line and for pings. */
const reserve = maxLine + (64 << 10);
/** silenceMs is how long an answer may be silent before a ping. The executor expects one in 15 s. */
const silenceMs = 10_000;
/** longestTimer is the most that setTimeout takes, in milliseconds. */
const longestTimer = 2 ** 31 - 1;
const encoder = new TextEncoder();

/** StateOp is a write to a top-level key of the custom state. `value` of append is a list of items. */
export interface StateOp {
  op: 'replace' | 'append' | 'delete';
  key: string;
  value?: unknown;
}

/** Line is a line before the last one. */
export type Line =
  | { event: { name: string; data: unknown; id?: string; transient?: boolean } }
  | { metadata: Record<string, unknown> }
  | { state: StateOp[] }
  | { store: StoreOp[] }
  | { context: object[] }
  | { usage: { kind: string; name: string; value: number } }
  | { send: unknown }
  | { ping: Record<string, never> };

/** Last is the last line. */
export type Last = { result: unknown } | { error: { message: string; publicMessage?: string; code?: string } };

/** Lines is the open answer to one call. */
export interface Lines {
  /** signal aborts when the executor closes the connection, or at the deadline. */
  readonly signal: AbortSignal;
  /** send sends a line at once. It drops the line, and returns false, after the end. ToolError: it is too large. */
  send(line: Line): boolean;
}

/**
 * answer starts work, whose result is the last line, and returns the response that streams its lines. The response
 * ends without a
 * last line when the executor has closed the connection, and after leftMs: what work does afterwards does not count.
 */
export function answer(request: Request, leftMs: number, work: (lines: Lines) => Promise<Last>): Response {
  const stop = new AbortController();
  let out: ReadableStreamDefaultController<Uint8Array>;
  let sent = 0;
  let ended = false;
  let silence: Timer | undefined;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      out = controller;
    },
    cancel: () => closed(),
  });

  const write = (text: Uint8Array) => {
    sent += text.length;
    out.enqueue(text);
    clearTimeout(silence);
    silence = timer(() => write(encode({ ping: {} })), silenceMs);
  };
  const end = (reason?: unknown, last?: Uint8Array) => {
    if (ended) return;
    ended = true;
    if (last) write(last);
    clearTimeout(silence);
    clearTimeout(limit);
    request.signal.removeEventListener('abort', closed);
    if (reason) stop.abort(reason);
    try {
      out.close();
    } catch {
      // The reader has cancelled the stream.
    }
  };
  const closed = () => end(new DOMException('The runtime closed the connection: the call was stopped.', 'AbortError'));
  const limit = timer(
    () => end(new DOMException('The deadline of the call has passed.', 'TimeoutError')),
    Math.max(0, leftMs),
  );
  const lines: Lines = {
    signal: stop.signal,
    send: (line) => {
      if (ended) return false;
      const text = encode(line);
      if (text.length > maxLine)
        throw new ToolError(`It has ${text.length} bytes as a line; at most ${maxLine} are allowed.`, {
          code: 'LINE_TOO_LARGE',
        });
      if (sent + text.length > maxAnswer - reserve) {
        throw new ToolError(
          `All lines of a call may have ${maxAnswer - reserve} bytes before the result; it has sent ${sent}.`,
          { code: 'ANSWER_TOO_LARGE' },
        );
      }
      write(text);
      return true;
    },
  };
  silence = timer(() => write(encode({ ping: {} })), silenceMs);
  request.signal.addEventListener('abort', closed);
  if (request.signal.aborted) closed();
  else void work(lines).then((last) => end(undefined, encodeLast(last)));
  return new Response(body, {
    headers: {
      'content-type': 'application/x-ndjson',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    },
  });
}

/** refuse is the response to a request that is not executed. */
export function refuse(
  { status, code, message }: Refusal,
  more: object = {},
  headers: Record<string, string> = {},
): Response {
  return Response.json({ error: { code, message, ...more } }, { status, headers });
}

function encode(line: Line | Last): Uint8Array {
  return encoder.encode(`${JSON.stringify(line)}\n`);
}

/** encodeLast is encode for a last line, which never fails. */
function encodeLast(last: Last): Uint8Array {
  let text: Uint8Array;
  try {
    text = encode('result' in last ? { result: last.result ?? null } : last);
  } catch (error) {
    return encode({
      error: { message: `The result cannot be written as JSON: ${(error as Error).message}`, code: 'RESULT_INVALID' },
    });
  }
  if (text.length <= maxLine) return text;
  return encode({
    error: {
      message: `The result has ${text.length} bytes as a line; at most ${maxLine} are allowed.`,
      code: 'RESULT_TOO_LARGE',
    },
  });
}

type Timer = ReturnType<typeof setTimeout>;

/** timer is setTimeout that does not keep a process alive. A time beyond what setTimeout takes never comes. */
function timer(f: () => void, ms: number): Timer | undefined {
  if (ms >= longestTimer) return undefined;
  const started = setTimeout(f, ms);
  (started as { unref?: () => void }).unref?.();
  return started;
}
