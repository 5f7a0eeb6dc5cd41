/** Part is a part of a message. */
export type Part =
  | { type: 'text'; text: string }
  | { type: 'reasoning'; text: string }
  | ({ type: 'tool-call' } & ToolCall)
  | ({ type: 'tool-result' } & ToolResult)
  | { type: 'file'; mediaType: string; url: string; filename?: string };

/** Message is a message of the conversation. */
export interface Message {
  id: string;
  role: 'user' | 'assistant' | 'tool' | 'system' | 'context';
  parts: Part[];
  metadata?: Record<string, string>;
}

/** ToolCall is a call as the model wrote it. */
export interface ToolCall {
  callId: string;
  name: string;
  arguments: unknown;
}

/** ToolResult is the result of a call. A failed one has an `error`. */
export interface ToolResult {
  callId: string;
  name: string;
  success: boolean;
  result?: unknown;
  error?: string;
}

/** textOf returns the text of a message. */
export function textOf(message: Message): string {
  return message.parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
}
