// The forms of pending calls: approvals, and results of client tools.

import { make } from './dom.js';

const buttons = {
  'approval-requested': [['approve', 'Approve'], ['deny', 'Deny']],
  'input-available': [['result', 'Send result'], ['failure', 'Send as failure']],
};

// ask adds the form of a call to its card, until the call is answered.
export function ask(card, part, toolName) {
  const form = make('fieldset', 'ask');
  const approval = part.state === 'approval-requested';
  const field = document.createElement(approval ? 'input' : 'textarea');
  field.setAttribute('autocomplete', 'off');
  if (!approval) field.rows = 2;
  const label = make('label', '', make('span', '', approval ? 'Reason, if there is one' : 'Result, as JSON or text'), field);
  const row = make('div', 'row');
  for (const [answer, name] of buttons[part.state]) {
    const button = make('button', row.childElementCount > 0 ? 'quiet' : '', name);
    button.type = 'button'; // Enter in the field must not answer
    button.dataset.answer = answer;
    row.append(button);
  }
  form.append(make('legend', '', approval ? `May ${toolName} be called?` : `What is the result of ${toolName}?`), label, row);
  card.append(form);
  card.open = true;
}

// answered returns the part of the call with the answer of the form.
export function answered(part, answer, text) {
  const said = text.trim();
  const approval = { ...part.approval, approved: answer === 'approve' };
  if (said) approval.reason = said;
  switch (answer) {
    case 'approve':
    case 'deny':
      return { ...part, state: 'approval-responded', approval };
    case 'result':
      return { ...part, state: 'output-available', output: valueOf(said) };
    default:
      return { ...part, state: 'output-error', errorText: said || 'The tool has failed.' };
  }
}

// valueOf parses JSON. It returns other text as it is.
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
