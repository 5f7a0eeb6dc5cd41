package loop_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

var update = flag.Bool("update", false, "write what the planner does into the scenarios")

// A scenario is a text file. Lines that begin with ">" are what the planner wants
// next; the other lines are said to it. "# …" explains.
//
//	agent max=3 tool=lookup:safe tool=charge:never
//	user Hello                  the transcript, before start
//	assistant text c1=lookup    … an assistant message with a text and a call
//	result c1 ok                … a tool message
//	steps 4 1                   committed steps of the session and of the run
//	plan c1=lookup:{"q":1}      the journal: a plan with calls …
//	recorded c1                 … and a recorded result
//	start
//	reply "text" c1=lookup:{"q":1} finish=stop
//	error provider_overloaded retryable after=5s
//	unclassified
//	waited · recorded · ended · committed · finished
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(data))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(data) {
				t.Errorf("the scenario went\n%s\nwant\n%s", got, data)
			}
		})
	}
}

// play gives the scenario with what the planner wanted in it.
func play(t *testing.T, scenario string) string {
	t.Helper()
	s := stage{t: t, start: loop.Start{Run: loop.Run{Tenant: "acme", SessionID: "s", RunID: "r"}, Agent: agent.Agent{Model: "test/mind", SystemPrompt: "Be brief."}}}
	var out strings.Builder
	for line := range strings.Lines(scenario) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.say(words(line))
		if s.planner != nil {
			out.WriteString(describe(s.planner.Next()))
		}
	}
	return out.String()
}

// words splits a line at spaces that are not within quotes or braces.
func words(line string) []string {
	var list []string
	depth, quoted, begin := 0, false, 0
	for i, r := range line + " " {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == '{' || r == '[':
			depth++
		case r == '}' || r == ']':
			depth--
		case r == ' ' && depth == 0:
			if i > begin {
				list = append(list, line[begin:i])
			}
			begin = i + 1
		}
	}
	return list
}

// stage is where a scenario is played.
type stage struct {
	t       *testing.T
	start   loop.Start
	planner *loop.Planner
}

func (s *stage) say(line []string) {
	s.t.Helper()
	switch args := line[1:]; line[0] {
	case "agent":
		s.agent(args)
	case "user":
		s.start.Transcript = append(s.start.Transcript, agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: strings.Join(args, " ")}}})
	case "assistant":
		s.start.Transcript = append(s.start.Transcript, message(args))
	case "result":
		s.start.Transcript = append(s.start.Transcript, agent.Message{Role: agent.RoleTool, Parts: []agent.Part{result(args[0])}})
	case "steps":
		s.start.SessionSteps, s.start.RunSteps = number(args[0]), number(args[1])
	case "plan":
		s.start.Journal = &loop.Journal{Plan: message(args)}
	case "recorded":
		if s.planner != nil {
			s.planner.Recorded()
			return
		}
		s.start.Journal.Results = append(s.start.Journal.Results, result(args[0]))
	case "start":
		s.planner = loop.New(s.start)
	case "reply":
		s.reply(args)
	case "error":
		s.planner.Failed(failure(args))
	case "unclassified":
		s.planner.Failed(fmt.Errorf("something odd"))
	case "waited":
		s.planner.Waited()
	case "ended":
		s.ended()
	case "committed":
		s.planner.Committed()
	case "finished":
		s.planner.Finished()
	default:
		s.t.Fatalf("unknown line %q", line)
	}
}

