package server

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func messageInvalid(format string, args ...any) error {
	return invalid("MESSAGE_INVALID", format, args...)
}

// checkUserMessages checks the messages of a StartRun. Invalid (MESSAGE_INVALID, ID_INVALID,
// METADATA_INVALID), TooLarge (MESSAGE_TOO_LARGE, TOO_MANY_MESSAGES).
func (l Limits) checkUserMessages(messages []*eventv1.Message, mayBeEmpty bool) error {
	if err := l.checkMessageCount(messages); err != nil {
		return err
	}
	if len(messages) == 0 && !mayBeEmpty {
		return messageInvalid("messages is empty; a run begins with at least one user message")
	}
	for i, m := range messages {
		if m.GetRole() != eventv1.Role_ROLE_USER {
			return messageInvalid("messages[%d] has the role %s; only user messages start a run", i, m.GetRole())
		}
		if err := cmp.Or(checkOptionalID("a message's id", m.GetId()), checkContent(i, m), l.checkMessage(m, l.MessageBytes)); err != nil {
			return err
		}
	}
	return nil
}

func checkContent(i int, m *eventv1.Message) error {
	content := false
	for _, part := range m.GetParts() {
		switch p := part.GetPart().(type) {
		case *eventv1.Part_Text:
			content = content || strings.TrimSpace(p.Text.GetText()) != ""
		case *eventv1.Part_File:
			content = content || p.File.GetUrl() != ""
		default:
			return messageInvalid("messages[%d] has a part that is neither text nor a file", i)
		}
	}
	if !content {
		return messageInvalid("messages[%d] has no content; give it a text or a file", i)
	}
	return nil
}

// checkMessageCount gives TooLarge (TOO_MANY_MESSAGES).
func (l Limits) checkMessageCount(messages []*eventv1.Message) error {
	n := len(messages)
	if n <= l.Messages {
		return nil
	}
	return fault.New(fault.TooLarge, "TOO_MANY_MESSAGES", "the request has %d messages; the limit is %d: send them in several requests", n, l.Messages).With("count", strconv.Itoa(n)).With("limit", strconv.Itoa(l.Messages))
}

// checkAppended checks messages of any role from a host. Faults as checkUserMessages.
func (l Limits) checkAppended(messages []*eventv1.Message) error {
	return cmp.Or(l.checkMessageCount(messages), l.checkEach(messages))
}

// checkEach is checkAppended for any number of messages.
func (l Limits) checkEach(messages []*eventv1.Message) error {
	for i, m := range messages {
		if roleNames[m.GetRole()] == "" {
			return messageInvalid("messages[%d] has no role", i)
		}
		if len(m.GetParts()) == 0 {
			return messageInvalid("messages[%d] has no content; give it a part", i)
		}
		if err := cmp.Or(checkOptionalID("a message's id", m.GetId()), l.checkMessage(m, l.MessageBytes)); err != nil {
			return err
		}
	}
	return nil
}

// checkHistory checks the conversation of a client. Faults as checkUserMessages, and TooLarge
// (HISTORY_TOO_LARGE).
func (l Limits) checkHistory(messages []*eventv1.Message) error {
	if len(messages) > l.HistoryMessages {
		return fault.New(fault.TooLarge, "HISTORY_TOO_LARGE", "the conversation so far has %d messages; the limit is %d", len(messages), l.HistoryMessages)
	}
	size := 0
	for i, m := range messages {
		if m.GetRole() == eventv1.Role_ROLE_CONTEXT || m.GetStep() != 0 || m.GetHidden() {
			return messageInvalid("history[%d] has the role %s, or fields of the runtime", i, m.GetRole())
		}
		size += proto.Size(m)
	}
	if size > l.HistoryBytes {
		return tooLarge("HISTORY_TOO_LARGE", "the conversation so far", size, l.HistoryBytes)
	}
	return l.checkEach(messages)
}

// checkStepMessages checks the messages of a committed step. Faults as checkUserMessages.
func (l Limits) checkStepMessages(messages []*eventv1.Message) error {
	for _, m := range messages {
		if err := checkID("a message's id", m.GetId()); err != nil {
			return err
		}
		if m.GetRole() == eventv1.Role_ROLE_UNSPECIFIED {
			return messageInvalid("message %q has no role", m.GetId())
		}
		if err := l.checkMessage(m, l.StepBytes); err != nil {
			return err
		}
	}
	return nil
}

// maxUIMetadata bounds the metadata and the data parts of a client's message, in bytes each.
const maxUIMetadata = 64 << 10

// checkMessage checks the common fields of all messages.
func (l Limits) checkMessage(m *eventv1.Message, limit int) error {
	if size := proto.Size(m); size > limit {
		return tooLarge("MESSAGE_TOO_LARGE", fmt.Sprintf("message %q", m.GetId()), size, limit)
	}
	if text := m.GetUiMetadata(); len(text) > maxUIMetadata || !isJSONOrEmpty(text) {
		return invalid("METADATA_INVALID", "the ui_metadata of message %q is not one JSON text of at most %d bytes", m.GetId(), maxUIMetadata)
	}
	if text := m.GetUiParts(); len(text) > maxUIMetadata || !isJSONOrEmpty(text) {
		return invalid("METADATA_INVALID", "the ui_parts of message %q are not one JSON text of at most %d bytes", m.GetId(), maxUIMetadata)
	}
	return cmp.Or(checkOptionalID("a message's run_id", m.GetRunId()), l.checkMetadata(m.GetMetadata()))
}

// planCalls checks a plan, and returns the ids of its calls. Invalid (MESSAGE_INVALID,
// ID_INVALID, METADATA_INVALID), TooLarge (MESSAGE_TOO_LARGE).
func (l Limits) planCalls(m *eventv1.Message) ([]string, error) {
	if m.GetRole() != eventv1.Role_ROLE_ASSISTANT {
		return nil, messageInvalid("the plan has the role %s; it is the assistant's message", m.GetRole())
	}
	if err := checkID("the plan's id", m.GetId()); err != nil {
		return nil, err
	}
	var ids []string
	seen := map[string]bool{}
	for _, part := range m.GetParts() {
		call := part.GetToolCall()
		if call == nil {
			continue
		}
		id := call.GetToolCallId()
		if err := checkID("a call's id", id); err != nil {
			return nil, err
		}
		if seen[id] {
			return nil, messageInvalid("the plan has two calls with the id %q", id)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, l.checkMessage(m, l.MessageBytes)
}
