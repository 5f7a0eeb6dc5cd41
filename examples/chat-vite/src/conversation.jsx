import { useRef, useState } from 'react';
import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport } from 'ai';
import { server, stopRun } from './server.js';

const transport = new DefaultChatTransport({
  api: `${server}/chat?aiSdk=7`, // this app is on ai 7
  body: import.meta.env.VITE_HOLDFAST_AGENT ? { agentType: import.meta.env.VITE_HOLDFAST_AGENT } : {},
});

export function Conversation({ id, stored, onChange }) {
  const { messages, status, error, sendMessage, regenerate } = useChat({ id, messages: stored, resume: stored.length > 0, transport, onFinish: onChange });
  const [text, setText] = useState('');
  const [edited, setEdited] = useState(); // id of the message
  const photos = useRef(null);
  const busy = status === 'submitted' || status === 'streaming';

  function submit(event) {
    event.preventDefault();
    const files = photos.current.files;
    sendMessage({ text, ...(files.length > 0 && { files }), ...(edited && { messageId: edited }) });
    event.target.reset();
    setText('');
    setEdited(undefined);
  }

  return (
    <main data-status={status}>
      <div role="log">
        {messages.map((message) => (
          <article key={message.id} aria-label={message.role}>
            {message.parts.map((part, i) => <Part key={i} part={part} />)}
            {message.role === 'user' && (
              <button onClick={() => { setEdited(message.id); setText(message.parts.find((part) => part.type === 'text')?.text ?? ''); }}>Edit</button>
            )}
          </article>
        ))}
      </div>
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <input aria-label="Photo" type="file" accept="image/*" ref={photos} />
        <button disabled={busy}>Send</button>
        <button type="button" disabled={!busy} onClick={() => stopRun(id)}>Stop</button>
        <button type="button" disabled={busy} onClick={() => regenerate()}>Again</button>
      </form>
    </main>
  );
}

function Part({ part }) {
  switch (part.type) {
    case 'text':
      return <p>{part.text}</p>;
    case 'file':
      return <img src={new URL(part.url, server)} alt={part.filename ?? 'a photo'} />;
    default:
      return null;
  }
}
