package chat

import (
	"cmp"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// intent is the purpose of a POST.
type intent int

// The intents.
const (
	send       intent = iota // send a user message
	answer                   // answer calls of the last assistant message
	edit                     // replace a user message
	regenerate               // write another answer to a user message
	attach                   // read the rest of the last assistant message
)

const (
	triggerSubmit     = "submit-message"
	triggerRegenerate = "regenerate-message"
)

// operation is an intent with its arguments.
type operation struct {
	intent   intent
	message  *eventv1.Message // of send and edit; of regenerate if the client sent it
	target   string           // of edit and regenerate: the message to go back to, which may be an assistant's for regenerate
	answerID string           // of regenerate: the answer to replace; "" for any
	reply    *reply           // the newest assistant message; nil for none
}

// operation returns the operation of the request. Invalid: MESSAGE_INVALID, ID_INVALID,
// FILE_INVALID, TRIGGER_UNSUPPORTED.
func (r *request) operation() (operation, error) {
	s := r.excerpt()
	switch {
	case r.Trigger == triggerRegenerate:
		return r.regenerateOperation(s)
	case r.Trigger != "" && r.Trigger != triggerSubmit:
		return operation{}, fault.New(fault.Invalid, "TRIGGER_UNSUPPORTED",
			"trigger is %.50q: it must be %s or %s", r.Trigger, triggerSubmit, triggerRegenerate)
	case s.last == nil:
		return operation{}, fault.New(fault.Invalid, "MESSAGE_INVALID", "the body has neither messages nor message")
	case s.last.Role == roleAssistant, s.last.Role == roleUser && r.continues(s):
		w := operation{intent: attach, reply: s.reply}
		if len(s.reply.lastStepAnswers()) > 0 || s.reply.tooLarge {
			w.intent = answer
		}
		return w, nil
	case s.last.Role != roleUser:
		return operation{}, fault.New(fault.Invalid, "MESSAGE_INVALID", "the last message has to have the role user or assistant")
	}
	stored, err := s.last.stored()
	w := operation{intent: send, message: stored, reply: s.reply}
	if r.MessageID != "" && r.MessageID == s.last.ID {
		w.intent, w.target = edit, r.MessageID
	}
	return w, err
}

// continues reports whether the client continues an assistant message after a newer user message.
func (r *request) continues(s excerpt) bool {
	return r.MessageID != "" && s.reply != nil && r.MessageID == s.reply.id && len(s.reply.lastStepAnswers()) > 0
}

// regenerateOperation goes back to the last user message. If messageId names an answer before it,
// the operation is about the question to that answer, as the state service finds it.
func (r *request) regenerateOperation(s excerpt) (operation, error) {
	w := operation{intent: regenerate, target: r.MessageID}
	if s.question != nil && (!s.unanswered || r.MessageID == "" || r.MessageID != s.reply.id) {
		var err error
		if w.message, err = s.question.stored(); err != nil {
			return operation{}, err
		}
		w.target = cmp.Or(s.question.ID, r.MessageID)
		if r.MessageID != w.target {
			w.answerID = r.MessageID
		}
	}
	if w.target == "" {
		return operation{}, fault.New(fault.Invalid, "MESSAGE_INVALID", "to regenerate, send the user message with its id, or messageId")
	}
	return w, httpapi.CheckID("the id of the message", w.target)
}