func (s *stage) agent(args []string) {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "max":
			s.start.Agent.MaxSteps = number(value)
		case "tool":
			name, retry, _ := strings.Cut(value, ":")
			s.start.Agent.Tools = append(s.start.Agent.Tools, agent.Tool{
				Name: name, Retry: agent.Retry(retry),
				InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"integer"}},"required":["q"]}`),
			})
		}
	}
}

// message is an assistant message of words: texts, and calls as id=tool:arguments.
func message(args []string) agent.Message {
	m := agent.Message{ID: "m", Role: agent.RoleAssistant}
	for _, arg := range args {
		if id, call, ok := strings.Cut(arg, "="); ok {
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

func (s *stage) reply(args []string) {
	s.t.Helper()
	finish := model.FinishStop
	var events []model.Event
	for i, arg := range args {
		if reason, ok := strings.CutPrefix(arg, "finish="); ok {
			finish = model.FinishReason(reason)
			continue
		}
		switch part := message([]string{arg}).Parts[0].(type) {
		case agent.Text:
			events = append(events, model.TextDelta{Text: part.Text})
		case agent.ToolCall:
			finish = model.FinishToolCalls
			events = append(events, model.CallStart{Index: i, ID: part.ID, Name: part.Name}, model.CallDelta{Index: i, Text: string(part.Arguments)}, model.CallEnd{Index: i})
		}
	}
	r := s.planner.NewReply()
	for _, event := range append(events, model.Finish{Reason: finish}) {
		if _, err := r.Add(event); err != nil {
			s.t.Fatal(err)
		}
	}
	s.planner.Replied(r)
}

func failure(args []string) error {
	e := &model.Error{Code: args[0], Message: "the provider's words"}
	for _, arg := range args[1:] {
		if after, ok := strings.CutPrefix(arg, "after="); ok {
			e.RetryAfter, _ = time.ParseDuration(after)
		}
		e.Retryable = e.Retryable || arg == "retryable"
	}
	return e
}

// ended answers with what is known, and success for what ran.
func (s *stage) ended() {
	var results []agent.ToolResult
	for _, call := range s.planner.Next().(loop.RunCalls).Calls {
		if call.Result != nil {
			results = append(results, *call.Result)
			continue
		}
		results = append(results, agent.ToolResult{CallID: call.ID, Name: call.Name, Success: true, Result: json.RawMessage(`"done"`)})
	}
	s.planner.Ended(results)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// describe is an effect in lines that begin with ">".
func describe(effect loop.Effect) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch e := effect.(type) {
	case loop.CallModel:
		add("call model: step %d, attempt %d", e.Step, e.Attempt)
		for _, m := range e.Request.Messages {
			add("    %s", text(m))
		}
	case loop.Wait:
		add("wait %v because of %s", e.For, e.Cause.Code)
	case loop.RecordPlan:
		add("record plan: step %d, %s", e.Step, text(e.Plan))
	case loop.RunCalls:
		add("run calls: step %d, planned %v", e.Step, e.Planned)
		for _, c := range e.Calls {
			add("    %s", callText(c))
		}
	case loop.Commit:
		add("commit step %d%s", e.Step, outcomeText(e.Outcome))
		for _, m := range e.Messages {
			add("    %s", text(m))
		}
	case loop.Finish:
		add("finish%s", outcomeText(&e.Outcome))
	case loop.Done:
		add("done%s", outcomeText(&e.Outcome))
	}
	return "> " + strings.Join(lines, "\n> ") + "\n"
}

func callText(c loop.Call) string {
	switch {
	case c.Recorded:
		return c.ID + ": recorded " + string(c.Result.Result)
	case c.Result != nil:
		return c.ID + ": not run: " + c.Result.Error
	}
	return fmt.Sprintf("%s: run %s with %s", c.ID, c.Tool.Name, c.Arguments)
}

func outcomeText(o *loop.Outcome) string {
	switch {
	case o == nil:
		return ""
	case o.Failure != nil:
		return strings.TrimRight(fmt.Sprintf(" and fail: %q %s %s", o.Failure.Error, o.Failure.Code, o.CompletionReason), " ")
	}
	return fmt.Sprintf(" and complete: %s, %s", o.Output, o.FinishReason)
}

func text(m agent.Message) string {
	parts := []string{string(m.Role) + ":"}
	for _, p := range m.Parts {
		switch part := p.(type) {
		case agent.Text:
			parts = append(parts, part.Text)
		case agent.ToolCall:
			parts = append(parts, fmt.Sprintf("[%s %s %s]", part.ID, part.Name, part.Arguments))
		case agent.ToolResult:
			parts = append(parts, fmt.Sprintf("[%s → %s%s]", part.CallID, part.Result, part.Error))
		}
	}
	return strings.Join(parts, " ")
}
