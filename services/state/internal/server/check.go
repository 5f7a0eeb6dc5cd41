package server

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxIDBytes is the longest id, by the contract.
const maxIDBytes = 256

// problem says what is wrong with an id, "" when nothing is.
func problem(id string) string {
	switch {
	case id == "":
		return "is missing"
	case len(id) > maxIDBytes:
		return "is longer than 256 bytes"
	case !utf8.ValidString(id):
		return "is not UTF-8"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "has control characters"
	}
	return ""
}

// checkID gives Invalid (ID_INVALID).
func checkID(field, id string) error {
	if p := problem(id); p != "" {
		return fault.New(fault.Invalid, "ID_INVALID", "%s %s; an id has 1 to 256 bytes of UTF-8 without control characters", field, p)
	}
	return nil
}

func checkOptionalID(field, id string) error {
	if id == "" {
		return nil
	}
	return checkID(field, id)
}

func checkKey(tenant, sessionID string) (session.Key, error) {
	if err := checkID("tenant", tenant); err != nil {
		return session.Key{}, err
	}
	if err := checkID("session_id", sessionID); err != nil {
		return session.Key{}, err
	}
	return session.Key{Tenant: tenant, SessionID: sessionID}, nil
}

func checkRef(r *statev1.RunRef) (session.Ref, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return session.Ref{}, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return session.Ref{}, err
	}
	return session.Ref{Key: key, RunID: r.GetRunId(), Epoch: r.GetEpoch()}, nil
}

// checkPage returns the limit of a page: 1 to 200, 50 when the request leaves it.
func checkPage(limit int32) (int, error) {
	const most, usual = 200, 50
	if limit < 0 || limit > most {
		return 0, fault.New(fault.Invalid, "LIMIT_INVALID", "limit is %d; ask for 1 to 200, or 0 for 50", limit)
	}
	if limit == 0 {
		return usual, nil
	}
	return int(limit), nil
}

func messageInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "MESSAGE_INVALID", format, args...)
}

// checkUserMessages gives Invalid (MESSAGE_INVALID), TooLarge
// (MESSAGE_TOO_LARGE) or Invalid (ID_INVALID).
func (l Limits) checkUserMessages(messages []*eventv1.Message) error {
	if len(messages) == 0 {
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

func (l Limits) checkMessage(m *eventv1.Message, limit int) error {
	if size := proto.Size(m); size > limit {
		return fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE", "message %q has %d bytes; the limit is %d", m.GetId(), size, limit)
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

// checkResult gives TooLarge (RESULT_TOO_LARGE), Invalid (RESULT_INVALID).
func (l Limits) checkResult(r *eventv1.ToolResultPart) error {
	if err := checkID("the call's id", r.GetToolCallId()); err != nil {
		return err
	}
	if size := len(r.GetResult()) + len(r.GetError()); size > l.ResultBytes {
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "the result of call %q has %d bytes; the limit is %d", r.GetToolCallId(), size, l.ResultBytes)
	}
	if r.GetResult() != "" && !json.Valid([]byte(r.GetResult())) {
		return fault.New(fault.Invalid, "RESULT_INVALID", "the result of call %q is not one JSON text", r.GetToolCallId())
	}
	return nil
}

func (l Limits) checkMetadata(pairs map[string]string) error {
	if len(pairs) > l.Metadata {
		return fault.New(fault.Invalid, "METADATA_INVALID", "there are %d metadata pairs; the limit is %d", len(pairs), l.Metadata)
	}
	for key, value := range pairs {
		if p := problem(key); p != "" {
			return fault.New(fault.Invalid, "METADATA_INVALID", "metadata key %q %s", key, p)
		}
		if len(value) > l.MetadataBytes {
			return fault.New(fault.Invalid, "METADATA_INVALID", "the value of metadata key %q has %d bytes; the limit is %d", key, len(value), l.MetadataBytes)
		}
	}
	return nil
}

func (l Limits) checkTags(tags []string) error {
	if len(tags) > l.Tags {
		return fault.New(fault.Invalid, "TAGS_INVALID", "there are %d tags; the limit is %d", len(tags), l.Tags)
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > l.TagBytes || strings.ContainsFunc(tag, unicode.IsControl) {
			return fault.New(fault.Invalid, "TAGS_INVALID", "tag %q is empty, longer than %d bytes, or has control characters", tag, l.TagBytes)
		}
	}
	return nil
}

// checkState gives Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
func (l Limits) checkState(state string) error {
	if len(state) > l.StateBytes {
		return session.StateTooLarge(len(state), l.StateBytes, nil)
	}
	if !json.Valid([]byte(state)) || !begins(state, '{') {
		return fault.New(fault.Invalid, "STATE_INVALID", "custom_state is not a JSON object")
	}
	return nil
}

func begins(text string, c byte) bool {
	trimmed := strings.TrimLeft(text, " \t\r\n")
	return trimmed != "" && trimmed[0] == c
}

// checkOutcome gives Invalid (OUTCOME_INVALID).
func (l Limits) checkOutcome(o *statev1.Outcome) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "OUTCOME_INVALID", format, args...)
	}
	switch o.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_COMPLETED, statev1.RunStatus_RUN_STATUS_INTERRUPTED:
	case statev1.RunStatus_RUN_STATUS_FAILED:
		if o.GetFailure().GetError() == "" {
			return bad("a failed run needs a failure with an error text")
		}
	default:
		return bad("a run cannot end as %s; COMPLETED, FAILED and INTERRUPTED are outcomes", o.GetStatus())
	}
	if len(o.GetOutput()) > l.StepBytes {
		return bad("the output has %d bytes; the limit is %d", len(o.GetOutput()), l.StepBytes)
	}
	if o.GetOutput() != "" && !json.Valid([]byte(o.GetOutput())) {
		return bad("the output is not one JSON text")
	}
	for field, text := range map[string]string{"completion_reason": o.GetCompletionReason(), "failure.code": o.GetFailure().GetCode()} {
		if text != "" && problem(text) != "" {
			return bad("%s %s", field, problem(text))
		}
	}
	return nil
}
