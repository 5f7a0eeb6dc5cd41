/** A small executor for the tests: it signs requests, and reads the lines of the answers. */
import { createHmac, randomUUID } from 'node:crypto';

export const secret = `whsec_${Buffer.from('a secret of twenty-four!').toString('base64')}`;
export const otherSecret = `whsec_${Buffer.from('the secret that comes next').toString('base64')}`;
export const url = 'http://app.test/holdfast';

export type Handler = (request: Request) => Promise<Response>;
export type Line = Record<string, unknown>;
type Headers = Record<string, string>;

export interface Signing {
  id?: string;
  /** Seconds since 1970; now by default. */
  time?: number | string;
  secrets?: string[];
}

export function signature(key: string, id: string, time: number | string, body: string): string {
  const bytes = Buffer.from(key.slice('whsec_'.length), 'base64');
  return `v1,${createHmac('sha256', bytes).update(`${id}.${time}.${body}`).digest('base64')}`;
}

export function signed(
  body: string,
  { id = randomUUID(), time = Math.floor(Date.now() / 1000), secrets = [secret] }: Signing = {},
): Headers {
  return {
    'webhook-id': id,
    'webhook-timestamp': String(time),
    'webhook-signature': secrets.map((key) => signature(key, id, time, body)).join(' '),
    'holdfast-endpoint': '1',
  };
}

export const context = {
  tenant: 'acme',
  user: { id: 'u-17' },
  session: { id: 's-1', parentId: null, tags: ['vip'], metadata: { plan: 'gold' } },
  run: { id: 'r-1', turn: 3 },
  step: 7,
  call: { id: 'call_1', idempotencyKey: '7c1f', attempt: 1 },
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
};

/** bodyOf is a call of the agent "support". */
export function bodyOf(call: object): string {
  return JSON.stringify({ agent: 'support', context, state: {}, ...call });
}

export function request(body: string, init: RequestInit & { headers?: Headers } = {}): Request {
  return new Request(url, {
    method: 'POST',
    body,
    ...init,
    headers: { 'content-type': 'application/json', ...signed(body), ...init.headers },
  });
}

export function get(headers: Headers = signed('')): Request {
  return new Request(url, { headers });
}

/** lines yields the lines of an answer as they arrive. */
export async function* lines(response: Response): AsyncGenerator<Line, void, void> {
  if (!response.body) return;
  let rest = '';
  const decoder = new TextDecoder();
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts) yield JSON.parse(part) as Line;
  }
  if (rest !== '') throw new Error(`the last line does not end: ${rest}`);
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
}

/** call runs a call and returns all of its lines. */
export async function call(handler: Handler, given: object): Promise<Line[]> {
  const response = await handler(request(bodyOf(given)));
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  return all(lines(response));
}

/** refusal returns the status and the error of a refused request, without its message. */
export async function refusal(response: Response): Promise<[number, string]> {
  const { error } = (await response.json()) as { error: { code: string; message: string } };
  if (!error.message) throw new Error('the refusal has no message');
  return [response.status, error.code];
}

export const silent = { debug() {}, info() {}, warn() {}, error() {} };
