import { answered } from './ask.js';
import { Builder, openCalls, render } from './message.js';

const keyName = 'holdfast-api-key';
const $ = (id) => document.getElementById(id);
const log = $('log');

let chat = ''; // the session's id
let begun = false; // the server may have the chat, and the hash of the address has its id
let messages = []; // {message, element}
let attempt = new AbortController(); // ends the requests of a closed chat
let busy = false;
let queued = false; // the notice says why the run has not begun

// The server has refused a request.
class Refused extends Error {
  constructor(status, body) {
    super(body.detail ? `${body.error} (${body.detail})` : body.error);
    this.status = status;
    this.code = body.code;
  }

  // transient: a retry may succeed.
  get transient() {
    return [429, 502, 503, 504].includes(this.status);
  }
}

// The connection to the server was lost.
class Lost extends Error {
  transient = true;
}

// rethrow throws Lost for a network failure of fetch or a stream, and other errors as they are.
function rethrow(error) {
  throw error instanceof TypeError ? new Lost('The connection was lost.', { cause: error }) : error;
}

async function call(path, options = {}) {
  const headers = { accept: 'application/json', ...options.headers };
  const key = sessionStorage.getItem(keyName);
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers, signal: attempt.signal }).catch(rethrow);
  if (response.ok) return response;
  const body = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (response.status === 401) $('unlock').hidden = false;
  throw new Refused(response.status, body);
}

const get = async (path) => (await call(path)).json().catch(rethrow);

// read yields the parts of a stream, each with the id of its event or ''. It
// throws if the stream is cut.
async function* read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read().catch(rethrow);
    if (done) rethrow(new TypeError('the stream ended before its end'));
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const lines = event.split('\n');
      const field = (name) => lines.find((l) => l.startsWith(name))?.slice(name.length);
      const data = field('data: ');
      if (data === '[DONE]') return;
      if (data) yield { id: field('id: ') ?? '', part: JSON.parse(data) };
    }
  }
}

function notice(text = '', bad = false) {
  $('notice').textContent = text;
  $('notice').classList.toggle('bad', bad);
}

function setBusy(value) {
  busy = value;
  queued = false;
  $('send').disabled = value;
  if (!value) $('stop').hidden = true;
  enableForms();
  log.setAttribute('aria-busy', String(value));
}

function add(message) {
  $('empty').hidden = true;
  const element = document.createElement('article');
  element.setAttribute('aria-label', message.role === 'user' ? 'You' : 'Agent');
  log.append(element);
  const entry = { message, element };
  messages.push(entry);
  draw(entry);
  return entry;
}

let due = new Set();
function draw(entry) {
  if (due.size === 0) {
    requestAnimationFrame(() => {
      const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
      for (const e of due) render(e.element, e.message);
      enableForms();
      due = new Set();
      if (follow) log.scrollTop = log.scrollHeight;
    });
  }
  due.add(entry);
}

// enableForms enables the forms of pending calls while no request is in flight.
function enableForms() {
  for (const form of log.querySelectorAll('.ask')) form.disabled = busy;
}

function clear() {
  for (const { element } of messages) element.remove();
  messages = [];
  $('empty').hidden = false;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// retry repeats the task until the server answers. The pauses grow and are
// jittered, so that not all pages reconnect to a restarted server at once.
async function retry(task) {
  const { signal } = attempt;
  for (let wait = 250; ; wait = Math.min(2 * wait, 5000)) {
    try {
      return await task();
    } catch (error) {
      if (!error.transient) throw error;
      notice(error instanceof Lost ? 'The connection was lost. Trying again…' : 'The server cannot answer now. Trying again…');
      await pause(wait * (0.75 + Math.random() / 2));
      signal.throwIfAborted();
    }
  }
}

// follow shows the live run, if any, and reconnects after the last event. response
// is the first connection, if any, and entry the message it continues, if any.
async function follow(response, entry) {
  let builder = entry && new Builder(entry.message, true);
  let cursor = '';
  let again = false;
  await retry(async () => {
    const headers = cursor ? { 'last-event-id': cursor } : {};
    if (!response && !cursor) builder = undefined; // the message comes from its start
    const stream = response ?? (await call(`/chat/${encodeURIComponent(chat)}/stream?aiSdk=7`, { headers }));
    response = undefined;
    if (stream.status === 204) {
      if (again) await loadMessages(); // the run has ended meanwhile
      return;
    }
    again = true;
    $('stop').hidden = false;
    notice();
    for await (const { id, part } of read(stream)) {
      if (part.type === 'start') {
        entry = messages.find((e) => e.message.id === part.messageId) ?? add({ id: part.messageId, role: 'assistant', parts: [] });
        if (!builder?.goesOn) builder = new Builder(entry.message);
      }
      if (queued) notice(); // the run has begun
      queued = false;
      builder?.add(part);
      cursor = id || cursor;
      if (entry) draw(entry);
    }
  });
}

async function work(task) {
  setBusy(true);
  try {
    await task();
    notice(waits() ? 'The agent waits for your answer.' : '');
  } catch (error) {
    if (error.name === 'AbortError') return;
    notice(error.message, true);
  }
  setBusy(false);
}

const waits = () => messages.at(-1)?.message.asked?.length > 0;

// pollStatus checks whether the agent still waits for the user, and why a run has not begun.
// Another client may have answered or stopped the conversation, and no stream reports that.
const pollInterval = 5000; // milliseconds
let polling = false;
let posting = false; // the server may not have the message, or the chat
async function pollStatus() {
  if (polling || posting || document.hidden || !begun || !(busy || waits())) return;
  const { signal } = attempt;
  polling = true;
  try {
    const { status, queuedReason } = await get(`/status?sessionId=${encodeURIComponent(chat)}`);
    if (!signal.aborted && busy && queuedReason) {
      queued = true;
      notice(`The answer has not begun: ${queuedReason.detail}.`);
    }
    if (signal.aborted || busy || !waits() || /^(suspended|interrupted|paused)/.test(status)) return;
    work(show);
  } catch {
    // The next poll may succeed.
  } finally {
    polling = false;
  }
}

// post sends a message and retries. The server counts it once.
async function post(message, headers = {}) {
  const body = { id: chat, messages: [message], trigger: 'submit-message', agentType: $('agent').value || undefined };
  if (message.role === 'assistant') body.messageId = message.id;
  const options = { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) };
  posting = true;
  try {
    return await retry(() => call('/chat?aiSdk=7', options));
  } finally {
    posting = false;
  }
}

