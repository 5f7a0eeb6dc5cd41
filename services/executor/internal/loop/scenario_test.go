package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
//	agent max=3 tool=lookup:safe tool=pay:never:approval    see agentOptions
//	user Hello                  the transcript, before start
//	brings page_open            tools of the caller
//	picture a.png What?         … a user message with an image
//	assistant text c1=lookup    … an assistant message with a text and a call
//	interrupted text            … one that was cut short
//	failed text                 … what came of one whose model call failed
//	result c1 ok                … a tool message
//	state {"n":1}               the custom state
//	begin 2                     the index of the run's first message
//	steps 4                     committed steps of the session
//	turn 2                      the number of the run in the session
//	depth 2 of 3                the depth of the session, and the largest one
//	plan c1=lookup:{"q":1}      the journal: a plan with calls …
//	recorded c1                 … and a recorded result
//	asked c1=pay approval …     a call that somebody outside was asked about, and its answer
//	start
//	reply "text" c1=lookup:{"q":1} finish=stop    c2=lookup: has an end and no arguments
//	error provider_overloaded retryable after=5s reply "Hal"
//	error provider_invalid_request refuses=context:1000/1300    see refusal
//	unclassified reply "Hal"
//	waited · recorded · committed · finished
//	ended c1=fail c2=writes:{"n":2} c3=stopped c4=begun     the others have succeeded
//	judged revise="No." · guardfailed · compacted "…" · compactfailed
//	stopped abort "reason" reply "Hal"
//	wrote {"n":3}               a hook has written
//	crash                       a new owner begins with what is durable
//	answer c1 approved          while the session is suspended
//	continue                    the run that follows when all is answered
//	message Hello again         a run with a message of its own
//	quit                        the run is given up, whatever it is at
//	shown                       what the state is
//	tools                       what tools the model is offered
//	row notice "Text" key=k disable=pay,send    a row of context of an application, at any time
//	given notice "Text" key=k | …               the agent's rows of context, as above
//	contextfailed
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, file := range scenarios(t) {
		t.Run(file.name, func(t *testing.T) {
			t.Parallel()
			got, _ := play(t, file.text)
			if *update && !t.Failed() {
				if err := os.WriteFile(file.path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != file.text {
				t.Errorf("the scenario went\n%s\nwant\n%s", got, file.text)
			}
		})
	}
}

// At least one scenario uses each word.
func TestEveryWordOfTheScenariosIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, file := range scenarios(t) {
		for line := range strings.Lines(file.text) {
			list := wordID(strings.TrimSuffix(line, "\n"))
			if len(list) == 0 || strings.HasPrefix(line, ">") || strings.HasPrefix(line, "#") {
				continue
			}
			used[list[0]] = true
			if list[0] == "agent" {
				for _, option := range list[1:] {
					name, value, _ := strings.Cut(option, "=")
					used["agent "+name] = true
					if name == "tool" {
						for _, trait := range strings.Split(value, ":")[1:] {
							trait, _, _ = strings.Cut(trait, "/")
							used["tool "+trait] = true
						}
					}
				}
			}
		}
	}
	for command := range commands {
		if !used[command] {
			t.Errorf("no scenario says %q", command)
		}
	}
	for option := range agentOptions {
		if !used["agent "+option] {
			t.Errorf("no scenario has an agent with %q", option)
		}
	}
	for trait := range toolTraits {
		if !used["tool "+trait] {
			t.Errorf("no scenario has a tool that is %q", trait)
		}
	}
}

type scenario struct{ path, name, text string }

func scenarios(t *testing.T) []scenario {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var list []scenario
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, scenario{path, strings.TrimSuffix(filepath.Base(path), ".txt"), string(data)})
	}
	return list
}

// play returns the scenario with the planner's effects filled in.
func play(t *testing.T, text string) (string, *stage) {
	t.Helper()
	s := &stage{t: t, world: newWorld(loop.Start{
		Run:   loop.Run{Tenant: "acme", SessionID: "s", RunID: "r"},
		Agent: agent.Agent{Name: "helper", Model: "test/mind", SystemPrompt: "Be brief."}, MaxDepth: 8,
	})}
	var out strings.Builder
	defer func() {
		if mistake := recover(); mistake != nil {
			t.Errorf("the scenario went\n%sand then: %v", out.String(), mistake)
		}
	}()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		list := wordID(line)
		command := commands[list[0]]
		if command == nil {
			t.Fatalf("unknown line %q", line)
		}
		command(s, list[1:])
		if s.output != "" {
			out.WriteString("> " + s.output + "\n")
			s.output = ""
		} else if s.planner != nil {
			out.WriteString(describe(s.planner.Next()))
		}
	}
	return out.String(), s
}

