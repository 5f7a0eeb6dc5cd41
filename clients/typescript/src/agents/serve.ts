import { Agent } from './agent.js';
import { type CallRequest, find, parseCall, run } from './calls.js';
import type { Log } from './context.js';
import { type Refusal, Verifier } from './signature.js';
import { answer, refuse, version } from './wire.js';

/** packageVersion is that of package.json. */
export const packageVersion = '0.1.0';
const defaultRequestBytes = 32 << 20;
const mostBuildBytes = 128;
/** The executor refuses larger descriptions as a whole. */
const mostDescriptionBytes = 1 << 20;
const encoder = new TextEncoder();

/** ServeOptions describe an endpoint. */
export interface ServeOptions {
  agents: readonly Agent[];
  /** Requests need the signature of one of them. HOLDFAST_ENDPOINT_SECRET, separated by commas, by default. */
  secrets?: string | readonly string[] | undefined;
  /**
   * Without a secret, everybody who reaches the URL may call: for development. HOLDFAST_ENDPOINT_ALLOW_UNSIGNED=1 by
   * default.
   */
  allowUnsigned?: boolean;
  /** A name for the code, for example its revision; at most 128 bytes. HOLDFAST_ENDPOINT_BUILD by default. */
  build?: string | undefined;
  /** Where `log` of the context and errors go. `console` by default. */
  log?: Log;
  /** The largest body of a request, in bytes. 32 MiB by default; the runtime sends up to 16 MiB. */
  maxRequestBytes?: number;
}

/** Handler answers the requests of an executor. Other arguments of a framework are ignored. */
export interface Handler {
  (request: Request, ...more: unknown[]): Promise<Response>;
  /** For Next route handlers: `export const { GET, POST } = serve({ … })`. */
  readonly GET: (request: Request, ...more: unknown[]) => Promise<Response>;
  readonly POST: (request: Request, ...more: unknown[]) => Promise<Response>;
  /**
   * Refuses further calls with 503, so that the runtime repeats them elsewhere or later. Calls in progress go on. Call it
   * when the process is asked to stop.
   */
  readonly close: () => void;
}

