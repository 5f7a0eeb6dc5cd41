package server

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// encode returns equal bytes for equal messages.
func encode(m proto.Message) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return body, nil
}

// origin has the defaults for empty fields of a message.
type origin struct {
	runID string
	step  int32
	now   session.Millis
	newID func() string // nil when every message has an id
}

// messagesIn converts messages, with defaults for their empty fields. It does not change the
// request.
func messagesIn(messages []*eventv1.Message, from origin) ([]session.Message, error) {
	rows := make([]session.Message, len(messages))
	for i, message := range messages {
		m := proto.CloneOf(message)
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
		rows[i] = session.Message{ID: m.Id, Role: roleNames[m.Role], RunID: m.RunId, Step: m.Step, CreatedAt: session.Millis(m.CreatedAt), Body: body, FileIDs: fileIDs(m)}
	}
	return rows, nil
}

// historyIn converts the conversation of a client. Its users' messages belong to the first run: an
// edit of one goes back to the state at the start of that run.
func historyIn(messages []*eventv1.Message, post session.RunRequest, newID func() string) ([]session.Message, error) {
	owned := make([]*eventv1.Message, len(messages))
	for i, m := range messages {
		owned[i] = m
		if m.GetRole() == eventv1.Role_ROLE_USER {
			owned[i] = proto.CloneOf(m)
			owned[i].RunId = post.RunID
		}
	}
	return messagesIn(owned, origin{now: post.Now, newID: newID})
}

// roleNames are the roles in the store.
var roleNames = map[eventv1.Role]string{
	eventv1.Role_ROLE_USER:      "user",
	eventv1.Role_ROLE_ASSISTANT: "assistant",
	eventv1.Role_ROLE_TOOL:      "tool",
	eventv1.Role_ROLE_SYSTEM:    "system",
	eventv1.Role_ROLE_CONTEXT:   "context",
}

// fingerprint is equal for equal messages. It is taken before defaults are filled in.
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

// opsIn gives Invalid (STATE_INVALID) and TooLarge (STATE_SIZE_EXCEEDED).
func (l Limits) opsIn(ops []*statev1.StateOp) ([]session.StateOp, error) {
	if len(ops) > l.Ops {
		return nil, invalid("STATE_INVALID", "there are %d state writes; the limit is %d: write each key once, with all its items", len(ops), l.Ops)
	}
	var rows []session.StateOp
	for i, op := range ops {
		row, problem := opIn(op)
		if problem != "" {
			return nil, invalid("STATE_INVALID", "ops[%d] on key %q %s", i, op.GetKey(), problem)
		}
		rows = append(rows, row)
	}
	if size := opBytes(rows); size > l.StagedBytes {
		return nil, session.StateTooLarge(size, l.StagedBytes, rows)
	}
	return rows, nil
}

// opIn converts a state write, or describes its fault.
func opIn(op *statev1.StateOp) (row session.StateOp, problem string) {
	if p := idProblem(op.GetKey()); p != "" {
		return row, "has a key that " + p
	}
	row.Key = op.GetKey()
	switch o := op.GetOp().(type) {
	case *statev1.StateOp_Replace:
		row.Kind, row.Value = session.OpReplace, o.Replace
	case *statev1.StateOp_Append:
		row.Kind, row.Value = session.OpAppend, o.Append
		if !beginsWith(o.Append, '[') {
			return row, "appends a value that is not a JSON array"
		}
	case *statev1.StateOp_Delete:
		row.Kind = session.OpDelete
		if !o.Delete {
			return row, "has delete: false, which has no meaning"
		}
		return row, ""
	default:
		return row, "has no op"
	}
	if !isJSON(row.Value) {
		return row, "has a value that is not JSON"
	}
	return row, ""
}

