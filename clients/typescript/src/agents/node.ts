/**
 * Requests of Node's http module as requests of the fetch standard. This file imports no module of Node, for bundlers.
 */

/** NodeRequest is what toNode needs of http.IncomingMessage. */
export interface NodeRequest extends AsyncIterable<Uint8Array> {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: { readonly [name: string]: string | readonly string[] | undefined };
  readonly readableEnded: boolean;
  destroy(): unknown;
}

/** NodeResponse is what toNode needs of http.ServerResponse. */
export interface NodeResponse {
  readonly writableEnded: boolean;
  readonly headersSent: boolean;
  writeHead(status: number, headers: Record<string, string>): unknown;
  write(chunk: Uint8Array): boolean;
  end(): unknown;
  once(event: 'close' | 'drain', listener: () => void): unknown;
  off(event: 'close' | 'drain', listener: () => void): unknown;
  destroy(): unknown;
}

const consumed =
  'Another handler has read the body, and a signature needs its bytes. ' +
  'Install the endpoint before express.json(), or use express.raw() for its path.';

/**
 * toNode makes a handler for Node's http, Express and whatever has their requests:
 * `http.createServer(toNode(handler))`,
 * `app.use('/holdfast', toNode(handler))`. It answers every request.
 */
export function toNode(
  handler: (request: Request) => Promise<Response>,
): (request: NodeRequest, response: NodeResponse) => void {
  return (request, response) => {
    const closed = new AbortController();
    response.once('close', () => {
      if (!response.writableEnded) closed.abort();
    });
    void respond(handler, request, response, closed.signal).catch(() => {
      // Not an answer of the handler: the connection broke, or the handler has a defect.
      if (response.headersSent) response.destroy();
      else {
        response.writeHead(500, {});
        response.end();
      }
    });
  };
}

async function respond(
  handler: (request: Request) => Promise<Response>,
  from: NodeRequest,
  to: NodeResponse,
  signal: AbortSignal,
): Promise<void> {
  const method = from.method ?? 'GET';
  const headers = new Headers();
  for (const [name, value] of Object.entries(from.headers)) {
    if (!name.startsWith(':')) for (const one of [value ?? []].flat()) headers.append(name, one as string);
  }
  const init: RequestInit & { duplex?: 'half' } = { method, headers, signal };
  if (method !== 'GET' && method !== 'HEAD') {
    init.body = bodyOf(from);
    init.duplex = 'half';
  }
  const url = new URL(from.url ?? '/', 'http://endpoint.invalid'); // the handler has one URL and does not read it
  const response =
    init.body === null
      ? Response.json({ error: { code: 'BODY_CONSUMED', message: consumed } }, { status: 500 })
      : await handler(new Request(url, init));
  to.writeHead(response.status, Object.fromEntries(response.headers));
  const reader = response.body?.getReader();
  signal.addEventListener('abort', () => void reader?.cancel(signal.reason).catch(() => undefined));
  for (let next = await reader?.read(); next && !next.done && !signal.aborted; next = await reader?.read()) {
    if (!to.write(next.value)) await drained(to);
  }
  to.end();
}

/** bodyOf returns the body, or null if it was consumed. Some platforms and express.raw() keep its bytes. */
function bodyOf(from: NodeRequest): ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer> | null {
  const { rawBody, body } = from as { rawBody?: unknown; body?: unknown };
  for (const bytes of [rawBody, body]) if (bytes instanceof Uint8Array) return bytes as Uint8Array<ArrayBuffer>;
  if (from.readableEnded) return null;
  const chunks = from[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const next = await chunks.next();
      if (next.done) controller.close();
      else controller.enqueue(next.value);
    },
  });
}

/** drained waits until the connection takes more, or is closed. */
function drained(to: NodeResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      to.off('drain', done);
      to.off('close', done);
      resolve();
    };
    to.once('drain', done);
    to.once('close', done);
  });
}
