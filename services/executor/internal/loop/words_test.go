package loop_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// asked parses a call for a client, c1=pay approval, and its answer.
func (s *stage) asked(args []string) {
	id, tool, _ := strings.Cut(args[0], "=")
	asked := loop.ClientCall{CallID: id, Tool: tool, Approval: args[1] == "approval", SubAgent: args[1] == "sub", Revision: 1}
	for i, arg := range args[2:] {
		if arg == "late" {
			asked.Applied, asked.Late = true, answerOf(args[i+3:])
			break
		}
		asked.Answer = answerOf(args[i+2:])
	}
	s.world.start.Calls = append(s.world.start.Calls, asked)
}

func (s *stage) answer(args []string) {
	s.open = false
	s.world.answer(args[0], *answerOf(args[1:]))
	s.output = fmt.Sprintf("waits %v", s.world.hasOpenCall())
}

// answerOf parses an answer: approved, refused="…", result=…, error="…" or timeout.
func answerOf(args []string) *loop.Answer {
	key, raw, _ := strings.Cut(args[0], "=")
	value := strings.TrimPrefix(strings.TrimSuffix(raw, `"`), `"`)
	switch key {
	case "approved":
		return &loop.Answer{Approved: true}
	case "refused":
		return &loop.Answer{Reason: value}
	case "result":
		return &loop.Answer{Result: json.RawMessage(raw)}
	case "error":
		return &loop.Answer{Error: value}
	case "timeout":
		return &loop.Answer{Error: "timeout", TimedOut: true}
	}
	panic("no answer: " + args[0])
}

// message parses an assistant message: texts, and calls as id=tool:arguments.
func message(args []string) agent.Message {
	m := agent.Message{Role: agent.RoleAssistant}
	for _, arg := range args {
		if id, call, ok := strings.Cut(arg, "="); ok && !strings.HasPrefix(arg, `"`) && !strings.HasPrefix(arg, "{") {
			name, arguments, _ := strings.Cut(call, ":")
			if arguments == "" {
				arguments = "{}"
			}
			m.Parts = append(m.Parts, agent.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)})
			continue
		}
		m.Parts = append(m.Parts, agent.Text{Text: strings.Trim(arg, `"`)})
	}
	return m
}

func result(id string) agent.ToolResult {
	return agent.ToolResult{CallID: id, Name: "lookup", Success: true, Result: json.RawMessage(`"ok"`)}
}

