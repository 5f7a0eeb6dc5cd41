package uistream_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

var update = flag.Bool("update", false, "write what the translator gives into the scenarios")

// A scenario is a text with a command on each line, followed by the resulting parts, indented. The
// commands are
//
//	client VERSION                 a client of that major version; first line
//	replay CALLS…                  the page reloads, and a new translator begins the message
//	                               again; these client calls are answered
//	post                           the client has sent an answer, and a new translator continues:
//	                               the parts of chunks are not sent until the line "now"
//	describe RUN AGENT CREATED     the message has metadata; before start
//	start                          the message begins
//	pending CALL TOOL INPUT STEP APPROVAL [ANSWER [REASON]]
//	                               the run left the call open; APPROVAL is - for a client
//	                               tool, ANSWER is its output, error, yes or no
//	SEQUENCE EVENT ARGUMENTS…      a chunk; step_started N sets the step of the next chunks,
//	                               and a last argument "dynamic" makes the tool dynamic
//	rewound AT
//	end completed|paused|interrupted
//	fail SENTENCE
//	stopped SENTENCE               the session was stopped while the run was suspended
//	given_up                       the run never began
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}

func play(t *testing.T, text string) string {
	t.Helper()
	p := &player{t: t, client: newClient(uistream.DefaultMajor)}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line)
		words := wordsOf(t, line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		for _, answer := range p.command(words) {
			out.WriteString("\t" + answer + "\n")
		}
	}
	return out.String()
}

var endings = map[string]uistream.Ending{"completed": uistream.Completed, "paused": uistream.Paused, "interrupted": uistream.Interrupted}

type player struct {
	t      *testing.T
	tr     *uistream.Translator
	step   int32
	client *client
	silent bool
}

func (p *player) command(words []string) []string {
	switch words[0] {
	case "client":
		p.client.major = uistream.Major(p.number(words[1]))
		p.tr = uistream.New("msg-run-1", p.client.major)
		return nil
	case "replay":
		p.client = newClient(p.client.major)
		p.tr = uistream.New("msg-run-1", p.client.major)
		p.tr.SetAnswered(func(id string) bool { return slices.Contains(words[1:], id) })
		return nil
	case "post":
		p.client.connect(false)
		p.tr, p.silent = uistream.New("msg-run-1", p.client.major), true
		return p.deliver(p.tr.Start())
	case "now":
		p.silent = false
		return nil
	case "describe":
		p.tr.SetMetadata(uistream.Metadata{RunID: words[1], AgentType: words[2], CreatedAt: p.number(words[3])})
		return nil
	case "pending":
		return p.unlessSilent(p.tr.Pending([]uistream.PendingCall{p.pendingCall(words[1:])}))
	case "start":
		return p.unlessSilent(p.tr.Start())
	case "end":
		return p.unlessSilent(p.tr.Finish(endings[words[1]]))
	case "given_up":
		return p.unlessSilent(p.tr.FinishWithoutMessage())
	case "stopped":
		return p.unlessSilent(p.tr.FailStopped(words[1]))
	case "fail":
		return p.unlessSilent(p.tr.Fail(words[1]))
	case "rewound":
		parts, ok := p.tr.Rewind(p.number(words[1]))
		answers := p.unlessSilent(parts)
		if !ok {
			answers = append(answers, "(break the connection)")
		}
		return answers
	default:
		return p.unlessSilent(p.tr.Chunk(p.number(words[0]), p.chunk(words[1], words[2:])))
	}
}

func (p *player) pendingCall(args []string) uistream.PendingCall {
	a := uistream.PendingCall{CallID: args[0], ToolName: args[1], Input: args[2], Step: int32(p.number(args[3]))}
	args = append(args[4:], "", "")
	yes := args[1] == "yes"
	switch {
	case args[0] != "-" && args[1] == "error":
		a.Approval, a.Answer = uistream.Approval{ID: args[0]}, &uistream.Answer{Error: args[2]}
	case args[0] != "-":
		a.Approval = uistream.Approval{ID: args[0], Reason: args[2]}
		if args[1] != "" {
			a.Approved = &yes
		}
	case args[1] == "error":
		a.Answer = &uistream.Answer{Error: args[2]}
	case args[1] != "":
		a.Answer = &uistream.Answer{Result: args[1], Success: true}
	}
	return a
}

// unlessSilent delivers the parts, unless they are not sent.
func (p *player) unlessSilent(parts []uistream.Part) []string {
	if p.silent {
		return nil
	}
	return p.deliver(parts)
}

