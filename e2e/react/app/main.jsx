// A page with useChat as apps have it: the query says which session it shows, and
// its hash that the session has begun.
//   session, agent: of the conversation
//   gateway: where it is, if not at the page's own origin; key: its API key
//   strict: wraps the page in React's strict mode
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Conversation } from './conversation.jsx';

const query = new URLSearchParams(location.search);
const server = {
  url: query.get('gateway') ?? '',
  headers: query.has('key') ? { Authorization: `Bearer ${query.get('key')}` } : {},
};
const session = query.get('session');

let messages = [];
if (location.hash === '#begun') {
  const path = `/messages?sessionId=${encodeURIComponent(session)}&limit=200`;
  const response = await fetch(server.url + path, { headers: server.headers });
  ({ messages } = await response.json());
}
const conversation = <Conversation server={server} session={session} agent={query.get('agent')} stored={messages} />;
createRoot(document.getElementById('root')).render(query.has('strict') ? <StrictMode>{conversation}</StrictMode> : conversation);
