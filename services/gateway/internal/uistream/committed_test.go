package uistream_test

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// differs lists the scenarios whose stored message differs from the live one by design.
var differs = map[string]string{
	"refused_model_on_version_6": "As in lost_and_failed.",
	"lost_and_failed":            "No chunk of the protocol takes back the step-start of a step that is void, and nothing of that step is stored.",
	"subagent":                   "No step commits the second sub-agent, whose events come after the step.",
}

// TestScenariosAreStoredAsTheyAreStreamed commits the chunks of each scenario like an executor. It
// compares the stored message with the message of a client of the newest version.
func TestScenariosAreStoredAsTheyAreStreamed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	compared := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if unfinished(string(text)) {
			continue
		}
		compared++
		live, stored := playCommitted(t, string(text))
		if same := live == stored; same == (differs[name] != "") {
			t.Errorf("%s: it is the same: %v\nstored %s\nlive   %s", name, same, stored, live)
		}
	}
	if compared < 30 {
		t.Errorf("%d scenarios were compared", compared)
	}
}

// unfinished reports whether the scenario ends with a broken connection, has a run that never
// began, or has calls without chunks, which records lack too.
func unfinished(scenario string) bool {
	return strings.HasSuffix(scenario, "(break the connection)\n") || strings.Contains(scenario, "\ngiven_up") || strings.Contains(scenario, "\npending")
}

// playCommitted returns a client's message and the stored message.
func playCommitted(t *testing.T, scenario string) (live, stored string) {
	t.Helper()
	p := &player{t: t, client: newClient(uistream.DefaultMajor)}
	known := uistream.Run{ID: "run-1", MessageID: "msg-run-1", AgentType: "demo", CreatedAt: 1700000000000}
	var log []record
	stopped := ""
	for line := range strings.Lines(scenario) {
		words := wordsOf(t, line)
		if strings.HasPrefix(line, "\t") || len(words) == 0 || words[0] == "#" {
			continue
		}
		step := p.step
		switch words[0] {
		case "client":
			words[1] = "7"
		case "start":
			p.tr.SetMetadata(known.Metadata())
		}
		p.command(words)
		switch words[0] {
		case "rewound":
			log = append(log, record{sequence: int64(len(log)) + 1<<20, rewound: true, at: p.number(words[1])})
		case "end":
			known.Interrupted = words[1] == "interrupted"
		case "stopped":
			stopped = words[1]
		case "replay", "post": // the following chunks are complete
			log = nil
		case "client", "start", "fail", "describe", "now":
		default:
			p.step = step
			log = append(log, record{sequence: p.number(words[0]), chunk: p.chunk(words[1], words[2:])})
		}
	}
	c := &commits{run: &known, approvals: map[string]string{}, records: map[uistream.Step]*eventv1.StepRecord{}, verdicts: map[string]*eventv1.ApprovalVerdict{}}
	for _, r := range withoutVoid(log) {
		c.take(r)
	}
	c.commit()
	shown := uistream.Stored{Messages: c.messages, Runs: map[string]uistream.Run{"run-1": known}, Records: c.records, Last: "run-1"}.Conversation()
	uistream.EndUnanswered(shown, func(string, string) string { return stopped })
	return asText(t, []uistream.UIMessage{p.client.whole()}), asText(t, shown)
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// commits builds the stored messages and records from chunks.
type commits struct {
	run      *uistream.Run
	messages []*eventv1.Message
	records  map[uistream.Step]*eventv1.StepRecord

	chunks    []*eventv1.Chunk // of the step in flight
	reply     *eventv1.Message // nil: the step called no model
	results   []*eventv1.Part
	approvals map[string]string // approval ids, by call
	verdicts  map[string]*eventv1.ApprovalVerdict
}

func (c *commits) take(r record) {
	chunk := r.chunk
	chunk.Timestamp = r.sequence
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_StepCommitted:
		c.commit()
		return
	case *eventv1.Chunk_StepDiscarded:
		c.chunks, c.reply, c.results = nil, nil, nil
		return
	case *eventv1.Chunk_RunCompleted:
		c.run.Usage = e.RunCompleted.GetUsage()
	case *eventv1.Chunk_Error:
		if !e.Error.GetRecoverable() {
			c.run.Failure = e.Error
		}
	case *eventv1.Chunk_StepStarted:
		c.reply = &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}
	case *eventv1.Chunk_TextDelta:
		c.addText(e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		c.addThought(e.Thinking)
	case *eventv1.Chunk_ToolArgStreamStart:
		c.call(e.ToolArgStreamStart.GetToolCallId(), e.ToolArgStreamStart.GetToolName(), e.ToolArgStreamStart.GetDynamic())
	case *eventv1.Chunk_ToolArgStreamDelta:
		c.call(e.ToolArgStreamDelta.GetToolCallId(), "", false).Arguments += e.ToolArgStreamDelta.GetDelta()
	case *eventv1.Chunk_ToolStart:
		call := c.call(e.ToolStart.GetToolCallId(), e.ToolStart.GetToolName(), e.ToolStart.GetDynamic())
		call.Arguments = cmp.Or(e.ToolStart.GetArguments(), call.GetArguments()) // omitted if too large to repeat
	case *eventv1.Chunk_ToolApprovalRequest:
		c.approvals[e.ToolApprovalRequest.GetToolCallId()] = e.ToolApprovalRequest.GetApprovalId()
		call := c.call(e.ToolApprovalRequest.GetToolCallId(), e.ToolApprovalRequest.GetToolName(), false)
		call.Arguments = cmp.Or(e.ToolApprovalRequest.GetInput(), call.GetArguments())
	case *eventv1.Chunk_ToolApprovalResponse:
		response := e.ToolApprovalResponse
		c.verdicts[response.GetToolCallId()] = &eventv1.ApprovalVerdict{
			ApprovalId: cmp.Or(response.GetApprovalId(), c.approvals[response.GetToolCallId()]), Approved: response.GetDecision() == "approve", Reason: response.GetReason()}
	case *eventv1.Chunk_ToolEnd:
		c.call(e.ToolEnd.GetToolCallId(), e.ToolEnd.GetToolName(), false)
		c.results = append(c.results, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{
			ToolCallId: e.ToolEnd.GetToolCallId(), ToolName: e.ToolEnd.GetToolName(), Result: e.ToolEnd.GetResult(),
			Success: e.ToolEnd.GetSuccess(), Error: e.ToolEnd.GetError(), Approval: c.verdicts[e.ToolEnd.GetToolCallId()],
		}}})
	}
	c.chunks = append(c.chunks, chunk)
}

