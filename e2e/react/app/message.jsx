import { useState } from 'react';
import { getToolName, isToolUIPart } from 'ai';

export function Message({ message, onAnswer, onEdit }) {
  const text = message.parts.filter((part) => part.type === 'text').map((part) => part.text).join('');
  return (
    <article aria-label={message.role} data-id={message.id}>
      {message.parts.map((part, index) => (
        <Part key={index} part={part} onAnswer={onAnswer} />
      ))}
      {message.role === 'user' && <button type="button" onClick={() => onEdit(text)}>Edit</button>}
    </article>
  );
}

function Part({ part, onAnswer }) {
  if (isToolUIPart(part)) {
    return <Tool part={part} onAnswer={onAnswer} />;
  }
  switch (part.type) {
    case 'step-start':
      return null;
    case 'text':
    case 'reasoning':
      return <p data-part={part.type}>{part.text}</p>;
    default:
      return <p data-part={part.type}>{JSON.stringify(part.data)}</p>;
  }
}

function Tool({ part, onAnswer }) {
  const [reason, setReason] = useState('');
  const answer = (approved) => onAnswer({ id: part.approval.id, approved, reason: reason || undefined });
  return (
    <section data-part={part.type} data-call={part.toolCallId} data-approval={part.approval?.id} aria-label={getToolName(part)}>
      <output>{part.state}</output>
      {part.input !== undefined && <pre data-of="input">{JSON.stringify(part.input)}</pre>}
      {part.output !== undefined && <pre data-of="output">{JSON.stringify(part.output)}</pre>}
      {part.errorText && <pre data-of="error">{part.errorText}</pre>}
      {part.state === 'approval-requested' && (
        <fieldset aria-label="Approval">
          <input aria-label="Reason" value={reason} onChange={(event) => setReason(event.target.value)} />
          <button type="button" onClick={() => answer(true)}>Approve</button>
          <button type="button" onClick={() => answer(false)}>Deny</button>
        </fieldset>
      )}
      {part.approval?.reason && <p data-of="reason">{part.approval.reason}</p>}
    </section>
  );
}