// newReplyOf parses a reply. A partial one lacks its end, and so does its last call if that has the arguments
// "…". A call c1=tool: ends without arguments.
func newReplyOf(t *testing.T, p *loop.Planner, args []string, whole bool) *loop.Reply {
	t.Helper()
	finish := model.FinishStop
	events := []model.Event{}
	for i, arg := range args {
		if reason, ok := strings.CutPrefix(arg, "finish="); ok {
			finish = model.FinishReason(reason)
			continue
		}
		if thought, ok := strings.CutPrefix(arg, "thought="); ok {
			events = append(events, model.ReasoningDelta{Text: thought})
			continue
		}
		switch part := message([]string{arg}).Parts[0].(type) {
		case agent.Text:
			events = append(events, model.TextDelta{Text: part.Text})
		case agent.ToolCall:
			finish = model.FinishToolCalls
			events = append(events, model.CallStart{Index: i, ID: part.ID, Name: part.Name})
			if strings.HasSuffix(arg, ":") {
				events = append(events, model.CallEnd{Index: i, Arguments: part.Arguments})
				break
			}
			events = append(events, model.CallDelta{Index: i, Text: string(part.Arguments)})
			if string(part.Arguments) != "…" {
				events = append(events, model.CallEnd{Index: i})
			}
		}
	}
	if whole {
		events = append(events, model.Finish{Reason: finish})
	}
	r := p.NewReply()
	for _, event := range events {
		if _, err := r.Add(event); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func failure(args []string) error {
	e := &model.Error{Code: args[0], Message: "the provider's words"}
	for _, arg := range args[1:] {
		if after, ok := strings.CutPrefix(arg, "after="); ok {
			e.RetryAfter, _ = time.ParseDuration(after)
		}
		e.Retryable = e.Retryable || arg == "retryable"
		if words, ok := strings.CutPrefix(arg, "refuses="); ok {
			e.Refusal = refusal(words)
		}
	}
	return e
}

// refusal parses what a provider refuses: something, context:1000/1300, size, image:too_large:5242880, content,
// tool:pay, tools:128/140 or parameter:temperature.
func refusal(words string) *model.Refusal {
	part, rest, _ := strings.Cut(words, ":")
	r := &model.Refusal{Part: model.RefusedPart(part)}
	numbers := func(text string) {
		limit, count, _ := strings.Cut(text, "/")
		r.Limit = int64(number(limit))
		if count != "" {
			r.Count = int64(number(count))
		}
	}
	switch part {
	case "something":
		r.Part = model.RefusedSomething
	case "context":
		if rest != "" {
			numbers(rest)
		}
	case "image":
		r.Part, r.Kind = model.RefusedFile, model.KindImage
		reason, limit, limited := strings.Cut(rest, ":")
		r.Reason = model.FileProblem(reason)
		if limited {
			numbers(limit)
		}
	case "tools":
		r.Part = model.RefusedTool
		numbers(rest)
	case "tool":
		r.Name = rest
	case "parameter":
		name, limit, limited := strings.Cut(rest, ":")
		if r.Name = name; limited {
			numbers(limit)
		}
	}
	return r
}

// contextRow parses a row of context: notice "Text" key=k disable=pay,send enable=look.
func contextRow(args []string) agent.ContextRow {
	row := agent.ContextRow{Kind: agent.ContextKind(args[0])}
	for _, arg := range args[1:] {
		key, value, ok := strings.Cut(arg, "=")
		switch {
		case !ok || strings.HasPrefix(arg, `"`):
			row.Text = strings.Trim(arg, `"`)
		case key == "key":
			row.Key = value
		case key == "disable":
			row.Disable = strings.Split(value, ",")
		case key == "enable":
			row.Enable = strings.Split(value, ",")
		default:
			panic("no part of a row: " + arg)
		}
	}
	if err := row.Check(); err != nil {
		panic(err)
	}
	return row
}

// contextRows parses rows with | between them.
func contextRows(args []string) (rows []agent.ContextRow) {
	for len(args) > 0 {
		end := slices.Index(args, "|")
		if end < 0 {
			return append(rows, contextRow(args))
		}
		rows = append(rows, contextRow(args[:end]))
		args = args[end+1:]
	}
	return rows
}

// endsOf ends calls with their known result, with the result in the words, or with success.
func endsOf(e loop.RunCalls, args []string) []loop.Ended {
	var ends []loop.Ended
	for _, call := range e.Calls {
		if call.Result != nil {
			ends = append(ends, loop.Ended{Result: *call.Result, Ops: call.Ops, Context: call.Context})
			continue
		}
		if call.Awaits != nil {
			ends = append(ends, loop.Ended{Result: agent.ToolResult{CallID: call.ID, Name: call.Name}, Ops: call.Ops, Awaits: call.Awaits})
			continue
		}
		end := loop.Ended{Result: agent.ToolResult{CallID: call.ID, Name: call.Name, Success: true, Result: json.RawMessage(`"done"`)}}
		for _, arg := range args {
			id, how, _ := strings.Cut(arg, "=")
			how, value, _ := strings.Cut(how, ":")
			if id != call.ID {
				continue
			}
			switch how {
			case "fail":
				end.Result.Success, end.Result.Result, end.Result.Error = false, nil, "it failed"
			case "gives":
				end.Result.Result = json.RawMessage(value)
			case "writes":
				end.Ops = ops(value)
			case "adds":
				end.Context = append(end.Context, contextRow(strings.Split(value, "/")))
			case "stopped":
				end = loop.Ended{Stopped: true}
			case "begun":
				end = loop.Ended{Stopped: true, Begun: true}
			case "later":
				end = loop.Ended{Result: agent.ToolResult{CallID: call.ID, Name: call.Name}, Awaits: &loop.Awaited{Until: 9000}}
				if value != "" {
					end.Ops = ops(value)
				}
			case "awaits":
				end = loop.Ended{Result: agent.ToolResult{CallID: call.ID, Name: call.Name}, Awaits: &loop.Awaited{SessionID: value, AgentType: "critic"}}
			default:
				panic("no end: " + arg)
			}
		}
		ends = append(ends, end)
	}
	return ends
}

func ops(object string) []agent.Op {
	var writes map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &writes); err != nil {
		panic(err)
	}
	var list []agent.Op
	for _, key := range slices.Sorted(maps.Keys(writes)) {
		kind := agent.OpReplace
		if writes[key][0] == '[' {
			kind = agent.OpAppend
		}
		list = append(list, agent.Op{Key: key, Kind: kind, Value: writes[key]})
	}
	return list
}

func verdict(args []string) agent.Verdict {
	key, value, _ := strings.Cut(args[0], "=")
	switch key {
	case "accept":
		return agent.Verdict{}
	case "revise":
		return agent.Verdict{Revise: strings.Trim(value, `"`)}
	case "fail":
		return agent.Verdict{Fail: strings.Trim(value, `"`)}
	case "replace":
		return agent.Verdict{Replace: json.RawMessage(value)}
	}
	panic("no verdict: " + args[0])
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
