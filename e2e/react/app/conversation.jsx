import { useEffect, useMemo, useRef, useState } from 'react';
import { useChat } from '@ai-sdk/react';
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';
import { Message } from './message.jsx';

// clientTools are the tools that the page runs. The others are the server's, for
// which onToolCall is called, too.
const clientTools = ['locate', 'survey'];

// pause is how long the page waits before it looks for the server again.
const pause = 200;

export function Conversation({ server, session, agent, stored }) {
  const [text, setText] = useState('');
  const [edited, setEdited] = useState(); // the id of the message that is edited
  const running = useRef(new Set()); // calls, so that a replay does not begin them again
  const transport = useMemo(
    () => new DefaultChatTransport({ api: `${server.url}/chat?aiSdk=7`, headers: server.headers, body: { agentType: agent } }),
    [server, agent],
  );
  const { messages, setMessages, status, error, sendMessage, stop: leave, regenerate, resumeStream, addToolOutput, addToolApprovalResponse } = useChat({
    id: session,
    messages: stored,
    resume: true,
    transport,
    sendAutomaticallyWhen: (chat) =>
      lastAssistantMessageIsCompleteWithToolCalls(chat) || lastAssistantMessageIsCompleteWithApprovalResponses(chat),
    onToolCall: ({ toolCall }) => {
      if (clientTools.includes(toolCall.toolName) && !running.current.has(toolCall.toolCallId)) {
        running.current.add(toolCall.toolCallId);
        runTool(toolCall); // to wait for it here would be to wait for oneself
      }
    },
  });

  // runTool asks the page's own server, which is the test.
  async function runTool({ toolName, toolCallId, input }) {
    const response = await fetch(`/tools/${toolName}`, { method: 'POST', body: JSON.stringify({ session, toolCallId, input }) });
    const { output, error: errorText } = await response.json();
    addToolOutput(errorText ? { tool: toolName, toolCallId, state: 'output-error', errorText } : { tool: toolName, toolCallId, output });
  }

  // A connection that breaks off is a TypeError; what the server says is not.
  useEffect(() => {
    if (status !== 'error' || !(error instanceof TypeError)) {
      return undefined;
    }
    const timer = setTimeout(resumeStream, pause);
    return () => clearTimeout(timer);
  }, [status, error, resumeStream]);

  function submit(event) {
    event.preventDefault();
    history.replaceState(null, '', '#begun');
    sendMessage(edited ? { text, messageId: edited } : { text });
    setText('');
    setEdited(undefined);
  }

  // The run ends by itself, and its stream says so.
  function stop() {
    fetch(`${server.url}/chat/${encodeURIComponent(session)}/interrupt`, { method: 'POST', headers: server.headers });
  }

  // Editors of conversations cut them before the edited message, and send its new form as a new message.
  async function retype() {
    await leave();
    setMessages((all) => all.slice(0, all.findLastIndex((message) => message.role === 'user')));
  }

  const busy = status === 'submitted' || status === 'streaming';
  return (
    <main data-status={status}>
      <div role="log">
        {messages.map((message) => (
          <Message
            key={message.id}
            message={message}
            onAnswer={addToolApprovalResponse}
            onEdit={(old) => {
              setEdited(message.id);
              setText(old);
            }}
          />
        ))}
      </div>
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button type="submit" disabled={busy}>Send</button>
        <button type="button" disabled={!busy} onClick={stop}>Stop</button>
        <button type="button" disabled={busy} onClick={() => regenerate()}>Again</button>
        <button type="button" onClick={retype}>Retype</button>
      </form>
    </main>
  );
}
