import type { components } from './schema.js';

/** Chunk is an event of a session: text_delta, tool_start and so on. */
export interface Chunk {
  type: string;
  agentId: string;
  agentType: string;
  timestamp: number;
  step: number;
  [field: string]: unknown;
}

/** Frame is a frame of the native stream. `sessionId` names the session of a sub-agent. */
export type Frame =
  | { type: 'chunk'; sequence: number; chunk: Chunk; sessionId?: string }
  /** All stored events are delivered; live events follow. */
  | { type: 'caught-up' }
  /** Every chunk of the session after `at` is void; the following chunks replace it. */
  | { type: 'rewound'; at: number; sessionId?: string }
  | { type: 'end'; status: 'completed' | 'paused' | 'interrupted'; output?: unknown; usage?: components['schemas']['Usage']; completionReason?: string }
  | { type: 'fail'; error: string; errorDetail?: { code?: string }; recoverable: boolean };

/** ServerEvent is a server-sent event. */
export interface ServerEvent {
  name: string;
  data: string;
  id: string | undefined;
}

/** events yields the server-sent events of a body. A comment yields undefined: the connection lives. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent | undefined> {
  let event: ServerEvent = { name: 'message', data: '', id: undefined };
  for await (const line of lines(body)) {
    if (line === '') {
      if (event.data !== '') yield event;
      event = { name: 'message', data: '', id: undefined };
      continue;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === '') yield undefined;
    else if (field === 'event') event.name = value;
    else if (field === 'id') event.id = value;
    else if (field === 'data') event.data += event.data === '' ? value : `\n${value}`;
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return; // an incomplete line is void
      const parts = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
      rest = parts.pop() ?? '';
      yield* parts;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // the connection may be broken
  }
}
