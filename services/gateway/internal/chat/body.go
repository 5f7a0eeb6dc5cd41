package chat

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// maxParts bounds the parts of a user message. A part of a few bytes costs about a hundred in
// memory.
const maxParts = 1000

// partBudget bounds the decoded parts of one body. Each costs some microseconds.
type partBudget struct {
	max  int // 0 for no limit
	used int
}

// take counts a part. TooLarge (TOO_MANY_PARTS): it is one too many.
func (b *partBudget) take() error {
	if b.used++; b.max == 0 || b.used <= b.max {
		return nil
	}
	return fault.New(fault.TooLarge, tooManyParts,
		"the messages have more than %d parts; send the last message only, or raise HOLDFAST_GATEWAY_MAX_PARTS", b.max)
}

const tooManyParts = "TOO_MANY_PARTS"

// maxTail is how many messages from the end are searched for the newest assistant and user
// messages.
const maxTail = 64

// UnmarshalJSON decodes the keys of request and ignores others. Clients send the whole
// conversation. Of its messages, only the last one and the newest assistant and user messages
// before it are decoded. Invalid (MESSAGE_INVALID, ID_INVALID): see message and reply. TooLarge
// (TOO_MANY_PARTS).
func (r *request) UnmarshalJSON(text []byte) error {
	texts := map[string]*string{
		"id": &r.ID, "trigger": &r.Trigger, "messageid": &r.MessageID, "agenttype": &r.AgentType, "onbusy": &r.OnBusy, "runid": &r.RunID,
	}
	return walkObject(text, func(name string, value []byte, at int64) error {
		switch key := strings.ToLower(name); key {
		case "messages":
			return r.decodeMessages(value, at)
		case "message":
			return r.decodeMessage(value, at)
		case "tools":
			if value[0] != '[' { // of another form, so it is the app's
				r.ignore(name)
				return nil
			}
			return located(json.Unmarshal(value, &r.Tools), name, at)
		case "instructions":
			if value[0] != '"' {
				r.ignore(name)
				return nil
			}
			return located(json.Unmarshal(value, &r.Instructions), name, at)
		case "state":
			if r.State = string(value); r.State == "null" {
				r.State = ""
			}
			return nil
		default:
			if target := texts[key]; target != nil {
				return located(json.Unmarshal(value, target), name, at)
			}
			r.ignore(name)
			return nil
		}
	})
}

// maxIgnored bounds the ignored names in a response, and maxIgnoredName each of them, in bytes.
const (
	maxIgnored     = 20
	maxIgnoredName = 64
)

// ignore notes that a key of the body, or a kind of parts of the sent message, has no effect.
func (r *request) ignore(name string) {
	name = strings.ToValidUTF8(name[:min(len(name), maxIgnoredName)], "")
	if len(r.ignored) < maxIgnored && !slices.Contains(r.ignored, name) {
		r.ignored = append(r.ignored, name)
	}
}

// ignoreState notes that the custom state has no effect.
func (r *request) ignoreState() {
	if r.State != "" {
		r.ignore("state")
	}
}

// rawValue is a JSON value and its offset in the body.
type rawValue struct {
	text []byte
	at   int64
}

// decodeMessages decodes the messages of an excerpt.
func (r *request) decodeMessages(list []byte, at int64) error {
	r.list = excerpt{}
	var tail []rawValue
	err := walkArray(list, func(value []byte, offset int64) error {
		if len(tail) == 2*maxHistory {
			tail = append(tail[:0], tail[maxHistory:]...)
		}
		tail = append(tail, rawValue{value, at + offset})
		r.list.count++
		r.list.system = r.list.system || hasSystemRole(value)
		return nil
	})
	if err != nil || len(tail) == 0 {
		return located(err, "messages", at)
	}
	r.list.raw = tail
	last := tail[len(tail)-1]
	if err := r.list.decodeLast(last.text, &r.budget); err != nil {
		return located(err, "messages", last.at)
	}
	r.list.questionAt = len(tail) - 1
	for i := len(tail) - 2; i >= max(0, len(tail)-maxTail); i-- {
		known := r.list.question != nil
		if err := r.list.decodeEarlier(tail[i].text, &r.budget); err != nil {
			return err
		}
		if !known && r.list.question != nil {
			r.list.questionAt = i
		}
	}
	return nil
}

// decodeMessage decodes the last message, sent alone.
func (r *request) decodeMessage(value []byte, at int64) error {
	r.single = excerpt{}
	switch value[0] {
	case '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return err
		}
		r.single.last = &message{Role: roleUser, Parts: []part{{Type: "text", Text: text}}}
		r.single.question = r.single.last
		return nil
	case 'n':
		return nil
	default:
		return located(r.single.decodeLast(value, &r.budget), "message", at)
	}
}

// decodeLast decodes the last message.
func (s *excerpt) decodeLast(text []byte, budget *partBudget) error {
	role, err := roleOf(text, budget)
	if err != nil {
		return err
	}
	if role == roleAssistant {
		got, err := readReply(text)
		s.last, s.reply = &message{ID: got.id, Role: role}, got
		return err
	}
	s.last = &message{}
	if err := json.Unmarshal(text, s.last); err != nil {
		return err
	}
	if s.last.Role == roleUser {
		s.question = s.last
	}
	return nil
}

// decodeEarlier decodes an earlier message if it is the newest of its role. It ignores malformed
// messages: the state service has the conversation. TooLarge (TOO_MANY_PARTS).
func (s *excerpt) decodeEarlier(text []byte, budget *partBudget) error {
	if s.reply != nil && s.question != nil {
		return nil
	}
	switch role, err := roleOf(text, budget); {
	case fault.ReasonOf(err) == tooManyParts:
		return err
	case role == roleAssistant && s.reply == nil:
		if got, err := readReply(text); err == nil {
			s.reply, s.unanswered = got, s.question != nil
		}
	case role == roleUser && s.question == nil && err == nil:
		m := &message{}
		if json.Unmarshal(text, m) == nil {
			s.question = m
		}
	}
	return nil
}

// roleOf returns the role of a message, "" for none. It counts the parts before they are decoded.
// Invalid (MESSAGE_INVALID): a message other than the assistant's has too many. TooLarge (TOO_MANY_PARTS).
func roleOf(message []byte, budget *partBudget) (role string, err error) {
	if message[0] != '{' {
		return "", nil
	}
	parts := 0
	err = walkObject(message, func(name string, value []byte, _ int64) error {
		switch {
		case strings.EqualFold(name, "role"):
			if json.Unmarshal(value, &role) != nil {
				role = ""
			}
		case strings.EqualFold(name, "parts") && value[0] == '[':
			return walkArray(value, func([]byte, int64) error {
				parts++
				return budget.take()
			})
		}
		return nil
	})
	if err == nil && parts > maxParts && role != roleAssistant {
		err = fault.New(fault.Invalid, "MESSAGE_INVALID", "the message has more than %d parts; send fewer and longer ones", maxParts)
	}
	return role, err
}

// located makes the offset and field of a type error relative to the whole body.
func located(err error, field string, at int64) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wrong.Offset += at
		wrong.Field = strings.TrimSuffix(field+"."+wrong.Field, ".")
	}
	return err
}