// wordID splits a line at spaces outside of quotes and braces.
func wordID(line string) []string {
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

// stage plays a scenario.
type stage struct {
	t       *testing.T
	world   *world
	planner *loop.Planner
	output  string // output in place of the next effect
	acts    []*act
	open    bool // the last act continues
}

// act is the script of one planner while it only answers effects.
type act struct {
	first *world // at the start of the planner
	said  []scriptLine
}

// scriptLine is an effect and the answering words.
type scriptLine struct {
	effect loop.Effect
	words  []string
}

func (s *stage) answered(words ...string) {
	if s.open {
		last := s.acts[len(s.acts)-1]
		last.said = append(last.said, scriptLine{s.planner.Next(), words})
	}
}

func (s *stage) append(m agent.Message) {
	m.ID = fmt.Sprintf("m%d", len(s.world.start.Transcript))
	s.world.start.Transcript = append(s.world.start.Transcript, m)
}

func (s *stage) begin() {
	s.acts, s.open = append(s.acts, &act{first: s.world.copy()}), true
	s.planner = loop.New(s.world.newStart())
}

var commands = map[string]func(*stage, []string){
	"agent": func(s *stage, args []string) {
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			set := agentOptions[key]
			if set == nil {
				s.t.Fatalf("an agent has no %q", key)
			}
			set(&s.world.start.Agent, value)
		}
	},
	"user": func(s *stage, args []string) {
		s.append(agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: strings.Join(args, " ")}}})
	},
	"brings": func(s *stage, args []string) {
		for _, name := range args {
			s.world.start.Caller.Tools = append(s.world.start.Caller.Tools, agent.Tool{
				Name: name, Client: true, InputSchema: json.RawMessage(`{"type":"object"}`),
			})
		}
	},
	"picture": func(s *stage, args []string) {
		s.append(agent.Message{Role: agent.RoleUser, Parts: []agent.Part{
			agent.File{MediaType: "image/png", URL: "data:image/png," + args[0], Filename: args[0]}, agent.Text{Text: strings.Join(args[1:], " ")},
		}})
	},
	"assistant": func(s *stage, args []string) { s.append(message(args)) },
	"interrupted": func(s *stage, args []string) {
		m := message(args)
		m.Metadata = map[string]string{agent.MetadataInterrupted: "interrupt"}
		m.Parts = append([]agent.Part{agent.Reasoning{Text: "Hm."}}, m.Parts...)
		s.append(m)
	},
	"failed": func(s *stage, args []string) {
		m := message(args)
		m.Metadata = map[string]string{agent.MetadataFailed: "provider_overloaded"}
		s.append(m)
	},
	"result": func(s *stage, args []string) {
		s.append(agent.Message{Role: agent.RoleTool, Parts: []agent.Part{result(args[0])}})
	},
	"state": func(s *stage, args []string) { s.world.start.State = must(agent.ParseState(json.RawMessage(args[0]))) },
	"begin": func(s *stage, args []string) { s.world.start.Begin = number(args[0]) },
	"steps": func(s *stage, args []string) { s.world.start.SessionSteps = number(args[0]) },
	"turn":  func(s *stage, args []string) { s.world.start.Turn = number(args[0]) },
	"depth": func(s *stage, args []string) {
		s.world.start.Depth, s.world.start.MaxDepth = number(args[0]), number(args[2])
	},
	"plan": func(s *stage, args []string) {
		m := message(args)
		m.ID = "m"
		s.world.start.Journal = &loop.Journal{Plan: m}
	},
	"recorded": func(s *stage, args []string) {
		if s.planner == nil {
			s.world.recordResult(loop.Ended{Result: result(args[0])})
			return
		}
		s.answered()
		s.world.recordPlan(s.planner.Next().(loop.RecordPlan))
		s.planner.Recorded()
	},
	"asked": (*stage).asked,
	"start": func(s *stage, _ []string) { s.begin() },
	"reply": func(s *stage, args []string) {
		s.answered(append([]string{"reply"}, args...)...)
		s.planner.Replied(newReplyOf(s.t, s.planner, args, true))
	},
	"error": func(s *stage, args []string) {
		s.answered(append([]string{"error"}, args...)...)
		reply, args := s.partial(args)
		s.planner.Failed(reply, failure(args))
	},
	"unclassified": func(s *stage, args []string) {
		s.answered(append([]string{"unclassified"}, args...)...)
		reply, _ := s.partial(args)
		s.planner.Failed(reply, errors.New("something odd"))
	},
	"waited": func(s *stage, _ []string) { s.answered(); s.planner.Waited() },
	"ended": func(s *stage, args []string) {
		s.answered(args...)
		e := s.planner.Next().(loop.RunCalls)
		ends := endsOf(e, args)
		s.world.recordEnds(e, ends)
		s.planner.Ended(ends)
	},
	"committed": func(s *stage, _ []string) {
		s.answered()
		s.world.commit(s.planner.Next().(loop.Commit))
		s.planner.Committed()
	},
	"finished": func(s *stage, _ []string) { s.answered(); s.planner.Finished() },
	"judged": func(s *stage, args []string) {
		s.answered(append([]string{"judged"}, args...)...)
		s.planner.Judged(verdict(args))
	},
	"guardfailed": func(s *stage, _ []string) {
		s.answered("guardfailed")
		s.planner.GuardFailed(errors.New("the judge is away"))
	},
	"compacted": func(s *stage, args []string) {
		s.answered(append([]string{"compacted"}, args...)...)
		s.planner.Compacted(strings.Trim(args[0], `"`))
	},
	// quit shows the rest of the run when its executor abandons it.
	"quit": func(s *stage, _ []string) {
		outcome := loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{Error: "It was lost.", Detail: "lost", Code: "framework_run_lost"}}
		effect := loop.Quit(s.world.newStart(), outcome).Next()
		s.output = strings.TrimSuffix(strings.TrimPrefix(describe(effect), "> "), "\n")
		s.open, s.planner = false, nil
		s.world.start.Journal = nil
		if c, ok := effect.(loop.Commit); ok {
			s.world.commit(c)
		}
	},
	"compactfailed": func(s *stage, args []string) {
		s.answered(append([]string{"compactfailed"}, args...)...)
		err := errors.New("no summary")
		if len(args) > 0 {
			err = failure(append([]string{model.CodeInvalidRequest}, args...))
		}
		s.planner.CompactFailed(err)
	},
	"row": func(s *stage, args []string) {
		s.open = false
		m := contextRow(args).Message(fmt.Sprintf("row%d", len(s.world.start.Transcript)), agent.ContextOfApp)
		s.world.start.Transcript = append(s.world.start.Transcript, m)
		s.output = "stored"
	},
	"given": func(s *stage, args []string) {
		s.answered(append([]string{"given"}, args...)...)
		s.planner.Contexted(contextRows(args))
	},
	"contextfailed": func(s *stage, _ []string) {
		s.answered("contextfailed")
		s.planner.ContextFailed(errors.New("no context"))
	},
	"stopped": func(s *stage, args []string) {
		s.open = false
		stop := loop.Stop{Kind: loop.StopKind(args[0])}
		reply, args := s.partial(args)
		if len(args) > 1 {
			stop.Reason = strings.Trim(args[1], `"`)
		}
		s.planner.Stopped(stop, reply)
	},
	"wrote": func(s *stage, args []string) {
		s.open = false
		s.world.wrote = append(s.world.wrote, ops(args[0])...)
	},
	"crash":    func(s *stage, _ []string) { s.begin() },
	"answer":   (*stage).answer,
	"continue": func(s *stage, _ []string) { s.world.next("r+", ""); s.begin() },
	"message": func(s *stage, args []string) {
		s.world.next("r2", strings.Join(args, " "))
		s.begin()
	},
	"tools": func(s *stage, _ []string) {
		for _, t := range s.planner.Next().(loop.CallModel).Request.Tools {
			s.output += t.Name + " "
		}
		s.output = strings.TrimSpace(s.output)
	},
	"shown": func(s *stage, _ []string) { s.output = string(must(json.Marshal(s.planner.State()))) },
}

