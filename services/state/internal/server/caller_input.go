package server

import (
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// longestAnswer bounds the wait for the answer to a call of a caller's tool.
const longestAnswer = 365 * 24 * time.Hour

// callerInput reads what a message brings to its turn. Invalid (CALLER_TOOLS_INVALID), TooLarge (CALLER_TOOLS_TOO_LARGE).
func (x *reader) callerInput(in *eventv1.CallerInput) session.CallerInput {
	x.atMost("CALLER_TOOLS_TOO_LARGE", "instructions", len(in.GetInstructions()), agent.MaxCallerInstructions)
	x.atMost("CALLER_TOOLS_TOO_LARGE", "tools and instructions", proto.Size(in), agent.MaxCallerInput)
	if n := len(in.GetTools()); n > agent.MaxCallerTools {
		x.fail(fault.New(fault.TooLarge, "CALLER_TOOLS_TOO_LARGE", "the request has %d tools; the limit is %d", n, agent.MaxCallerTools))
	}
	if strings.ContainsRune(in.GetInstructions(), 0) {
		x.refuse("CALLER_TOOLS_INVALID", "instructions must be a text without NUL characters")
	}
	if x.err != nil {
		return session.CallerInput{}
	}
	out := session.CallerInput{Instructions: in.GetInstructions() != ""}
	tools := make([]agent.Tool, len(in.GetTools()))
	for i, t := range in.GetTools() {
		number(x, "CALLER_TOOLS_INVALID", "answer_within_ms", t.GetAnswerWithinMs(), longestAnswer.Milliseconds(),
			"give at most a year, or 0 for no limit")
		tools[i] = agent.Tool{
			Name: t.GetName(), Description: t.GetDescription(),
			InputSchema: rawJSON(t.GetInputSchema()), OutputSchema: rawJSON(t.GetOutputSchema()),
			AnswerWithin: time.Duration(t.GetAnswerWithinMs()) * time.Millisecond, Client: true,
		}
		out.Tools = append(out.Tools, t.GetName())
	}
	if problems := agent.CallerToolProblems(tools); len(problems) > 0 {
		x.refuse("CALLER_TOOLS_INVALID", "%s: %s", problems[0].Field, problems[0].Text)
	}
	return out
}

// rawJSON returns nil for an empty text.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// agentRules reads what an agent permits to callers. It returns nil for nil. Invalid with the reason.
func (x *reader) agentRules(reason, name string, r *statev1.AgentRules) *session.AgentRules {
	const maxBytes = 128 << 10
	if r == nil {
		return nil
	}
	if n := proto.Size(r); n > maxBytes {
		x.refuse(reason, "the rules of agent %q have %d bytes; the limit is %d", name, n, maxBytes)
	}
	out := &session.AgentRules{CallerInstructions: r.GetCallerInstructions()}
	if tools := r.GetCallerTools(); tools != nil {
		if n := tools.GetMax(); n < 1 || n > agent.MaxCallerTools {
			x.refuse(reason, "caller_tools.max of agent %q is %d; it must be 1 to %d", name, n, agent.MaxCallerTools)
		}
		out.CallerTools = &session.CallerTools{Allow: tools.GetAllow(), Max: tools.GetMax(), Taken: tools.GetTaken()}
	}
	return out
}

// agentRulesOut returns nil for nil.
func agentRulesOut(r *session.AgentRules) *statev1.AgentRules {
	if r == nil {
		return nil
	}
	out := &statev1.AgentRules{CallerInstructions: r.CallerInstructions}
	if tools := r.CallerTools; tools != nil {
		out.CallerTools = &statev1.CallerTools{Allow: tools.Allow, Max: tools.Max, Taken: tools.Taken}
	}
	return out
}
