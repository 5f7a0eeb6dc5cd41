import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent } from '../agents/agent.js';
import type { Log } from '../agents/context.js';
import { toNode } from '../agents/node.js';
import { serve } from '../agents/serve.js';
import { Holdfast, type StartRequest } from '../index.js';
import { Chat } from './chat.js';
import { scriptOf, type Script } from './script.js';

/** Options of the test kit. */
export interface Options {
  agents: readonly Agent[];
  /** What the models say: the models of the agents are replaced. */
  script: Script;
  /** The program `holdfast`. HOLDFAST_BIN by default, else that of the PATH. */
  binary?: string;
  /** Variables of the runtime, such as HOLDFAST_EXECUTOR_TOOL_HOSTS. */
  env?: Record<string, string>;
  /** Where the logs of the agents go. Nowhere by default. */
  log?: Log;
}

/** startLimit is how long the runtime may take to be ready, in milliseconds. */
const startLimit = 60_000;
const pollPause = 25;
/** keptLog is how much of the runtime's log is kept, in characters. */
const keptLog = 1 << 20;
const silent: Log = { debug() {}, info() {}, warn() {}, error() {} };

/** Runtime is a running Holdfast with your agents. */
export class Runtime {
  /** A client of the runtime. */
  readonly client: Holdfast;
  #process: ChildProcess | undefined;
  #log = '';
  #moment = 0;
  #moments: string[] = [];
  #crash: { victim: 'application' | 'runtime'; at: number } | undefined;
  #crashed: Promise<void> = Promise.resolve();
  readonly #killAtExit = () => void this.#process?.kill('SIGKILL');

