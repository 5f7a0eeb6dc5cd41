package server

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func messageInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "MESSAGE_INVALID", format, args...)
}

// checkUserMessages gives Invalid (MESSAGE_INVALID), TooLarge
// (MESSAGE_TOO_LARGE) or Invalid (ID_INVALID).
func (l Limits) checkUserMessages(messages []*eventv1.Message, mayBeNone bool) error {
	if len(messages) == 0 && !mayBeNone {
		return messageInvalid("messages is empty; a run begins with at least one user message")
	}
	for i, m := range messages {
		if m.GetRole() != eventv1.Role_ROLE_USER {
			return messageInvalid("messages[%d] has the role %s; only user messages start a run", i, m.GetRole())
		}
		if err := checkOptionalID("a message's id", m.GetId()); err != nil {
			return err
		}
		if err := checkContent(i, m); err != nil {
			return err
		}
		if err := l.checkMessage(m, l.MessageBytes); err != nil {
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

// checkAppended checks what a host appends: messages of any role.
func (l Limits) checkAppended(messages []*eventv1.Message) error {
	for i, m := range messages {
		if m.GetRole() == eventv1.Role_ROLE_UNSPECIFIED || roleNames[m.GetRole()] == "" {
			return messageInvalid("messages[%d] has no role", i)
		}
		if len(m.GetParts()) == 0 {
			return messageInvalid("messages[%d] has no content; give it a part", i)
		}
		if err := checkOptionalID("a message's id", m.GetId()); err != nil {
			return err
		}
		if err := l.checkMessage(m, l.MessageBytes); err != nil {
			return err
		}
	}
	return nil
}

// checkStepMessages checks what a step commits.
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

// mostUIMetadata is how many bytes a client may keep with a message.
const mostUIMetadata = 64 << 10

func (l Limits) checkMessage(m *eventv1.Message, limit int) error {
	if size := proto.Size(m); size > limit {
		return fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE", "message %q has %d bytes; the limit is %d", m.GetId(), size, limit)
	}
	if err := checkOptionalID("a message's run_id", m.GetRunId()); err != nil {
		return err
	}
	if text := m.GetUiMetadata(); text != "" && (len(text) > mostUIMetadata || !json.Valid([]byte(text))) {
		return fault.New(fault.Invalid, "METADATA_INVALID", "the ui_metadata of message %q is not one JSON text of at most %d bytes", m.GetId(), mostUIMetadata)
	}
	return l.checkMetadata(m.GetMetadata())
}

// checkPlan returns the calls of the plan.
func (l Limits) checkPlan(m *eventv1.Message) ([]string, error) {
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