func (p *player) deliver(parts []uistream.Part) []string {
	var lines []string
	for _, part := range parts {
		text, err := part.Append(nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.client.take(text); err != nil {
			p.t.Errorf("the client refuses %s: %v", text, err)
		}
		lines = append(lines, string(text))
	}
	return lines
}

// usage parses the arguments of run_completed behind the reason: input, output, total, reasoning
// and cached tokens.
func (p *player) usage(args []string) *eventv1.Usage {
	if len(args) < 6 {
		return nil
	}
	return &eventv1.Usage{
		PromptTokens: p.number(args[1]), CompletionTokens: p.number(args[2]), TotalTokens: p.number(args[3]),
		ReasoningTokens: p.number(args[4]), CachedTokens: p.number(args[5]),
	}
}

func (p *player) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) chunk(event string, args []string) *eventv1.Chunk {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	if event == "step_started" {
		p.step = int32(p.number(arg(0)))
	}
	c := &eventv1.Chunk{AgentId: "run-1", AgentType: "demo", Step: p.step}
	switch event {
	case "run_started":
		c.Event = &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{Turn: 1, MessageId: "msg-run-1"}}
	case "run_completed":
		c.Event = &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{FinishReason: arg(0), Usage: p.usage(args)}}
	case "run_resumed":
		c.Event = &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{PreviousRunId: "run-0", MessageId: "msg-run-1"}}
	case "run_interrupted":
		c.Event = &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: arg(0)}}
	case "tool_approval_request":
		c.Event = &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{ToolCallId: arg(0), ToolName: arg(1), ApprovalId: arg(2), Input: arg(3)}}
	case "tool_approval_response":
		c.Event = &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{ToolCallId: arg(0), Decision: arg(1), ApprovalId: arg(2), Reason: arg(3)}}
	case "state_patch":
		c.Event = &eventv1.Chunk_StatePatch{StatePatch: &eventv1.StatePatch{Patches: arg(0)}}
	case "run_suspended":
		c.Event = &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: arg(0)}}
	case "step_started":
		c.Event = &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}
	case "step_committed":
		c.Event = &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}
	case "step_discarded":
		c.Event = &eventv1.Chunk_StepDiscarded{StepDiscarded: &eventv1.StepDiscarded{}}
	case "text_delta":
		c.Event = &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: arg(0)}}
	case "thinking":
		c.Event = &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: arg(0), IsComplete: arg(1) == "complete"}}
	case "tool_arg_stream_start":
		c.Event = &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: arg(0), ToolName: arg(1), Dynamic: arg(2) == "dynamic"}}
	case "tool_arg_stream_delta":
		c.Event = &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: arg(0), Delta: arg(1)}}
	case "tool_start":
		c.Event = &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: arg(0), ToolName: arg(1), Arguments: arg(2), Dynamic: arg(3) == "dynamic"}}
	case "tool_start_client":
		c.Event = &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: arg(0), ToolName: arg(1), Arguments: arg(2), AwaitsClient: true, Dynamic: arg(3) == "dynamic"}}
	case "tool_end":
		c.Event = &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: arg(0), ToolName: arg(1), Success: true, Result: arg(2)}}
	case "tool_end_failed":
		c.Event = &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: arg(0), ToolName: arg(1), Error: arg(2)}}
	case "custom":
		c.Event = &eventv1.Chunk_Custom{Custom: &eventv1.Custom{EventName: arg(0), Data: arg(1)}}
	case "output":
		c.Event = &eventv1.Chunk_Output{Output: &eventv1.Output{Output: arg(0)}}
	case "error":
		c.Event = &eventv1.Chunk_Error{Error: &eventv1.Error{Error: arg(0), Code: arg(1), Recoverable: arg(2) == "recoverable"}}
	case "subagent_start":
		c.Event = &eventv1.Chunk_SubagentStart{SubagentStart: &eventv1.SubagentStart{ToolCallId: arg(0), SubSessionId: arg(1), SubAgentType: arg(2)}}
	case "subagent_end":
		c.Event = &eventv1.Chunk_SubagentEnd{SubagentEnd: &eventv1.SubagentEnd{ToolCallId: arg(0), SubSessionId: arg(1), SubAgentType: arg(2), Result: arg(3), Success: arg(4) == "success"}}
	case "stream_resync":
		c.Event = &eventv1.Chunk_StreamResync{StreamResync: &eventv1.StreamResync{Reason: arg(0), Sequence: p.number(arg(1))}}
	case "checkpoint":
		c.Event = &eventv1.Chunk_Checkpoint{Checkpoint: &eventv1.CheckpointCreated{CheckpointId: "cp"}}
	default:
		p.t.Fatalf("no such event: %s", event)
	}
	return c
}

// wordsOf splits a line. Go's quotes group words.
func wordsOf(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] != '"' && line[0] != '`' {
			word, rest, _ := strings.Cut(line, " ")
			words, line = append(words, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatal(err)
		}
		words, line = append(words, word), line[len(quoted):]
	}
	return words
}
