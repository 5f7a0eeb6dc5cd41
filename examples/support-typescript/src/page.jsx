import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { useState } from 'react';
import { createRoot } from 'react-dom/client';

const transport = new DefaultChatTransport({ api: `${window.gateway}/chat?aiSdk=7`, body: { agentType: 'support' } });

function Chat() {
  const { messages, status, error, sendMessage, addToolApprovalResponse } = useChat({
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses, // continues after the last answer
  });
  const [text, setText] = useState('');
  return (
    <main data-status={status}>
      {messages.map(({ id, role, parts }) => (
        <article key={id} aria-label={role}>
          {parts.map((part, i) => {
            if (part.type === 'text') return <p key={i}>{part.text}</p>;
            if (!('toolCallId' in part)) return null;
            const call = `${part.type.slice('tool-'.length)} ${JSON.stringify(part.input ?? {})}`;
            if (part.state !== 'approval-requested') return <pre key={i}>{call}</pre>;
            const answer = (approved) => addToolApprovalResponse({ id: part.approval.id, approved });
            return (
              <div key={i} role="group" aria-label="Approval">
                <pre>{call}</pre>
                <button onClick={() => answer(true)}>Approve</button>
                <button onClick={() => answer(false)}>Deny</button>
              </div>
            );
          })}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void sendMessage({ text });
          setText('');
        }}
      >
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button>Send</button>
      </form>
    </main>
  );
}

createRoot(document.getElementById('root')).render(<Chat />);
