import { StrictMode, useCallback, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { Conversation } from './conversation.jsx';
import { branch, deleteSession, listSessions, loadMessages } from './server.js';

function App() {
  const [sessions, setSessions] = useState([]);
  const [open, setOpen] = useState(); // {id, stored}
  const refresh = useCallback(async () => setSessions(await listSessions()), []);
  useEffect(() => void refresh(), [refresh]);

  // The stored messages come first; useChat then resumes the answer in progress.
  const openSession = async (id) => setOpen({ id, stored: await loadMessages(id) });

  async function copy(id) {
    await openSession(await branch(id));
    await refresh();
  }

  async function remove(id) {
    await deleteSession(id);
    if (open?.id === id) setOpen(undefined);
    await refresh();
  }

  return (
    <>
      <nav aria-label="Conversations">
        <button onClick={() => setOpen({ id: crypto.randomUUID(), stored: [] })}>New</button>
        <ul>
          {sessions.map(({ sessionId, title, stepCount }) => (
            <li key={sessionId} aria-current={sessionId === open?.id}>
              <button onClick={() => openSession(sessionId)}>{title || sessionId}</button>
              <button onClick={() => copy(sessionId)} disabled={!stepCount}>Branch</button>
              <button onClick={() => remove(sessionId)}>Delete</button>
            </li>
          ))}
        </ul>
      </nav>
      {open && <Conversation key={open.id} id={open.id} stored={open.stored} onChange={refresh} />}
    </>
  );
}

createRoot(document.getElementById('root')).render(<StrictMode><App /></StrictMode>);