func opsOut(ops []session.StateOp) []*statev1.StateOp {
	list := make([]*statev1.StateOp, len(ops))
	for i, op := range ops {
		list[i] = &statev1.StateOp{Key: op.Key}
		switch op.Kind {
		case session.OpReplace:
			list[i].Op = &statev1.StateOp_Replace{Replace: op.Value}
		case session.OpAppend:
			list[i].Op = &statev1.StateOp_Append{Append: op.Value}
		case session.OpDelete:
			list[i].Op = &statev1.StateOp_Delete{Delete: true}
		}
	}
	return list
}

func (l Limits) outcomeIn(o *statev1.Outcome) session.Outcome {
	out := session.Outcome{
		Status: runStatusIn[o.GetStatus()], Output: o.GetOutput(), CompletionReason: o.GetCompletionReason(), FinishReason: o.GetFinishReason(),
	}
	if o.GetFailure() != nil {
		out.Failure = l.failureIn(o.GetFailure())
	}
	if u := o.GetUsage(); u != nil {
		out.Usage = &session.Tokens{Prompt: u.GetPromptTokens(), Completion: u.GetCompletionTokens(), Reasoning: u.GetReasoningTokens(), Cached: u.GetCachedTokens(), Total: u.GetTotalTokens()}
	}
	return out
}

func (l Limits) failureIn(f *statev1.Failure) *session.Failure {
	return &session.Failure{
		Error: truncate(f.GetError(), l.ErrorBytes), Detail: truncate(f.GetDetail(), l.ErrorBytes), Code: f.GetCode(), Retryable: f.GetRetryable(),
	}
}

// truncate shortens a text for people to at most limit bytes, between characters. It removes
// zero characters: databases do not store them. Refusing an error text would keep its run from
// ending.
func truncate(text string, limit int) string {
	const mark = "…"
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// childIn converts a reference to a sub-session. It is checked.
func childIn(c *statev1.SubSession) session.Child {
	return session.Child{
		SessionID: c.GetSessionId(), AgentType: c.GetAgentType(), CallID: c.GetParentToolCallId(), Status: statusIn[c.GetStatus()],
		Mode: modeIn[c.GetMode()], Name: c.GetName(), Location: locationIn[c.GetLocation()], Remote: c.GetRemote(),
		StartedAt: session.Millis(c.GetStartedAt()), CompletedAt: session.Millis(c.GetCompletedAt()),
	}
}

// newChildIn returns a parent's record of a new sub-session.
func newChildIn(p *statev1.Parent) session.Child {
	return session.Child{CallID: p.GetToolCallId(), Mode: modeIn[p.GetMode()], Name: p.GetName()}
}

// suspensionIn returns the context of a suspended session; nil if and only if the outcome does
// not suspend.
func suspensionIn(r *statev1.CommitStepRequest) *session.Suspension {
	if !session.Status(runStatusIn[r.GetOutcome().GetStatus()]).Suspended() {
		return nil
	}
	given := r.GetSuspension()
	out := &session.Suspension{StepID: given.GetStepId()}
	if given.GetTraceId() != "" || given.GetRootSpanId() != "" {
		out.Tracing = &session.Tracing{TraceID: given.GetTraceId(), RootSpanID: given.GetRootSpanId()}
	}
	return out
}

// statusesIn gives Invalid (STATUS_INVALID).
func statusesIn(statuses []statev1.SessionStatus) ([]session.Status, error) {
	var list []session.Status
	for _, s := range statuses {
		status, known := statusIn[s]
		if !known {
			return nil, invalid("STATUS_INVALID", "%s is not a status of a session", s)
		}
		list = append(list, status)
	}
	return list, nil
}

// expectIn gives Invalid (STATUS_INVALID, ID_INVALID).
func expectIn(e *statev1.Expectation) (session.Expect, error) {
	if e == nil {
		return session.Expect{}, nil
	}
	statuses, err := statusesIn(e.GetStatuses())
	if err != nil {
		return session.Expect{}, err
	}
	return session.Expect{Statuses: statuses, Version: e.GetVersion(), RunID: e.CurrentRunId}, checkOptionalID("current_run_id", e.GetCurrentRunId())
}

// traceIn returns the trace context, and leaves out invalid parts. An invalid trace does not
// stop a run.
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
