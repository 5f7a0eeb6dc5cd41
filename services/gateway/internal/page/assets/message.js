// A message, built from the parts of a UI message stream.

import { ask } from './ask.js';
import { make, write } from './dom.js';

// nameOf returns the name of a call's tool.
const nameOf = (part) => part.toolName ?? part.type.slice('tool-'.length);

// openCalls returns the calls of a message that its user can answer. A sub-agent or a companion answers its call itself.
export const openCalls = (message) => message.parts.filter((p) =>
  p.state === 'approval-requested' || p.state === 'input-available' && !/^(subagent|companion)__/.test(nameOf(p)));

// Builder applies the parts of a stream to the message. At the end of the stream, asked has
// the ids of the pending calls.
export class Builder {
  constructor(message, goesOn = false) {
    this.message = message;
    this.open = new Map(); // unfinished text and reasoning, by id
    this.inputs = new Map(); // unfinished arguments, by call
    this.goesOn = goesOn; // the first start part keeps the message
  }

  begin(id) {
    if (this.goesOn) {
      this.goesOn = false;
      return;
    }
    this.message.id = id ?? this.message.id;
    this.message.asked = [];
    this.message.parts.length = 0;
    delete this.message.metadata;
    this.open.clear();
    this.inputs.clear();
  }

  call(part) {
    const parts = this.message.parts;
    let found = parts.findLast((p) => p.toolCallId === part.toolCallId);
    if (!found) {
      found = { ...kindOf(part), toolCallId: part.toolCallId };
      parts.push(found);
    }
    return found;
  }

  add(part) {
    const parts = this.message.parts;
    switch (part.type) {
      case 'start':
        this.begin(part.messageId);
        this.describe(part.messageMetadata);
        break;
      case 'start-step':
        parts.push({ type: 'step-start' });
        break;
      case 'reset-step':
        parts.length = parts.findLastIndex((p) => p.type === 'step-start') + 1;
        this.open.clear();
        this.inputs.clear();
        break;
      case 'text-start':
      case 'reasoning-start': {
        const block = { type: part.type.split('-')[0], text: '', state: 'streaming' };
        this.open.set(part.id, block);
        parts.push(block);
        break;
      }
      case 'text-delta':
      case 'reasoning-delta': {
        const block = this.open.get(part.id);
        if (block) block.text += part.delta;
        break;
      }
      case 'text-end':
      case 'reasoning-end': {
        const block = this.open.get(part.id);
        if (block) block.state = 'done';
        this.open.delete(part.id);
        break;
      }
      case 'tool-input-start':
        this.inputs.set(part.toolCallId, '');
        Object.assign(this.call(part), { state: 'input-streaming', input: '' });
        break;
      case 'tool-input-delta': {
        const text = (this.inputs.get(part.toolCallId) ?? '') + part.inputTextDelta;
        this.inputs.set(part.toolCallId, text);
        this.call(part).input = parsed(text) ?? text;
        break;
      }
      case 'tool-input-available':
        Object.assign(this.call(part), { state: 'input-available', input: part.input });
        break;
      case 'tool-output-available':
        Object.assign(this.call(part), { state: 'output-available', output: part.output });
        break;
      case 'tool-output-error':
        Object.assign(this.call(part), { state: 'output-error', errorText: part.errorText });
        break;
      case 'tool-input-error':
        Object.assign(this.call(part), { state: 'output-error', input: part.input, errorText: part.errorText });
        break;
      case 'tool-output-denied':
        Object.assign(this.call(part), { state: 'output-denied' });
        break;
      case 'tool-approval-request':
        Object.assign(this.call(part), { state: 'approval-requested', approval: { id: part.approvalId } });
        break;
      case 'tool-approval-response': {
        const { approvalId: id, approved, reason } = part;
        const found = parts.find((p) => p.approval?.id === id);
        if (found) Object.assign(found, { state: 'approval-responded', approval: { ...found.approval, approved, ...(reason && { reason }) } });
        break;
      }
      case 'message-metadata':
        this.describe(part.messageMetadata);
        break;
      case 'finish':
        this.describe(part.messageMetadata);
        if (part.finishReason === 'interrupted') this.describe({ interrupted: 'interrupt' });
        this.message.asked = part.finishReason === 'tool-calls' ? openCalls(this.message).map((p) => p.toolCallId) : [];
        break;
      case 'error':
        parts.push({ type: 'failure', text: part.errorText });
        break;
      case 'data-notice': // what the model has refused
        parts.push({ type: part.type, id: part.id, data: part.data });
        break;
    }
  }

