package chat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// The limits of the messages before the one that is sent.
const (
	maxHistory = 10_000 // messages kept of a request; the state service has the limit of a new session
	maxEarlier = 200    // newest user messages, compared with those of a known session
)

const roleSystem = "system"

// earlier returns the messages before the one that the operation sends.
func (s *excerpt) earlier(i intent) []rawValue {
	switch {
	case len(s.raw) == 0:
		return nil
	case i == regenerate && s.question != nil:
		return s.raw[:s.questionAt]
	default:
		return s.raw[:len(s.raw)-1]
	}
}

// checkSystem gives Denied (SCOPE_MISSING) for a conversation with system messages, unless the caller may send them. It
// also refuses those that a known session would ignore, so that their sender learns of it.
func checkSystem(ctx context.Context, list *excerpt) error {
	if !list.system {
		return nil
	}
	caller, _ := auth.From(ctx)
	return caller.Require(auth.Operate, "send system messages; leave them out, or put them into the agent's systemPrompt")
}

// errFound ends a walk.
var errFound = errors.New("found")

// headOf returns the id and the role of a message, "" for none.
func headOf(message []byte) (id, role string) {
	if message[0] != '{' {
		return "", ""
	}
	_ = walkObject(message, func(name string, value []byte, _ int64) error {
		switch {
		case strings.EqualFold(name, "id"):
			_ = json.Unmarshal(value, &id) // one of another type is none
		case strings.EqualFold(name, "role"):
			_ = json.Unmarshal(value, &role)
		}
		if id != "" && role != "" {
			return errFound
		}
		return nil
	})
	return id, role
}

// hasSystemRole reports whether the message is a system message. Most messages do not contain the
// word.
func hasSystemRole(message []byte) bool {
	if !bytes.Contains(message, []byte(roleSystem)) {
		return false
	}
	_, role := headOf(message)
	return role == roleSystem
}

// userIDs returns the ids of the newest user messages.
func userIDs(messages []rawValue) (ids []string) {
	for _, m := range messages[max(0, len(messages)-2*maxEarlier):] {
		if id, role := headOf(m.text); role == roleUser && httpapi.CheckID("id", id) == nil && len(ids) < maxEarlier {
			ids = append(ids, id)
		}
	}
	return ids
}

// history converts the messages for the state service. It drops what models do not need: reasoning,
// unfinished calls, and parts for the app alone. Faults as message.stored, and Invalid
// (BODY_INVALID), TooLarge (HISTORY_TOO_LARGE, TOO_MANY_PARTS).
func (p *post) history(messages []rawValue, count int) ([]*eventv1.Message, error) {
	if count > maxHistory {
		return nil, fault.New(fault.TooLarge, "HISTORY_TOO_LARGE",
			"the conversation so far has %d messages; a request may have %d", count, maxHistory)
	}
	var out []*eventv1.Message
	budget := partBudget{max: p.body.budget.max}
	for _, raw := range messages {
		role, err := roleOf(raw.text, &budget)
		if err != nil {
			return nil, err
		}
		var stored []*eventv1.Message
		switch role {
		case roleAssistant:
			stored, err = p.storedAnswer(raw.text)
		case roleUser, roleSystem:
			stored, err = storedText(raw.text)
		}
		if err != nil {
			return nil, httpapi.InvalidJSON(located(err, "messages", raw.at))
		}
		out = append(out, stored...)
	}
	return out, nil
}

// storedText converts a user or system message; nil for one without content.
func storedText(text []byte) ([]*eventv1.Message, error) {
	m := &message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, err
	}
	stored, err := m.stored()
	if stored == nil && fault.ReasonOf(err) == messageInvalid {
		return nil, nil
	}
	if m.Role == roleSystem && err == nil {
		stored.Role = eventv1.Role_ROLE_SYSTEM
		stored.UiMetadata, stored.UiParts = "", ""
	}
	return []*eventv1.Message{stored}, err
}

// storedAnswer converts an assistant message to the messages of its steps: those of the model, each
// followed by the results of its calls. The first has the id of the message, and all have the same
// run id if there are several.
func (p *post) storedAnswer(text []byte) ([]*eventv1.Message, error) {
	var m struct {
		ID    string
		Parts []json.RawMessage
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if m.ID != "" {
		if err := httpapi.CheckID("the id of the message", m.ID); err != nil {
			return nil, err
		}
	}
	steps := answerSteps{calls: map[string]bool{}}
	for _, part := range m.Parts {
		if err := steps.add(part); err != nil {
			return nil, err
		}
	}
	steps.flush()
	for i, stored := range steps.messages {
		if i == 0 {
			stored.Id = m.ID
		}
		if len(steps.messages) > 1 {
			stored.RunId = cmp.Or(m.ID, p.key, p.body.ID)
		}
	}
	return steps.messages, nil
}

// answerSteps collects the steps of an assistant message.
type answerSteps struct {
	messages []*eventv1.Message
	reply    []*eventv1.Part // of the model, in the current step
	results  []*eventv1.Part
	calls    map[string]bool // ids
}

// toolNames are the names that all providers accept.
var toolNames = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// add adds a part.
func (s *answerSteps) add(text []byte) error {
	var p part
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if p.Type == "dynamic-tool" || strings.HasPrefix(p.Type, "tool-") {
		return s.addCall(text)
	}
	stored, err := p.stored()
	if len(s.results) > 0 && (stored != nil || p.Type == "step-start") {
		s.flush()
	}
	if stored != nil {
		s.reply = append(s.reply, stored)
	}
	return err
}

// addCall adds a finished call, and ignores others.
func (s *answerSteps) addCall(text []byte) error {
	var t struct {
		tool
		ToolName string          `json:"toolName"`
		Input    json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	name := cmp.Or(t.ToolName, strings.TrimPrefix(t.Type, "tool-"))
	result, valid := t.result(name), toolNames.MatchString(name) && httpapi.CheckID("toolCallId", t.ToolCallID) == nil
	if result == nil || !valid || s.calls[t.ToolCallID] {
		return nil
	}
	s.calls[t.ToolCallID] = true
	call := &eventv1.ToolCallPart{ToolCallId: t.ToolCallID, ToolName: name, Arguments: "{}", Dynamic: t.Type == "dynamic-tool"}
	if len(t.Input) > 0 && t.Input[0] == '{' {
		call.Arguments = string(t.Input)
	}
	s.reply = append(s.reply, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: call}})
	s.results = append(s.results, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: result}})
	return nil
}

// flush ends the current step.
func (s *answerSteps) flush() {
	if len(s.reply) > 0 {
		s.messages = append(s.messages, &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, Parts: s.reply})
	}
	if len(s.results) > 0 {
		s.messages = append(s.messages, &eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Parts: s.results})
	}
	s.reply = nil
	s.results = nil
}

// result returns the result of a finished call; nil for another.
func (t *tool) result(name string) *eventv1.ToolResultPart {
	out := &eventv1.ToolResultPart{ToolCallId: t.ToolCallID, ToolName: name}
	switch t.State {
	case outputAvailable:
		out.Success, out.Result = true, cmp.Or(string(t.Output), "null")
	case outputError, outputDenied:
		out.Error = cmp.Or(t.ErrorText, noErrorText)
	default:
		return nil
	}
	if a := t.Approval; a != nil && a.Approved != nil && httpapi.CheckID("id", a.ID) == nil {
		out.Approval = &eventv1.ApprovalVerdict{ApprovalId: a.ID, Approved: *a.Approved, Reason: a.Reason}
	}
	return out
}
