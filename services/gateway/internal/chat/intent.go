package chat

import (
	"cmp"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// intent is what a client wants with its POST.
type intent int

// The intents.
const (
	send       intent = iota // a message of the user's
	answer                   // answers to calls of the last assistant message
	edit                     // another message in the place of one of the user's
	regenerate               // another answer to a message of the user's
	attach                   // the rest of the last assistant message
)

const (
	triggerSubmit     = "submit-message"
	triggerRegenerate = "regenerate-message"
)

// operation is an intent with what it is about.
type operation struct {
	intent   intent
	message  *eventv1.Message // of say and edit; of again, where the client has sent it
	target   string           // of edit and again: the message to go back to; of again it may be an assistant's
	answerID string           // of again: the answer in whose place another is wanted; "" when that is not said
	reply    *reply           // the newest of the assistant's messages; nil when none came
}

// operation says what the client wants. Invalid: MESSAGE_INVALID, ID_INVALID, FILE_INVALID,
// TRIGGER_UNSUPPORTED.
func (r *request) operation() (operation, error) {
	s := r.excerpt()
	switch {
	case r.Trigger == triggerRegenerate:
		return r.regenerateOperation(s)
	case r.Trigger != "" && r.Trigger != triggerSubmit:
		return operation{}, fault.New(fault.Invalid, "TRIGGER_UNSUPPORTED", "trigger is %.50q: it has to be %s or %s", r.Trigger, triggerSubmit, triggerRegenerate)
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

// continues reports whether the client goes on with an assistant message although the
// user has said something since.
func (r *request) continues(s excerpt) bool {
	return r.MessageID != "" && s.reply != nil && r.MessageID == s.reply.id && len(s.reply.lastStepAnswers()) > 0
}

// regenerateOperation goes back to the last message of the user's. Where messageId names an answer
// that stands before that, it is about an earlier one, which the state service knows.
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
		return operation{}, fault.New(fault.Invalid, "MESSAGE_INVALID", "to answer again, send the message of the user with its id, or messageId")
	}
	return w, httpapi.CheckID("the id of the message", w.target)
}