  describe(metadata) {
    if (metadata) this.message.metadata = { ...this.message.metadata, ...metadata };
  }
}

// kindOf returns the type of a call's part. A dynamic tool is known only at run time.
const kindOf = ({ toolName, dynamic }) => (dynamic ? { type: 'dynamic-tool', toolName } : { type: `tool-${toolName}` });

// parsed parses JSON. It returns undefined for incomplete text.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// render shows the parts of a message in its element. It reuses elements, to keep
// opened cards and selections.
export function render(element, message) {
  element.className = `message ${message.role}`;
  const shown = message.parts.filter((p) => p.type !== 'step-start');
  if (message.metadata?.interrupted) shown.push({ type: 'stopped', text: 'Stopped.' });
  shown.forEach((part, i) => {
    const kind = part.toolCallId ? 'tool' : part.type;
    let child = element.children[i];
    if (child?.dataset.kind !== kind) {
      const made = frame(kind);
      child ? child.replaceWith(made) : element.append(made);
      child = made;
    }
    fill(child, kind, part, message.asked?.includes(part.toolCallId));
  });
  while (element.children.length > shown.length) element.lastElementChild.remove();
}

function frame(kind) {
  let element;
  if (kind === 'tool') {
    element = make('details', 'tool', make('summary', '', make('span', 'name'), make('span', 'gist'), make('span', 'state')), make('dl', ''));
  } else if (kind === 'reasoning') {
    element = make('details', 'reasoning', make('summary', '', make('span', 'state')), make('div', 'body'));
  } else {
    element = make('div', kind === 'failure' ? kind : kind === 'stopped' || kind === 'data-notice' ? 'stopped' : 'text');
  }
  element.dataset.kind = kind;
  return element;
}

const states = {
  'input-streaming': 'preparing',
  'input-available': 'running',
  'output-available': 'done',
  'output-error': 'failed',
  'approval-requested': 'needs a yes',
  'approval-responded': 'answered',
  'output-denied': 'refused',
};

function fill(element, kind, part, asked) {
  if (kind === 'reasoning') {
    write(element.querySelector('.state'), part.state === 'streaming' ? 'Thinking…' : 'Thoughts');
    write(element.querySelector('.body'), part.text);
  } else if (kind === 'tool') {
    fillTool(element, part, asked);
  } else if (kind === 'text' || kind === 'failure' || kind === 'stopped') {
    write(element, part.text);
    element.classList.toggle('growing', part.state === 'streaming');
  } else if (kind === 'data-notice') {
    write(element, part.data?.text ?? '');
  } else {
    write(element, kind === 'file' ? `[${part.filename ?? part.mediaType}]` : '');
  }
}

// show formats a value, on one line if it is short.
function show(value) {
  if (typeof value === 'string') return value;
  const line = JSON.stringify(value) ?? '';
  return line.length <= 60 ? line : JSON.stringify(value, null, 2);
}

// gist returns the values of the input, for a closed card.
function gist(input) {
  const values = input && typeof input === 'object' ? Object.values(input) : [];
  return values.map(show).join(', ').slice(0, 120);
}

function fillTool(element, part, asked) {
  const name = nameOf(part);
  element.dataset.call = part.toolCallId;
  write(element.querySelector('.name'), name);
  write(element.querySelector('.gist'), gist(part.input));
  write(element.querySelector('.state'), asked ? 'waits for you' : (states[part.state] ?? part.state));
  element.classList.toggle('failed', part.state === 'output-error');
  const rows = [['Input', part.input]];
  if ('output' in part) rows.push(['Output', part.output]);
  if (part.errorText) rows.push(['Error', part.errorText]);
  if (part.approval?.reason) rows.push(['Reason', part.approval.reason]);
  const list = element.querySelector('dl');
  rows.forEach(([name, value], i) => {
    if (!list.children[2 * i]) list.append(make('dt', '', name), make('dd', '', make('pre', '')));
    write(list.children[2 * i], name);
    write(list.children[2 * i + 1].firstChild, show(value));
  });
  while (list.children.length > 2 * rows.length) list.lastElementChild.remove();
  const form = element.querySelector('.ask');
  if (asked && !form) ask(element, part, name);
  if (!asked && form) form.remove();
}
