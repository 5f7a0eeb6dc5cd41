package agenttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Chat is a conversation with an agent.
type Chat struct {
	// Session is its id.
	Session string

	system  *System
	agent   string
	failure string // of the newest run
}

// Chat begins a conversation with the agent.
func (s *System) Chat(agentName string) *Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats++
	return &Chat{Session: fmt.Sprintf("chat-%d", s.chats), system: s, agent: agentName}
}

// Say sends a message, and waits until the run has ended or waits for a client. A failed run is no failure of the
// test: Want shows it.
func (c *Chat) Say(text string) {
	c.system.T.Helper()
	c.SayWith(&agentv1.StartRequest{Message: text})
}

// SayWith is Say with the other fields of a request, such as the custom state.
func (c *Chat) SayWith(r *agentv1.StartRequest) {
	c.system.T.Helper()
	r.SessionId, r.AgentType = c.Session, c.agent
	_, err := c.system.Client.Start(c.system.T.Context(), r)
	c.system.must(err)
	c.Wait()
}

// settle takes the outcome of a run.
func (c *Chat) settle(err error) {
	c.system.T.Helper()
	c.failure = ""
	f, ok := fault.From(err)
	switch {
	case err == nil:
	case ok && (f.Reason == "RUN_FAILED" || f.Reason == "RUN_INTERRUPTED"):
		c.failure = strings.TrimSpace(f.Meta["code"] + ": " + f.Detail)
	default:
		c.system.T.Fatalf("got %v, want an answer of the agent", err)
	}
}

// The first and the longest pause between two polls of a run, and how long a run may take, on the fake clock.
const (
	firstPoll   = 10 * time.Millisecond
	longestPoll = time.Minute
	runLimit    = 30 * 24 * time.Hour
)

// Wait waits until the newest run has ended or waits for a client, as after Advance.
func (c *Chat) Wait() {
	c.system.T.Helper()
	pause := firstPoll
	for begin := time.Now(); time.Since(begin) < runLimit; pause = min(2*pause, longestPoll) {
		now, err := c.system.Client.Get(c.system.T.Context(), c.Session)
		c.system.must(err)
		if !now.GetIsExecuting() {
			_, err := c.system.Client.Wait(c.system.T.Context(), c.Session, "")
			c.settle(err)
			return
		}
		c.system.Advance(pause)
	}
	c.system.T.Fatalf("the run has not ended within %v", runLimit)
}

// Pending returns the names of the tools whose calls wait for a client or for an approval, in the order of the calls.
func (c *Chat) Pending() []string {
	c.system.T.Helper()
	names := []string{}
	for _, call := range c.pending() {
		names = append(names, call.GetToolName())
	}
	return names
}

func (c *Chat) pending() []*agentv1.PendingCall {
	c.system.T.Helper()
	session, err := c.system.Client.Session(c.system.T.Context(), c.Session)
	c.system.must(err)
	return session.GetPendingCalls()
}

// Approve approves the first waiting call of the tool, and waits for what follows.
func (c *Chat) Approve(tool string) {
	c.system.T.Helper()
	c.answer(tool, func(call client.Call) error {
		_, err := c.system.Client.Approve(c.system.T.Context(), call, "")
		return err
	})
}

// Deny refuses the first waiting call of the tool, and waits for what follows.
func (c *Chat) Deny(tool, reason string) {
	c.system.T.Helper()
	c.answer(tool, func(call client.Call) error {
		_, err := c.system.Client.Deny(c.system.T.Context(), call, reason)
		return err
	})
}

// Answer gives the result of the first waiting call of a client tool, and waits for what follows. The result is a
// value for encoding/json.
func (c *Chat) Answer(tool string, result any) {
	c.system.T.Helper()
	c.answer(tool, func(call client.Call) error {
		_, err := c.system.Client.SubmitResult(c.system.T.Context(), call, result)
		return err
	})
}

// PostResult posts the result of a call to its callback URL, as another system does after the tool has returned agent.Later,
// and waits for what follows. The result is a value for encoding/json. With the name of its tool, Answer does the same for
// an operator.
func (c *Chat) PostResult(url string, result any) {
	c.system.T.Helper()
	body, err := json.Marshal(map[string]any{"result": result})
	c.system.must(err)
	for begin := time.Now(); ; time.Sleep(answerPause) {
		request, err := http.NewRequestWithContext(c.system.T.Context(), http.MethodPost, url, bytes.NewReader(body))
		c.system.must(err)
		response, err := c.system.http.Do(request)
		c.system.must(err)
		text, err := io.ReadAll(response.Body)
		c.system.must(errors.Join(err, response.Body.Close()))
		if response.StatusCode == http.StatusOK {
			break
		}
		if response.StatusCode != http.StatusServiceUnavailable || time.Since(begin) > answerLimit {
			c.system.T.Fatalf("the post of a result: %d %s", response.StatusCode, text)
		}
	}
	c.Wait()
}

