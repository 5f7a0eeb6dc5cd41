// The gateway. Without API keys it accepts pages of this machine from any port; otherwise
// HOLDFAST_GATEWAY_CORS_ORIGINS lists them.
export const server = import.meta.env.VITE_HOLDFAST_URL ?? 'http://127.0.0.1:8080';

async function call(path, method = 'GET', body) {
  const response = await fetch(server + path, {
    method,
    headers: { accept: 'application/json', ...(body && { 'content-type': 'application/json' }) },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

const query = (id) => `sessionId=${encodeURIComponent(id)}`;
const path = encodeURIComponent;

export const listSessions = async () => (await call('/sessions?roots=true&limit=50')).sessions;

export async function loadMessages(id) {
  const messages = [];
  for (let more = true, offset = 0; more; ) {
    const page = await call(`/messages?${query(id)}&limit=200&offset=${offset}`);
    messages.push(...page.messages);
    more = page.hasMore;
    offset = page.offset + page.limit;
  }
  return messages;
}

export const deleteSession = (id) => call(`/sessions/${path(id)}`, 'DELETE');

// stopRun ends the run. stop() of useChat would only close the stream.
export const stopRun = (id) => call(`/chat/${path(id)}/interrupt`, 'POST', { reason: 'stopped by the user' });

// branch copies the conversation as of its newest step into a new session. The session has a step.
export async function branch(id) {
  const { checkpoints } = await call(`/checkpoints?${query(id)}&limit=1`);
  const { session } = await call('/branch', 'POST', { sessionId: id, checkpointId: checkpoints[0].checkpointId });
  return session.sessionId;
}
