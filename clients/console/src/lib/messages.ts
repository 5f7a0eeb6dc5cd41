/** The messages of a session as AgentService.ListMessages has them, in the JSON of the contract. */
export interface StoredMessage {
  ordinal?: string;
  message: {
    id: string;
    role: string; // ROLE_USER and so on
    parts?: StoredPart[];
    runId?: string;
    step?: number;
    createdAt?: string;
    hidden?: boolean;
  };
}

export interface StoredPart {
  text?: { text?: string };
  reasoning?: { text?: string };
  toolCall?: { toolCallId: string; toolName: string; arguments?: string };
  toolResult?: { toolCallId: string; toolName: string; result?: string; success?: boolean; error?: string; approval?: { approved?: boolean; reason?: string } };
  file?: { mediaType?: string; url?: string; filename?: string };
}

export interface MessagePage {
  messages?: StoredMessage[];
  total?: string;
  hasMore?: boolean;
}

/** Shown is a message of a conversation, with the results of its calls. */
export interface Shown {
  key: string;
  who: 'user' | 'agent' | 'system';
  at: number;
  step: number;
  runId: string;
  hidden: boolean;
  blocks: Block[];
}

export type Block =
  | { kind: 'text'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'file'; name: string; url: string }
  | { kind: 'call'; id: string; name: string; input: unknown; result: unknown; state: 'open' | 'done' | 'failed' | 'denied'; error: string };

type Call = Extract<Block, { kind: 'call' }>;

const roles: Record<string, Shown['who']> = { ROLE_USER: 'user', ROLE_ASSISTANT: 'agent', ROLE_TOOL: 'agent' };

/** conversation joins results to their calls. A result whose call is on an earlier page is a block of its own. */
export function conversation(messages: StoredMessage[]): Shown[] {
  const shown: Shown[] = [];
  const calls = new Map<string, Call>();
  for (const { message, ordinal } of messages) {
    const entry: Shown = {
      key: message.id || String(ordinal), who: roles[message.role] ?? 'system', at: Number(message.createdAt ?? 0), step: message.step ?? 0, runId: message.runId ?? '',
      hidden: message.hidden === true || message.role === 'ROLE_CONTEXT', blocks: [],
    };
    for (const part of message.parts ?? []) addPart(entry.blocks, part, calls);
    if (entry.blocks.length > 0) shown.push(entry);
  }
  return shown;
}

function addPart(blocks: Block[], part: StoredPart, calls: Map<string, Call>): void {
  if (part.text?.text) blocks.push({ kind: 'text', text: part.text.text });
  if (part.reasoning?.text) blocks.push({ kind: 'reasoning', text: part.reasoning.text });
  if (part.file) blocks.push({ kind: 'file', name: part.file.filename || part.file.mediaType || 'file', url: part.file.url ?? '' });
  if (part.toolCall) {
    const { toolCallId: id, toolName: name } = part.toolCall;
    const call: Call = { kind: 'call', id, name, input: part.toolCall.arguments, result: undefined, state: 'open', error: '' };
    blocks.push(call);
    calls.set(id, call);
  }
  if (part.toolResult) {
    const { toolCallId: id, toolName: name, result, success, error, approval } = part.toolResult;
    let call = calls.get(id);
    if (!call) {
      call = { kind: 'call', id, name, input: undefined, result: undefined, state: 'open', error: '' };
      blocks.push(call);
    }
    const denied = approval !== undefined && approval.approved !== true;
    call.state = success === true ? 'done' : denied ? 'denied' : 'failed';
    call.result = result;
    call.error = error ?? '';
  }
}
