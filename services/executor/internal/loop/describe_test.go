package loop_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func noGuard(context.Context, agent.Ending) (agent.Verdict, error) { return agent.Verdict{}, nil }

// describe describes an effect in lines that begin with ">".
func describe(effect loop.Effect) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	messages := func(list []agent.Message) {
		for _, m := range list {
			add("    %s", text(m))
		}
	}
	switch e := effect.(type) {
	case loop.CallModel:
		add("call model: step %d, attempt %d%s", e.Step, e.Attempt, requestText(e))
		messages(e.Request.Messages)
	case loop.Wait:
		add("wait %v because of %s", duration(e.For), e.Cause.Code)
	case loop.Compact:
		add("compact: step %d, %s", e.Step, e.Model)
		messages(e.Older)
	case loop.StepContext:
		add("ask for context: step %d, after %d, %s, offers %v", e.Step, e.View.Steps, e.View.Model, e.View.Tools)
	case loop.Guard:
		what := "output"
		if e.Reply {
			what = "reply"
		}
		add("guard the %s of step %d, after %d: %s", what, e.Step, e.Ending.Steps, e.Ending.Output)
	case loop.RecordPlan:
		add("record plan: step %d, %s", e.Step, text(e.Plan))
	case loop.RunCalls:
		add("run calls: step %d, planned %v%s", e.Step, e.Planned, when(e.Answering, ", answers"))
		for i, c := range e.Calls {
			add("    %s%s", callText(c), recordText(e, i))
		}
	case loop.Commit:
		add("%s step %d%s", when(e.Answering, "answer and ")+"commit", e.Step, outcomeText(e.Outcome))
		messages(e.Messages)
		for _, open := range e.Suspend {
			kind := "answer"
			if open.Approval {
				kind = "approval"
			}
			if open.Until != 0 {
				add("    leave %s open for a callback until %d", open.ID, open.Until)
				continue
			}
			if open.Begun {
				kind = fmt.Sprintf("answer of %s in %s, which has begun", open.SubAgent, open.SessionID)
			} else if open.SubAgent != "" {
				kind = fmt.Sprintf("answer of %s in %s to %q", open.SubAgent, open.SessionID, open.Message)
			}
			add("    leave %s open for an %s%s", open.ID, kind, when(open.AnswerWithin > 0, " within "+duration(open.AnswerWithin).String()))
		}
		for _, c := range e.Consumed {
			add("    take answer %d of %s", c.Revision, c.CallID)
		}
		for _, id := range slices.Sorted(maps.Keys(e.Decisions)) {
			decision := e.Decisions[id]
			add("    %s%s", id, decisionText(&decision))
		}
		for _, id := range e.Reported {
			add("    tell of %s", id)
		}
	case loop.Finish:
		add("finish%s", outcomeText(&e.Outcome))
	case loop.Done:
		add("done%s", outcomeText(&e.Outcome))
	}
	return "> " + strings.Join(lines, "\n> ") + "\n"
}

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// requestText describes the unusual parts of a request.
func requestText(e loop.CallModel) string {
	var text string
	if e.Model != "test/mind" {
		text += ", " + e.Model
	}
	if e.Request.Temperature != nil {
		text += fmt.Sprintf(", temperature %v", *e.Request.Temperature)
	}
	if e.Request.MaxOutputTokens != 0 {
		text += fmt.Sprintf(", at most %d tokens", e.Request.MaxOutputTokens)
	}
	if e.Request.System != "Be brief." {
		text += fmt.Sprintf(", %q", e.Request.System)
	}
	if e.Request.Choice == model.ChoiceRequired {
		text += ", wants one of"
		for _, t := range e.Request.Tools {
			text += " " + t.Name
		}
	}
	if e.Request.Output != nil {
		text += ", wants " + string(e.Request.Output.Schema)
	}
	return text
}

func callText(c loop.Call) string {
	var text string
	switch {
	case c.Awaits != nil:
		text = "recorded later"
	case c.Recorded:
		text = "recorded " + string(c.Result.Result) + c.Result.Error
	case c.Result != nil && c.Result.Success:
		text = "has " + string(c.Result.Result)
	case c.Result != nil:
		text = "not run: " + c.Result.Error
	default:
		text = fmt.Sprintf("run %s with %s", c.Tool.Name, c.Arguments)
	}
	return c.ID + ": " + text + decisionText(c.Decision)
}

// recordText says whether a small result of the i-th call without writes is recorded.
func recordText(e loop.RunCalls, i int) string {
	switch c := e.Calls[i]; {
	case e.Records(c, loop.Ended{}, true):
		return ", recorded"
	case e.Records(c, loop.Ended{}, false):
		return ", recorded unless last"
	}
	return ""
}

// decisionText describes the decision on an approval, if any.
func decisionText(d *loop.Decision) string {
	if d == nil {
		return ""
	}
	decided := "rejected"
	if d.Approved {
		decided = "approved"
	}
	return ", " + decided + when(d.Reason != "", ": "+d.Reason)
}

func outcomeText(o *loop.Outcome) string {
	switch {
	case o == nil:
		return ""
	case o.Failure != nil:
		return strings.TrimRight(fmt.Sprintf(" and fail: %q %s %s", o.Failure.Error, o.Failure.Code, o.CompletionReason), " ")
	case o.Status == loop.StatusInterrupted:
		return fmt.Sprintf(" and interrupt: %q", o.Reason)
	case o.Status != loop.StatusCompleted:
		return fmt.Sprintf(" and suspend: %s", o.Status)
	}
	return strings.TrimRight(fmt.Sprintf(" and complete: %s, %s %s%s", o.Output, o.FinishReason, when(o.Structured, "structured "), o.CompletionReason), " ")
}

func text(m agent.Message) string {
	role := string(m.Role)
	if m.Hidden {
		role = "hidden " + role
	}
	for _, key := range slices.Sorted(maps.Keys(m.Metadata)) {
		role += fmt.Sprintf(" (%s %s)", key, m.Metadata[key])
	}
	parts := []string{role + ":"}
	for _, p := range m.Parts {
		switch part := p.(type) {
		case agent.Text:
			parts = append(parts, strings.ReplaceAll(part.Text, "\n\n", " "))
		case agent.Reasoning:
			parts = append(parts, "<"+part.Text+">")
		case agent.File:
			parts = append(parts, "{"+part.Filename+"}")
		case agent.ToolCall:
			parts = append(parts, fmt.Sprintf("[%s %s %s]", part.ID, part.Name, part.Arguments))
		case agent.ToolResult:
			parts = append(parts, fmt.Sprintf("[%s → %s%s]", part.CallID, part.Result, part.Error))
		}
	}
	return strings.Join(parts, " ")
}

func duration(m loop.Millis) time.Duration { return time.Duration(m) * time.Millisecond }
