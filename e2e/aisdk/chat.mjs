// A chat as user interfaces build it on the `ai` package: AbstractChat with a
// state that lives in memory, over the unmodified DefaultChatTransport.
import { AbstractChat, DefaultChatTransport } from 'ai';

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

export class Chat extends AbstractChat {
  // What the callbacks were told, in their order.
  toolCalls = [];
  errors = [];
  finishes = [];

  constructor({ api, key, agent, session, messages = [], fetch }) {
    const state = new MemoryState(messages);
    super({
      id: session,
      state,
      transport: new DefaultChatTransport({
        api,
        headers: key ? { Authorization: `Bearer ${key}` } : {},
        body: agent ? { agentType: agent } : {},
        fetch,
      }),
      onToolCall: ({ toolCall }) => {
        this.toolCalls.push(toolCall.toolName);
      },
      onError: (error) => {
        this.errors.push(error.message);
      },
      onFinish: ({ isAbort, isDisconnect, isError, finishReason }) => {
        this.finishes.push({ isAbort, isDisconnect, isError, finishReason });
      },
    });
  }

  result() {
    return {
      status: this.status,
      error: this.error?.message ?? '',
      messages: this.messages,
      toolCalls: this.toolCalls,
      errors: this.errors,
      finishes: this.finishes,
    };
  }

  // Resolves when the answer, which has been asked for, has this many characters
  // of text.
  async textOf(length) {
    const text = () =>
      (this.lastMessage?.role === 'assistant' ? this.lastMessage.parts : [])
        .filter((part) => part.type === 'text')
        .map((part) => part.text)
        .join('');
    while (text().length < length) {
      if (this.finishes.length > 0) {
        throw new Error(`the answer ended (${this.status}) with ${JSON.stringify(text())}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}