/** serve returns the handler of an agent endpoint: see docs/agents-typescript.md. TypeError for mistakes. */
export function serve(options: ServeOptions): Handler {
  const agents = new Map<string, Agent>();
  for (const given of options.agents) {
    if (!(given instanceof Agent)) throw new TypeError('serve needs agents that agent({ … }) has returned.');
    if (agents.has(given.name))
      throw new TypeError(`Two agents have the name ${JSON.stringify(given.name)}. Rename one.`);
    agents.set(given.name, given);
  }
  const build = options.build ?? variable('HOLDFAST_ENDPOINT_BUILD');
  if (encoder.encode(build).length > mostBuildBytes)
    throw new TypeError(`build has more than ${mostBuildBytes} bytes. Give a revision or a version.`);
  const log = options.log ?? console;
  const allowUnsigned = options.allowUnsigned ?? variable('HOLDFAST_ENDPOINT_ALLOW_UNSIGNED') === '1';
  const verifier = new Verifier(secretsOf(options.secrets), allowUnsigned);
  const largest = options.maxRequestBytes ?? defaultRequestBytes;
  const description = describe([...agents.values()], build);
  if (description.length > mostDescriptionBytes) {
    throw new TypeError(
      `The agents have a description of ${description.length} bytes; at most ${mostDescriptionBytes} are allowed. ` +
        'Serve them at two URLs.',
    );
  }
  const tag = crypto.subtle.digest('SHA-256', description).then((hash) => `"${hex(new Uint8Array(hash))}"`);

  let closing = false;
  const handle = async (request: Request): Promise<Response> => {
    if (request.method !== 'GET' && request.method !== 'POST') {
      return refuse(
        { status: 405, code: 'METHOD_UNKNOWN', message: 'GET describes the agents, POST runs a call.' },
        {},
        { allow: 'GET, POST' },
      );
    }
    const early = verifier.early(request.headers); // before a body is read
    if (early) return refuse(early);
    const body = request.method === 'POST' ? await read(request, largest) : new Uint8Array();
    if (!(body instanceof Uint8Array)) return refuse(body);
    const refusal = await verifier.verify(request.headers, body);
    if (refusal) return refuse(refusal);
    const spoken = request.headers.get('holdfast-endpoint') ?? String(version);
    if (spoken !== String(version)) {
      const message = `The application speaks version ${version} of the endpoint wire. Update it or the executor.`;
      return refuse({ status: 400, code: 'VERSION_UNSUPPORTED', message }, { versions: [version] });
    }
    if (request.method === 'GET') {
      const etag = await tag;
      const headers = { 'content-type': 'application/json', etag };
      return request.headers.get('if-none-match')?.replace(/^W\//, '') === etag
        ? new Response(null, { status: 304, headers: { etag } })
        : new Response(description, { headers });
    }
    if (closing) return refuse({ status: 503, code: 'STOPPING', message: 'The application is stopping.' });
    const parsed = parseCall(body);
    if ('refusal' in parsed) return refuse(parsed.refusal);
    const { call } = parsed;
    const agent = agents.get(call.agent);
    if (!agent) {
      const message = `There is no agent ${JSON.stringify(call.agent)} here. Agents: ${[...agents.keys()].join(', ')}.`;
      return refuse({ status: 404, code: 'AGENT_UNKNOWN', message });
    }
    const calls = logOf(log, {
      agent: call.agent,
      [call.type]: call.name,
      session: call.context.session.id,
      run: call.context.run?.id,
      call: call.context.call?.id,
    });
    const work = find(agent, call, calls);
    if (typeof work !== 'function') return refuse(work);
    return answer(request, timeLeft(call, request.headers), (lines) => run(work, lines, calls));
  };
  const handler = (request: Request) => handle(request);
  return Object.assign(handler, {
    GET: handler,
    POST: handler,
    close: () => {
      closing = true;
    },
  });
}

/**
 * timeLeft returns the time to the deadline in milliseconds. Both are times of the executor, whose clock may be
 * another one.
 */
function timeLeft({ context }: CallRequest, headers: Headers): number {
  if (context.deadline === undefined) return Number.POSITIVE_INFINITY;
  // Whole seconds, so never too little is left.
  const sent = 1000 * Number(headers.get('webhook-timestamp') ?? Number.NaN);
  return Date.parse(context.deadline) - (Number.isNaN(sent) ? Date.now() : sent);
}

/** describe returns the description of the agents as JSON. */
function describe(agents: readonly Agent[], build: string): Uint8Array<ArrayBuffer> {
  const sources: Record<string, string> = {};
  for (const agent of agents) {
    if (agent.source) sources[agent.name] = agent.source;
    for (const tool of agent.tools.values()) if (tool.source) sources[`${agent.name}/${tool.name}`] = tool.source;
  }
  const sdk = `typescript/${packageVersion}`;
  return encoder.encode(
    JSON.stringify({ endpoint: version, sdk, build, agents: agents.map((agent) => agent.description), sources }),
  );
}

/** read returns the body of a request, or why it is refused. */
async function read(request: Request, largest: number): Promise<Uint8Array | Refusal> {
  const chunks: Uint8Array[] = [];
  let size = Number(request.headers.get('content-length') ?? 0) > largest ? Number.POSITIVE_INFINITY : 0;
  if (request.body && size === 0) {
    const reader = request.body.getReader();
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      chunks.push(next.value);
      size += next.value.length;
      if (size > largest) break;
    }
    if (size > largest) await reader.cancel();
  }
  if (size > largest)
    return {
      status: 413,
      code: 'REQUEST_TOO_LARGE',
      message: `The request has more than ${largest} bytes: see maxRequestBytes of serve.`,
    };
  const body = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.length;
  }
  return body;
}

function secretsOf(given: ServeOptions['secrets']): string[] {
  const listed = given === undefined ? variable('HOLDFAST_ENDPOINT_SECRET') : given;
  const all = typeof listed === 'string' ? listed.split(',') : listed;
  return all.map((secret) => secret.trim()).filter((secret) => secret !== '');
}

/** variable returns an environment variable, or '' where there is no environment. */
function variable(name: string): string {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name] ?? '';
}

function logOf(log: Log, ids: object): Log {
  const level = (name: keyof Log) => (message: string, fields?: object) => log[name](message, { ...ids, ...fields });
  return { debug: level('debug'), info: level('info'), warn: level('warn'), error: level('error') };
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