// partial returns the partial reply after the word reply, and the words before it.
func (s *stage) partial(args []string) (*loop.Reply, []string) {
	i := slices.Index(args, "reply")
	if i < 0 {
		return nil, args
	}
	return newReplyOf(s.t, s.planner, args[i+1:], false), args[:i]
}

var agentOptions = map[string]func(*agent.Agent, string){
	"max":       func(a *agent.Agent, v string) { a.MaxSteps = number(v) },
	"subagents": func(a *agent.Agent, v string) { a.MaxSubAgents = number(v) },
	"retries":   func(a *agent.Agent, v string) { a.MaxRetries = new(number(v)) },
	"tool":      func(a *agent.Agent, v string) { a.Tools = append(a.Tools, tool(v)) },
	"output": func(a *agent.Agent, v string) {
		a.OutputSchema = json.RawMessage(`{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)
		a.Completion = agent.Completion(v)
	},
	"fallback": func(a *agent.Agent, v string) { a.Fallbacks = append(a.Fallbacks, v) },
	"guard": func(a *agent.Agent, v string) {
		// The scenario itself provides the verdict.
		if v == "reply" {
			a.Guard.OnReply = noGuard
			return
		}
		a.Guard.OnOutput = noGuard
	},
	"stopwhen": func(a *agent.Agent, v string) {
		a.StopWhen = func(_ context.Context, p *agent.Progress) (bool, error) { return p.Steps >= number(v), nil }
	},
	"context": func(a *agent.Agent, _ string) {
		// The scenario itself provides the rows.
		a.StepContext = func(context.Context, *agent.HookCall, agent.StepView) ([]agent.ContextRow, error) { return nil, nil }
	},
	"budget":        func(a *agent.Agent, v string) { a.Context.MaxTokens = number(v) },
	"keep":          func(a *agent.Agent, v string) { a.Context.KeepTokens = number(v) },
	"compaction":    func(a *agent.Agent, v string) { a.Context.Compaction = agent.Compaction(v) },
	"temperature":   func(a *agent.Agent, v string) { a.Temperature = new(must(strconv.ParseFloat(v, 64))) },
	"output_tokens": func(a *agent.Agent, v string) { a.MaxOutputTokens = number(v) },
	"prompt": func(a *agent.Agent, _ string) {
		a.Prompt = func(_ context.Context, run *agent.RunView) (string, error) {
			return fmt.Sprintf("n is %v.", run.State["n"]), nil
		}
	},
}

var toolTraits = map[string]func(*agent.Tool, string){
	"safe":     func(t *agent.Tool, _ string) { t.Retry = agent.RetrySafe },
	"read":     func(t *agent.Tool, _ string) { t.ReadOnly = true },
	"never":    func(t *agent.Tool, _ string) { t.Retry = agent.RetryNever },
	"client":   func(t *agent.Tool, _ string) { t.Client = true },
	"sub":      func(t *agent.Tool, _ string) { t.SubAgent = t.Name },
	"limit":    func(t *agent.Tool, v string) { t.Timeout = must(time.ParseDuration(v)) },
	"approval": func(t *agent.Tool, _ string) { t.Approval = true },
	// A call whose q differs from the state's n.
	"odd": func(t *agent.Tool, _ string) {
		t.ApproveWhen = func(_ context.Context, call *agent.Call) (bool, error) {
			var in struct{ Q json.Number }
			err := json.Unmarshal(call.Input, &in)
			return in.Q != call.State()["n"], err
		}
	},
	"finish":  func(t *agent.Tool, _ string) { t.FinishWith = true },
	"within":  func(t *agent.Tool, v string) { t.AnswerWithin = must(time.ParseDuration(v)) },
	"free":    func(t *agent.Tool, _ string) { t.InputSchema = json.RawMessage(`{"type":"object"}`) },
	"checked": func(t *agent.Tool, _ string) { t.OutputSchema = json.RawMessage(`{"type":"integer"}`) },
}

// tool parses name:trait:trait/value.
func tool(v string) agent.Tool {
	name, traits, _ := strings.Cut(v, ":")
	t := agent.Tool{
		Name:        name,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"integer"}},"required":["q"]}`),
	}
	for trait := range strings.SplitSeq(traits, ":") {
		trait, value, _ := strings.Cut(trait, "/")
		set := toolTraits[trait]
		if set == nil {
			panic(fmt.Sprintf("a tool is never %q; it is one of %q", trait, slices.Sorted(maps.Keys(toolTraits))))
		}
		set(&t, value)
	}
	return t
}