func (c *commits) last() *eventv1.Part {
	parts := c.reply.GetParts()
	if len(parts) == 0 {
		return nil
	}
	return parts[len(parts)-1]
}

func (c *commits) addText(delta string) {
	if c.last().GetText() == nil {
		c.reply.Parts = append(c.reply.Parts, &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{}}})
	}
	c.last().GetText().Text += delta
}

func (c *commits) addThought(e *eventv1.Thinking) {
	if c.last().GetReasoning() == nil {
		c.reply.Parts = append(c.reply.Parts, &eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{}}})
	}
	c.last().GetReasoning().Text += e.GetContent()
}

// call returns the call in the reply. For a call of an earlier step it returns an unused one.
func (c *commits) call(id, name string, dynamic bool) *eventv1.ToolCallPart {
	for _, p := range c.reply.GetParts() {
		if p.GetToolCall().GetToolCallId() == id {
			return p.GetToolCall()
		}
	}
	made := &eventv1.ToolCallPart{ToolCallId: id, ToolName: name, Dynamic: dynamic}
	earlier := slices.ContainsFunc(c.messages, func(m *eventv1.Message) bool {
		return slices.ContainsFunc(m.GetParts(), func(p *eventv1.Part) bool { return p.GetToolCall().GetToolCallId() == id })
	})
	if c.reply != nil && !earlier {
		c.reply.Parts = append(c.reply.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: made}})
	}
	return made
}

// commit stores the step.
func (c *commits) commit() {
	step := int32(len(c.records) + 1)
	tools := &eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Parts: c.results}
	for _, m := range []*eventv1.Message{c.reply, tools} {
		if m == nil || m.GetRole() == eventv1.Role_ROLE_TOOL && len(m.GetParts()) == 0 {
			continue
		}
		m.Id, m.RunId, m.Step = cmp.Or(m.GetId(), "stored"), "run-1", step
		c.messages = append(c.messages, m)
	}
	if c.reply != nil || len(c.results) > 0 {
		c.records[uistream.Step{RunID: "run-1", Number: step}] = recordOf(c.chunks)
	}
	c.chunks, c.reply, c.results = nil, nil, nil
}