  private constructor(
    private readonly options: Options,
    /** The address of the gateway. */
    readonly url: string,
    private readonly folder: string,
    private readonly secret: string,
    private readonly server: http.Server,
    private readonly port: number,
  ) {
    this.client = new Holdfast({ baseUrl: url });
    process.on('exit', this.#killAtExit);
  }

  /** start is holdfast. */
  static async start(options: Options): Promise<Runtime> {
    const script = scriptOf(options.script, options.agents);
    const agents = options.agents.map((agent) => scripted(agent));
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    const handler = serve({ agents, secrets: secret, log: options.log ?? silent });
    let runtime: Runtime;
    const server = http.createServer(toNode((request) => runtime.#observe(request, handler)));
    const port = await listen(server, 0);
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'));
    writeFileSync(join(folder, 'models.yaml'), JSON.stringify({ models: { scripted: { script } }, agents: [] }));
    // The gateway keeps its port through crashes.
    const gateway = await freePort();
    runtime = new Runtime(options, `http://127.0.0.1:${gateway}`, folder, secret, server, port);
    try {
      await runtime.#run();
    } catch (error) {
      await runtime.close();
      throw error;
    }
    return runtime;
  }

  /**
   * chat begins a conversation with an agent. Other fields of the first message, such as userId, are those of
   * `request`.
   */
  chat(
    agent: string,
    request: Omit<StartRequest, 'message' | 'sessionId' | 'agentType'> & { sessionId?: string } = {},
  ): Chat {
    const { sessionId = randomUUID(), ...more } = request;
    return new Chat(this.client, agent, sessionId, more);
  }

  /** log returns the newest output of the runtime. */
  log(): string {
    return this.#log;
  }

  /** crash kills the runtime as a power failure does, and starts it again. Runs in progress continue. */
  async crash(): Promise<void> {
    await this.#end('SIGKILL');
    await this.#run();
  }

  /**
   * crashApplication breaks all connections to your agents, refuses new ones, and then listens again. Code in progress
   * is not killed: it learns of
   * the end by its signal.
   */
  async crashApplication(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
    for (const since = Date.now(); ; await pause(pollPause)) {
      try {
        await listen(this.server, this.port);
        return;
      } catch (error) {
        // A connection of another program may have taken the port for a moment.
        if (Date.now() - since > startLimit) throw error;
      }
    }
  }

  /** close ends the runtime and removes its data. */
  async close(): Promise<void> {
    await this.#crashed.catch(() => undefined);
    await this.#end('SIGKILL');
    process.off('exit', this.#killAtExit);
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
    rmSync(this.folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** rehearse runs a scenario and returns the moments of its calls. It is for everyCrash. */
  async rehearse(scenario: () => Promise<void>): Promise<string[]> {
    this.#moments = [];
    await scenario();
    return [...this.#moments];
  }

  /** crashing runs a scenario with a crash at one of its moments. It is for everyCrash. */
  async crashing(victim: 'application' | 'runtime', at: number, scenario: () => Promise<void>): Promise<void> {
    this.#moment = 0;
    this.#crash = { victim, at };
    try {
      await scenario();
    } finally {
      this.#crash = undefined;
      await this.#crashed;
    }
  }

  /** observe runs a call of the application, and crashes at its moments. */
  async #observe(request: Request, handler: (request: Request) => Promise<Response>): Promise<Response> {
    if (request.method !== 'POST') return handler(request);
    const bytes = await request.arrayBuffer();
    const { type, name } = JSON.parse(new TextDecoder().decode(bytes)) as { type: string; name?: string };
    const what = `${type}${name ? ` ${name}` : ''}`;
    const copy = new Request(request.url, {
      method: 'POST',
      headers: request.headers,
      body: bytes,
      signal: request.signal,
    });
    if (this.#reached(`before the ${what}`)) return new Promise(() => {}); // its connection is broken
    const response = await handler(copy);
    if (!response.body || response.status !== 200) return response;
    let rest = '';
    const decoder = new TextDecoder();
    const encoder = new TextEncoder();
    const watched = new TransformStream<Uint8Array, Uint8Array>({
      transform: async (chunk, controller) => {
        const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          const last = line.startsWith('{"result":') || line.startsWith('{"error":');
          if (last && this.#reached(`after the ${what}, before its answer`)) return new Promise(() => {});
          controller.enqueue(encoder.encode(`${line}\n`));
        }
      },
      flush: () => void this.#reached(`after the answer of the ${what}`),
    });
    return new Response(response.body.pipeThrough(watched), { headers: response.headers });
  }

  /** reached notes a moment, and reports whether the crash of everyCrash has begun there. */
  #reached(moment: string): boolean {
    this.#moments.push(moment);
    if (!this.#crash || this.#moment++ !== this.#crash.at) return false;
    this.#crashed = this.#crash.victim === 'runtime' ? this.crash() : this.crashApplication();
    this.#crashed.catch(() => undefined); // crashing waits for it, after the scenario
    return true;
  }

  /**
   * run starts the process and waits until it serves all agents. It starts it again while another program has its
   * port.
   */
  async #run(): Promise<void> {
    for (const since = Date.now(); ; await pause(pollPause)) {
      const from = this.#log.length;
      try {
        await this.#runOnce();
        return;
      } catch (error) {
        if (!this.#log.slice(from).includes('LISTEN_FAILED') || Date.now() - since > startLimit) throw error;
      }
    }
  }

  async #runOnce(): Promise<void> {
    const binary = this.options.binary || process.env.HOLDFAST_BIN || 'holdfast';
    const args = [
      'dev',
      '--listen',
      new URL(this.url).host,
      '--data',
      join(this.folder, 'data'),
      '--agents',
      join(this.folder, 'models.yaml'),
      '--endpoint',
      `http://127.0.0.1:${this.port}/`,
    ];
    const env = { ...process.env, HOLDFAST_EXECUTOR_ENDPOINT_SECRETS: this.secret, ...this.options.env };
    const child = spawn(binary, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#process = child;
    let ended: Error | undefined;
    child.once('error', (error) => {
      ended = new Error(`${binary} does not start: ${error.message}. Install holdfast, or name it with HOLDFAST_BIN.`);
    });
    child.once('exit', (code, signal) => {
      ended ??= new Error(`${binary} ended with ${signal ?? code}:\n${this.#log}`);
    });
    for (const output of [child.stdout, child.stderr]) {
      output.setEncoding('utf8').on('data', (text: string) => {
        this.#log = (this.#log + text).slice(-keptLog);
      });
    }
    const wanted = this.options.agents.map(({ name }) => name);
    for (const since = Date.now(); ; await pause(pollPause)) {
      if (ended) throw ended;
      const missing = await this.#missing(wanted);
      if (missing.length === 0) return;
      if (Date.now() - since > startLimit)
        throw new Error(`holdfast does not serve ${missing.join(', ')} after ${startLimit / 1000} s:\n${this.#log}`);
    }
  }

  /** missing returns the agents that the runtime does not serve yet. */
  async #missing(wanted: readonly string[]): Promise<readonly string[]> {
    try {
      const { data } = await this.client.http.GET('/agents');
      return wanted.filter(
        (name) => !data?.agents.some(({ agentType, executors }) => agentType === name && executors > 0),
      );
    } catch {
      return wanted.length > 0 ? wanted : ['anything'];
    }
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
    const exited = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await exited;
  }
}

/** scripted returns the agent with a scripted model of its name. */
function scripted(agent: Agent): Agent {
  if (agent.description.remote) return agent;
  const { fallbacks: _, ...description } = agent.description;
  return new Agent(
    agent.name,
    { ...description, model: `scripted/${agent.name}` },
    agent.source,
    [...agent.tools.values()],
    agent.callbacks,
    agent.methods,
  );
}

function listen(server: http.Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/** freePort returns a port that is free now. */
async function freePort(): Promise<number> {
  const server = http.createServer();
  const port = await listen(server, 0);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
