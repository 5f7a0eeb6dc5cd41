package server

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// encode marshals so that equal messages have equal bytes.
func encode(m proto.Message) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return body, nil
}

// origin fills what a message leaves open.
type origin struct {
	runID string
	step  int32
	now   session.Millis
	newID func() string // nil: every message has an id
}

// messagesIn makes the rows of messages. What a message says of itself stays;
// the messages of the request are not changed.
func messagesIn(messages []*eventv1.Message, from origin) ([]session.Message, error) {
	rows := make([]session.Message, len(messages))
	for i, given := range messages {
		m := proto.CloneOf(given)
		if m.Id == "" && from.newID != nil {
			m.Id = "msg_" + from.newID()
		}
		if m.RunId == "" {
			m.RunId = from.runID
		}
		if m.Step == 0 {
			m.Step = from.step
		}
		if m.CreatedAt == 0 {
			m.CreatedAt = int64(from.now)
		}
		body, err := encode(m)
		if err != nil {
			return nil, err
		}
		rows[i] = session.Message{ID: m.Id, Role: roleNames[m.Role], RunID: m.RunId, Step: m.Step, CreatedAt: session.Millis(m.CreatedAt), Body: body}
	}
	return rows, nil
}

// roleNames are the roles as the store keeps them beside the body.
var roleNames = map[eventv1.Role]string{
	eventv1.Role_ROLE_USER:      "user",
	eventv1.Role_ROLE_ASSISTANT: "assistant",
	eventv1.Role_ROLE_TOOL:      "tool",
	eventv1.Role_ROLE_SYSTEM:    "system",
	eventv1.Role_ROLE_CONTEXT:   "context",
}

// fingerprint is equal for equal messages, as the caller gave them.
func fingerprint(messages []*eventv1.Message) ([]byte, error) {
	hash := sha256.New()
	for _, m := range messages {
		body, err := encode(m)
		if err != nil {
			return nil, err
		}
		hash.Write(binary.AppendUvarint(nil, uint64(len(body))))
		hash.Write(body)
	}
	return hash.Sum(nil), nil
}

// opsIn gives Invalid (STATE_INVALID).
func opsIn(ops []*statev1.StateOp) ([]session.StateOp, error) {
	var rows []session.StateOp
	for i, op := range ops {
		bad := func(what string) error {
			return fault.New(fault.Invalid, "STATE_INVALID", "ops[%d] on key %q %s", i, op.GetKey(), what)
		}
		if p := problem(op.GetKey()); p != "" {
			return nil, bad("has a key that " + p)
		}
		row := session.StateOp{Key: op.GetKey()}
		switch o := op.GetOp().(type) {
		case *statev1.StateOp_Replace:
			row.Kind, row.Value = session.Replace, o.Replace
		case *statev1.StateOp_Append:
			row.Kind, row.Value = session.Append, o.Append
			if !begins(o.Append, '[') {
				return nil, bad("appends what is not a JSON array")
			}
		case *statev1.StateOp_Delete:
			row.Kind = session.Delete
			if !o.Delete {
				return nil, bad("says delete: false, which means nothing")
			}
		default:
			return nil, bad("has no op")
		}
		if row.Kind != session.Delete && !json.Valid([]byte(row.Value)) {
			return nil, bad("has a value that is not JSON")
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func opsOut(ops []session.StateOp) []*statev1.StateOp {
	list := make([]*statev1.StateOp, len(ops))
	for i, op := range ops {
		list[i] = &statev1.StateOp{Key: op.Key}
		switch op.Kind {
		case session.Replace:
			list[i].Op = &statev1.StateOp_Replace{Replace: op.Value}
		case session.Append:
			list[i].Op = &statev1.StateOp_Append{Append: op.Value}
		case session.Delete:
			list[i].Op = &statev1.StateOp_Delete{Delete: true}
		}
	}
	return list
}

// usageIn gives Invalid (USAGE_INVALID).
func usageIn(entries []*statev1.UsageEntry) ([]session.Usage, error) {
	var rows []session.Usage
	for i, e := range entries {
		var u session.Usage
		name := ""
		switch e := e.GetEntry().(type) {
		case *statev1.UsageEntry_Tokens:
			t := e.Tokens
			name = t.GetModel()
			u = session.Usage{
				Model: t.GetModel(), PromptTokens: t.GetPromptTokens(), CompletionTokens: t.GetCompletionTokens(),
				ReasoningTokens: t.GetReasoningTokens(), CachedTokens: t.GetCachedTokens(), TotalTokens: t.GetTotalTokens(),
			}
		case *statev1.UsageEntry_Tool:
			name = e.Tool.GetToolName()
			u = session.Usage{Tool: name, Success: e.Tool.GetSuccess(), DurationMS: e.Tool.GetDurationMs()}
		}
		if p := problem(name); p != "" {
			return nil, fault.New(fault.Invalid, "USAGE_INVALID", "the name of the model or tool of usage[%d] %s", i, p)
		}
		rows = append(rows, u)
	}
	return rows, nil
}

func usageOut(rows []session.Usage) []*statev1.UsageEntry {
	list := make([]*statev1.UsageEntry, len(rows))
	for i, u := range rows {
		if u.Model != "" {
			list[i] = &statev1.UsageEntry{Entry: &statev1.UsageEntry_Tokens{Tokens: &statev1.TokenUsage{
				Model: u.Model, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
				ReasoningTokens: u.ReasoningTokens, CachedTokens: u.CachedTokens, TotalTokens: u.TotalTokens,
			}}}
			continue
		}
		list[i] = &statev1.UsageEntry{Entry: &statev1.UsageEntry_Tool{Tool: &statev1.ToolUsage{
			ToolName: u.Tool, Success: u.Success, DurationMs: u.DurationMS,
		}}}
	}
	return list
}

func (l Limits) outcomeIn(o *statev1.Outcome) session.Outcome {
	out := session.Outcome{Status: runStatusIn[o.GetStatus()], Output: o.GetOutput(), CompletionReason: o.GetCompletionReason()}
	if f := o.GetFailure(); f != nil {
		out.Failure = &session.Failure{
			Error: cut(f.GetError(), l.ErrorBytes), Detail: cut(f.GetDetail(), l.ErrorBytes), Code: f.GetCode(), Retryable: f.GetRetryable(),
		}
	}
	return out
}

// cut shortens a text for people to at most limit bytes, between characters. To
// refuse a long error would keep the run from ending.
func cut(text string, limit int) string {
	const mark = "…"
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// traceIn returns the trace context when it can be one; a bad one is no reason
// to refuse a run.
func traceIn(traceparent, tracestate string) (string, string) {
	const longestParent, longestState = 128, 1024
	if !printable(traceparent, longestParent) {
		return "", ""
	}
	if !printable(tracestate, longestState) {
		return traceparent, ""
	}
	return traceparent, tracestate
}

func printable(text string, limit int) bool {
	return len(text) <= limit && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