// answerPause is the time between two attempts at an answer, on the fake clock, and answerLimit bounds them.
const (
	answerPause = time.Second
	answerLimit = 10 * time.Minute
)

// answer answers a call. A run not yet suspended refuses the answer for a moment.
func (c *Chat) answer(tool string, submit func(client.Call) error) {
	c.system.T.Helper()
	calls := c.pending()
	i := slices.IndexFunc(calls, func(call *agentv1.PendingCall) bool { return call.GetToolName() == tool })
	if i < 0 {
		c.system.T.Fatalf("no call of %q waits; waiting: %q", tool, c.Pending())
	}
	call := client.Call{Session: calls[i].GetSessionId(), ID: calls[i].GetToolCallId(), Approval: calls[i].GetApprovalId()}
	for begin := time.Now(); ; time.Sleep(answerPause) {
		err := submit(call)
		if err == nil {
			break
		}
		if !errors.Is(err, fault.Unavailable) || time.Since(begin) > answerLimit {
			c.system.T.Fatalf("the answer to %q: %v", tool, err)
		}
	}
	c.Wait()
}

// Transcript returns the conversation, a line for each part:
//
//	user: Pay the bill.
//	agent: Let me see.
//	call: pay {"amount":500}
//	result: pay "done"
//	failed: pay the bank is closed
//
// JSON has no spaces. Reasoning and files are left out. If the newest run has failed, its code and error follow as "run failed: …".
func (c *Chat) Transcript() []string {
	c.system.T.Helper()
	lines := []string{}
	for m, err := range c.system.Client.Messages(c.system.T.Context(), c.Session) {
		c.system.must(err)
		for _, p := range m.GetParts() {
			if line := lineOf(m.GetRole(), p); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if c.failure != "" {
		lines = append(lines, "run failed: "+c.failure)
	}
	return lines
}

func lineOf(role eventv1.Role, p *eventv1.Part) string {
	switch part := p.GetPart().(type) {
	case *eventv1.Part_Text:
		if role == eventv1.Role_ROLE_ASSISTANT {
			return "agent: " + part.Text.GetText()
		}
		return strings.ToLower(strings.TrimPrefix(role.String(), "ROLE_")) + ": " + part.Text.GetText()
	case *eventv1.Part_ToolCall:
		return "call: " + part.ToolCall.GetToolName() + " " + compact(part.ToolCall.GetArguments())
	case *eventv1.Part_ToolResult:
		if !part.ToolResult.GetSuccess() {
			return "failed: " + part.ToolResult.GetToolName() + " " + part.ToolResult.GetError()
		}
		return "result: " + part.ToolResult.GetToolName() + " " + compact(part.ToolResult.GetResult())
	}
	return ""
}

// compact removes the spaces of a JSON text.
func compact(text string) string {
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		return text
	}
	return out.String()
}

// Want fails the test unless the transcript has these lines. A line that ends with "…" has only the beginning.
func (c *Chat) Want(lines ...string) {
	c.system.T.Helper()
	got := c.Transcript()
	if !slices.EqualFunc(got, lines, func(got, want string) bool {
		begin, open := strings.CutSuffix(want, "…")
		return got == want || open && strings.HasPrefix(got, begin)
	}) {
		c.system.T.Errorf("the conversation is\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

// WantPending fails the test unless calls of these tools wait, in this order.
func (c *Chat) WantPending(tools ...string) {
	c.system.T.Helper()
	if got := c.Pending(); !slices.Equal(got, tools) {
		c.system.T.Errorf("calls of %q wait, want %q", got, tools)
	}
}

// Output returns the output of the newest run as JSON.
func (c *Chat) Output() string {
	c.system.T.Helper()
	session, err := c.system.Client.Session(c.system.T.Context(), c.Session)
	c.system.must(err)
	return session.GetSession().GetOutput()
}

// State returns the custom state of the session as JSON.
func (c *Chat) State() string {
	c.system.T.Helper()
	session, err := c.system.Client.Session(c.system.T.Context(), c.Session)
	c.system.must(err)
	return session.GetSession().GetCustomState()
}
