// A chat as user interfaces build it on the `ai` package: AbstractChat with a
// state that lives in memory, over the package's own transports. The package is
// the option sdk: ai (7), ai6 or ai5.
import { socketTransport } from './socket.mjs';

class MemoryState {
  status = 'ready';
  error = undefined;
  messages = [];

  constructor(messages) {
    this.messages = messages;
  }

  pushMessage = (message) => {
    this.messages = [...this.messages, this.snapshot(message)];
  };

  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };

  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, this.snapshot(message));
  };

  snapshot = (value) => structuredClone(value);
}

// Opens a chat on its options:
//   api, key, agent, session    where and with whom
//   messages                    that the page has loaded
//   tools                       what the page's tools answer, by name: {output} or {errorText}
//   auto                        when it sends on by itself: "tools", "approvals", "both"; else never
//   fetch, headers, body        for the transport
//   lastOnly                    sends the last message alone, as `message`
//   socket                      opens a WebSocket, for the transport of 7 that has one
export async function openChat(options) {
  const sdk = await import(options.sdk ?? 'ai');
  return new (chatOf(sdk))(sdk, options);
}

// The requests of each kind that an app sends on by itself.
const sendsOn = {
  tools: (sdk) => sdk.lastAssistantMessageIsCompleteWithToolCalls,
  approvals: (sdk) => sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
  both: (sdk) => (chat) => sendsOn.tools(sdk)(chat) || (sendsOn.approvals(sdk)?.(chat) ?? false), // 5 has no approvals
};

function transportOf(sdk, { api, key, agent, fetch, headers, body, lastOnly, socket }) {
  const authorization = key ? { Authorization: `Bearer ${key}` } : {};
  const options = { headers: { ...headers }, body: { ...(agent ? { agentType: agent } : {}), ...body } };
  if (socket) {
    return socketTransport(sdk, socket, options);
  }
  return new sdk.DefaultChatTransport({
    ...options,
    headers: { ...authorization, ...options.headers },
    api,
    fetch,
    ...(lastOnly && {
      prepareSendMessagesRequest: ({ id, messages, body }) => ({ body: { ...body, id, message: messages.at(-1) } }),
    }),
  });
}

const chatOf = (sdk) =>
  class Chat extends sdk.AbstractChat {
    // What the callbacks were told, in their order.
    toolCalls = [];
    data = [];
    errors = [];
    finishes = [];

    constructor(sdk, options) {
      const { session, messages = [], tools = {}, auto } = options;
      super({
        id: session,
        state: new MemoryState(messages),
        transport: transportOf(sdk, options),
        sendAutomaticallyWhen: sendsOn[auto]?.(sdk),
        onToolCall: ({ toolCall: { toolName, toolCallId } }) => {
          this.toolCalls.push(toolName);
          const answer = tools[toolName];
          if (answer) {
            // Not awaited: it waits for the stream, which waits for this callback.
            void this.answer(toolCallId, toolName, answer);
          }
        },
        onData: ({ type, data }) => {
          this.data.push({ type, data });
        },
        onError: (error) => {
          this.errors.push(error.message);
        },
        onFinish: ({ isAbort, isDisconnect, isError, finishReason }) => {
          this.finishes.push({ isAbort, isDisconnect, isError, finishReason });
        },
      });
    }

    answer(toolCallId, tool, { output, errorText }) {
      return errorText === undefined
        ? this.addToolOutput({ tool, toolCallId, output })
        : this.addToolOutput({ tool, toolCallId, state: 'output-error', errorText });
    }

    // The newest part of the tool, in the newest message that has one.
    part(tool) {
      const parts = this.messages.flatMap((message) => message.parts);
      const part = parts.findLast(({ type, toolName }) => type === `tool-${tool}` || (type === 'dynamic-tool' && toolName === tool));
      if (!part) {
        throw new Error(`the chat has no call of ${tool}`);
      }
      return part;
    }

    text() {
      return (this.lastMessage?.role === 'assistant' ? this.lastMessage.parts : [])
        .filter((part) => part.type === 'text')
        .map((part) => part.text)
        .join('');
    }

    result() {
      return {
        status: this.status,
        error: this.error?.message ?? '',
        messages: this.messages,
        toolCalls: this.toolCalls,
        data: this.data,
        errors: this.errors,
        finishes: this.finishes,
      };
    }

    // Resolves when the answer, which has been asked for, has this many characters
    // of text.
    async textOf(length) {
      const ended = this.finishes.length;
      while (this.text().length < length) {
        if (this.finishes.length > ended) {
          throw new Error(`the answer ended (${this.status}) with ${JSON.stringify(this.text())}`);
        }
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  };