// answer sends the answer to one call, and follows the rest of the message.
async function answer(entry, part) {
  const { message } = entry;
  message.parts = message.parts.map((p) => (p.toolCallId === part.toolCallId ? part : p));
  message.asked = message.asked.filter((id) => id !== part.toolCallId);
  draw(entry);
  const parts = message.parts.filter((p) => p.type !== 'failure');
  let response;
  try {
    response = await post({ id: message.id, role: 'assistant', parts });
  } catch (error) {
    if (error instanceof Refused) { // another client may have answered: load the conversation
      await show();
    }
    throw error;
  }
  await follow(response, entry);
}

// closeCalls closes the pending calls, because a new message replaces their answers.
function closeCalls(entry) {
  if (!entry?.message.asked?.length) return;
  for (const part of openCalls(entry.message)) part.state = 'output-error';
  entry.message.asked = [];
  draw(entry);
}

async function send(text) {
  const message = { id: crypto.randomUUID?.() ?? newID(), role: 'user', parts: [{ type: 'text', text }] };
  const last = messages.at(-1);
  const entry = add(message);
  log.scrollTop = log.scrollHeight;
  if (!begun) {
    begun = true;
    history.replaceState(null, '', `#${encodeURIComponent(chat)}`);
  }
  let response;
  try {
    response = await post(message, { 'x-holdfast-request-key': message.id }); // which makes a repetition safe
    closeCalls(last);
  } catch (error) {
    if (error instanceof Refused) {
      entry.element.remove();
      messages = messages.filter((e) => e !== entry);
      $('text').value ||= text;
    }
    throw error;
  }
  $('agent').disabled = true;
  await follow(response);
}

async function load() {
  const agents = await retry(() => get('/agents'));
  $('agent').replaceChildren(...agents.agents.map((a) => {
    const option = new Option(a.agentType, a.agentType, false, a.agentType === agents.default);
    option.title = a.description;
    return option;
  }));
  if (begun) await show();
}

// show loads the conversation and follows its live run.
async function show() {
  await retry(loadMessages);
  await follow();
}

// loadMessages shows the stored conversation.
async function loadMessages() {
  const session = `sessionId=${encodeURIComponent(chat)}`;
  const loaded = [];
  for (let offset = 0, more = true; more;) {
    const page = await get(`/messages?${session}&offset=${offset}&limit=200`);
    if (!page.total) return; // a chat that has not begun
    loaded.push(...page.messages);
    offset = page.offset + page.limit;
    more = page.hasMore;
  }
  const status = await get(`/status?${session}`);
  $('agent').value = status.agentType;
  $('agent').disabled = true;
  clear();
  loaded.forEach(add);
}

function newID() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

function hashID() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return '';
  }
}

function open() {
  attempt.abort();
  attempt = new AbortController();
  chat = hashID();
  begun = chat !== '';
  chat ||= newID();
  clear();
  $('agent').disabled = false;
  notice();
  work(load);
  $('text').focus();
}

$('compose').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (!text || busy) return;
  $('text').value = '';
  work(() => send(text));
});

// The stream shows the end of the run.
$('stop').addEventListener('click', async () => {
  $('stop').hidden = true;
  $('text').focus();
  try {
    await call(`/chat/${encodeURIComponent(chat)}/interrupt`, { method: 'POST' });
  } catch (error) {
    if (error.name === 'AbortError') return;
    $('stop').hidden = !busy;
    notice(error.message, true);
  }
});

log.addEventListener('click', (event) => {
  const button = event.target.closest('[data-answer]');
  const entry = button && messages.find((e) => e.element.contains(button));
  if (!entry || busy) return;
  const card = button.closest('[data-call]');
  const part = entry.message.parts.find((p) => p.toolCallId === card.dataset.call);
  const text = card.querySelector('.ask :is(input, textarea)').value;
  work(() => answer(entry, answered(part, button.dataset.answer, text)));
  $('text').focus(); // the button is removed
});

$('ideas').addEventListener('click', (event) => {
  if (event.target.type !== 'button' || busy) return;
  work(() => send(event.target.textContent));
  $('text').focus();
});

$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $('compose').requestSubmit();
  }
});

$('unlock').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem(keyName, $('key').value.trim());
  $('key').value = '';
  $('unlock').hidden = true;
  open();
});

$('fresh').addEventListener('click', () => {
  if (begun) history.pushState(null, '', location.pathname);
  open();
});

setInterval(pollStatus, pollInterval);
document.addEventListener('visibilitychange', pollStatus);

// The user has moved in the history, or edited the address.
window.addEventListener('popstate', () => {
  if (hashID() !== (begun ? chat : '')) open();
});

open();
