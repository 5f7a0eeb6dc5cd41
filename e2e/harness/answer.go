package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
)

// ChatPost is a POST /chat in the form of the AI SDK's chat class.
type ChatPost struct {
	Session, Agent string
	Messages       []UIMessage
	Trigger        string // empty means submit-message
	MessageID      string // empty sends none
	OnBusy         string // empty sends none
	RequestKey     string // of the header; empty sends none
}

// Post sends the conversation. If the last message is the assistant's, the answer continues that message. It
// returns a Refusal if the gateway refuses.
func (c Client) Post(ctx context.Context, p ChatPost) (*UIStream, error) {
	body := map[string]any{"id": p.Session, "agentType": p.Agent, "trigger": "submit-message", "messages": p.Messages}
	for name, value := range map[string]string{"trigger": p.Trigger, "messageId": p.MessageID, "onBusy": p.OnBusy} {
		if value != "" {
			body[name] = value
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	stream, err := c.open(ctx, request{method: http.MethodPost, path: "/chat", body: text, requestKey: p.RequestKey})
	if err != nil {
		return nil, err
	}
	if n := len(p.Messages); n > 0 && p.Messages[n-1].Role == "assistant" {
		stream.Message, stream.continues = p.Messages[n-1].Clone(), true
	}
	return stream, nil
}

// Reconnect follows the answer of a session again. It returns nil on 204, nothing to follow.
func (c Client) Reconnect(ctx context.Context, session string) (*UIStream, error) {
	stream, err := c.open(ctx, request{method: http.MethodGet, path: resumePath(session)})
	if refusal, ok := errors.AsType[*notOKError](err); ok && refusal.code == http.StatusNoContent {
		return nil, nil
	}
	return stream, err
}

// UserMessage returns a user's text message.
func UserMessage(id, text string) UIMessage {
	return UIMessage{ID: id, Role: "user", Parts: []UIPart{{Type: "text", Text: text}}}
}

// Clone returns a deep copy.
func (m UIMessage) Clone() UIMessage {
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		p := &m.Parts[i]
		p.Input, p.Output = slices.Clone(p.Input), slices.Clone(p.Output)
		if p.Approval != nil {
			approval := *p.Approval
			p.Approval = &approval
		}
	}
	return m
}

// Call returns the part of the newest call of the tool, or nil.
func (m UIMessage) Call(tool string) *UIPart {
	for i := len(m.Parts) - 1; i >= 0; i-- {
		if m.Parts[i].Tool() == tool {
			return &m.Parts[i]
		}
	}
	return nil
}

// ToolAnswer is the body of a submitted answer. Empty fields are omitted.
type ToolAnswer struct {
	SessionID  string          `json:"sessionId,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	Kind       string          `json:"kind,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
	ApprovalID string          `json:"approvalId,omitempty"`
	Approved   *bool           `json:"approved,omitempty"`
	Reason     string          `json:"reason,omitempty"`
}

// Submitted is the response to a submitted answer.
type Submitted struct {
	Status       string `json:"status"`
	Continuation string `json:"continuation"`
	RunID        string `json:"runId"`
}

// Submit answers a call. It returns a Refusal if the gateway refuses.
func (c Client) Submit(ctx context.Context, session string, a ToolAnswer) (Submitted, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return Submitted{}, err
	}
	q := request{method: http.MethodPost, path: "/chat/" + url.PathEscape(session) + "/submit-tool-result", body: text}
	response, err := c.send(ctx, q)
	if err != nil {
		return Submitted{}, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return Submitted{}, fmt.Errorf("%w: %w", ErrDropped, err)
	}
	if response.StatusCode != http.StatusOK {
		return Submitted{}, &notOKError{q, response.StatusCode, string(answer)}
	}
	var s Submitted
	if err := json.Unmarshal(answer, &s); err != nil {
		return Submitted{}, fmt.Errorf("%s: %w in %s", q.path, err, answer)
	}
	return s, nil
}

// IsRetryable reports whether a persistent client retries after the error.
func IsRetryable(err error) bool { return err != nil && isRetryable(err) }

// RefusalCode returns the code of a refusal, or "" for another error.
func RefusalCode(err error) string {
	refusal, ok := errors.AsType[*notOKError](err)
	if !ok {
		return ""
	}
	var body struct {
		Code string `json:"code"`
	}
	if json.Unmarshal([]byte(refusal.body), &body) != nil {
		return ""
	}
	return body.Code
}
