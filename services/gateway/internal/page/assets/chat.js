import { Builder, render } from './message.js';

const keyName = 'holdfast-api-key';
const $ = (id) => document.getElementById(id);
const log = $('log');

let chat = ''; // the session's id, also the hash of the address
let messages = []; // {message, element}
let attempt = new AbortController(); // ends what belongs to a chat that was left
let busy = false;

class Refused extends Error {
  constructor(status, body) {
    super(body.detail ? `${body.error} (${body.detail})` : body.error);
    this.status = status;
    this.code = body.code;
  }
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  const key = sessionStorage.getItem(keyName);
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers, signal: attempt.signal });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (response.status === 401) $('unlock').hidden = false;
  throw new Refused(response.status, body);
}

// read gives the parts of a stream. It throws when the stream breaks off.
async function* read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new TypeError('the stream broke off');
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const line = event.split('\n').find((l) => l.startsWith('data: '));
      if (line === 'data: [DONE]') return;
      if (line) yield JSON.parse(line.slice('data: '.length));
    }
  }
}

function notice(text = '', bad = false) {
  $('notice').textContent = text;
  $('notice').classList.toggle('bad', bad);
}

function setBusy(value) {
  busy = value;
  $('send').disabled = value;
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
      due = new Set();
      if (follow) log.scrollTop = log.scrollHeight;
    });
  }
  due.add(entry);
}

// show takes a stream into the conversation. A message that is there already is
// built anew in its place.
async function show(response) {
  let entry, builder;
  for await (const part of read(response)) {
    if (part.type === 'start') {
      entry = messages.find((e) => e.message.id === part.messageId) ?? add({ id: part.messageId, role: 'assistant', parts: [] });
      builder = new Builder(entry.message);
    }
    builder?.add(part);
    if (entry) draw(entry);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// attach follows the run that is going on, if there is one, through as many
// connections as it takes.
async function attach(response) {
  for (let wait = 250; ; wait = Math.min(2 * wait, 5000)) {
    try {
      response ??= await call(`/chat/${encodeURIComponent(chat)}/stream`);
      if (response.status === 204) return;
      await show(response);
      return;
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
      notice('The connection was lost. Trying again…');
      response = undefined;
      await pause(wait);
      attempt.signal.throwIfAborted();
    }
  }
}

async function work(task) {
  setBusy(true);
  try {
    await task();
    notice();
  } catch (error) {
    if (error.name === 'AbortError') return;
    notice(error.message, true);
  }
  setBusy(false);
}

async function send(text) {
  const message = { id: crypto.randomUUID?.() ?? newID(), role: 'user', parts: [{ type: 'text', text }] };
  const options = {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-holdfast-request-key': message.id },
    body: JSON.stringify({ id: chat, messages: [message], trigger: 'submit-message', agentType: $('agent').value || undefined }),
  };
  const entry = add(message);
  log.scrollTop = log.scrollHeight;
  try {
    const response = await post(options);
    $('agent').disabled = true;
    await attach(response);
  } catch (error) {
    if (error instanceof Refused) {
      entry.element.remove();
      messages = messages.filter((e) => e !== entry);
      $('text').value ||= text;
    }
    throw error;
  }
}

// post sends once more when the connection fails: the key in the request makes
// that safe.
async function post(options) {
  try {
    return await call('/chat', options);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    await pause(500);
    return call('/chat', options);
  }
}

async function load() {
  const agents = await (await call('/agents')).json();
  $('agent').replaceChildren(...agents.agents.map((a) => {
    const option = new Option(a.agentType, a.agentType, false, a.agentType === agents.default);
    option.title = a.description;
    return option;
  }));
  await loadMessages();
  await attach();
}

async function loadMessages() {
  for (let offset = 0, more = true; more;) {
    let page;
    try {
      page = await (await call(`/messages?sessionId=${encodeURIComponent(chat)}&offset=${offset}&limit=200`)).json();
    } catch (error) {
      if (error.status === 404) return; // a chat that has not begun
      throw error;
    }
    page.messages.forEach(add);
    offset = page.offset + page.limit;
    more = page.hasMore;
  }
  const status = await (await call(`/status?sessionId=${encodeURIComponent(chat)}`)).json();
  $('agent').value = status.agentType;
  $('agent').disabled = true;
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
  if (!chat) {
    chat = newID();
    history.replaceState(null, '', `#${encodeURIComponent(chat)}`);
  }
  for (const { element } of messages) element.remove();
  messages = [];
  $('empty').hidden = false;
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
  location.hash = encodeURIComponent(newID());
});

window.addEventListener('hashchange', () => {
  if (hashID() !== chat) open();
});

open();
