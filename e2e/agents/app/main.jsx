// The smallest page with useAgent and useAgentChat. It shows what they give.
import { Suspense, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { useAgent } from 'agents/react';
import { useAgentChat } from '@cloudflare/ai-chat/react';

const query = new URLSearchParams(location.search);

// Hands over the frames of a burst in one task, as sockets outside of browsers do: the client then reads the last frame
// before it has applied the first part.
class BurstSocket extends WebSocket {
  addEventListener(type, listener, options) {
    if (type !== 'message') {
      super.addEventListener(type, listener, options);
      return;
    }
    let burst = [];
    let quiet;
    super.addEventListener(type, (event) => {
      burst.push(event);
      clearTimeout(quiet);
      quiet = setTimeout(() => {
        const frames = burst;
        burst = [];
        frames.forEach((frame) => listener.call(this, frame));
      }, 300);
    });
  }
}

function Page() {
  const [state, setState] = useState();
  const agent = useAgent({
    agent: 'demo',
    name: query.get('name'),
    host: query.get('host'),
    protocols: ['holdfast.v2', `holdfast.key.${query.get('key')}`],
    onStateUpdate: setState,
    WebSocket: query.get('burst') ? BurstSocket : undefined,
  });
  const chat = useAgentChat({
    agent,
    headers: { Authorization: `Bearer ${query.get('key')}` },
    onToolCall: query.get('answer')
      ? ({ toolCall, addToolOutput }) => {
          addToolOutput({ toolCallId: toolCall.toolCallId, output: query.get('answer') });
          for (const end = Date.now() + Number(query.get('busy')); Date.now() < end; ); // the page is at work
        }
      : undefined,
  });
  Object.assign(window, { agent, chat });
  const busy = chat.isStreaming || chat.status !== 'ready';
  return (
    <main data-ready={String(agent.identified && !busy)} data-identified={String(agent.identified)}>
      <pre id="state">{JSON.stringify(state) ?? ''}</pre>
      <pre id="error">{chat.error?.message}</pre>
      {chat.messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          {JSON.stringify(message.parts)}
        </article>
      ))}
    </main>
  );
}

createRoot(document.getElementById('root')).render(
  <Suspense fallback="loading">
    <Page />
  </Suspense>,
);
