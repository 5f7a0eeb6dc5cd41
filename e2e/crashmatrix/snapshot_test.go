package crashmatrix_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/e2e/harness"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// snapshot describes a conversation from all sides without ids. Equal conversations have equal snapshots.
type snapshot struct {
	Messages string // from the state service
	Shown    string // from GET /messages
	Session  string // status, steps, output, custom state, runs, usage
	Stream   string // for a reader that comes late
	Ends     string // its outputs and ends, word for word
}

func (s snapshot) String() string {
	return "messages:\n" + s.Messages + "shown:\n" + s.Shown + "session:\n" + s.Session + "stream:\n" + s.Stream + "ends:\n" + s.Ends
}

// each applies change to every text.
func (s snapshot) each(change func(string) string) snapshot {
	return snapshot{change(s.Messages), change(s.Shown), change(s.Session), change(s.Stream), change(s.Ends)}
}

// await waits for the end and takes the snapshot.
func (p *talk) await() snapshot {
	p.Helper()
	got := p.awaitStatus(p.script.end)
	late := p.Native(p, p.session, 0)
	late.ReadAll()
	messages := p.messages()
	p.checkLedger(messages)
	return snapshot{
		Messages: p.describeMessages(messages),
		Shown:    p.plain(harness.Transcript(p.World().Messages(p, p.session))),
		Session:  p.about(got),
		Stream:   p.describeStream(late.Chunks),
		Ends:     p.ends(),
	}
}

// ends describes the outputs and ends of runs in the stream, and the stream's own end.
func (p *talk) ends() string {
	p.Helper()
	events, err := p.Listen(p.ctx, p.session, harness.SSE, 0)
	if err != nil {
		p.Fatalf("listen once more: %v", err)
	}
	defer events.Close()
	var b strings.Builder
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return p.plain(b.String())
		}
		if err != nil {
			p.Fatalf("listen once more: %v", err)
		}
		var frame struct {
			Chunk struct {
				Type         string          `json:"type"`
				Output       json.RawMessage `json:"output"`
				FinishReason string          `json:"finishReason"`
				Usage        json.RawMessage `json:"usage"`
			} `json:"chunk"`
			Status string          `json:"status"`
			Output json.RawMessage `json:"output"`
			Usage  json.RawMessage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(e.Data), &frame); err != nil {
			p.Fatalf("the frame %v: %v", e, err)
		}
		switch c := frame.Chunk; {
		case c.Type == "output" || c.Type == "run_completed":
			fmt.Fprintf(&b, "%s %s %s %s\n", c.Type, c.Output, c.FinishReason, c.Usage)
		case c.Type == "" && e.Name != "caught-up":
			fmt.Fprintf(&b, "%s %s %s %s\n", e.Name, frame.Status, frame.Output, frame.Usage)
		}
	}
}

// World returns the world instead of the method of the embedded test.
func (p *talk) World() *world { return p.world }

// plain removes the session's name, call ids, and the wording of unknown outcomes.
func (p *talk) plain(text string) string {
	text = calls.ReplaceAllString(strings.ReplaceAll(text, p.session, "SESSION"), "call")
	return shownUnknown.ReplaceAllString(text, "unknown")
}

var shownUnknown = regexp.MustCompile(`(?m)output-error .*not known.*$`)

// calls matches the call ids of the scripted model.
var calls = regexp.MustCompile(`call_[a-zA-Z0-9_:-]+`)

func (p *talk) messages() []*eventv1.Message {
	p.Helper()
	var all []*eventv1.Message
	for {
		page, err := p.sessions().ListMessages(p.ctx, &statev1.ListMessagesRequest{Tenant: tenant, SessionId: p.session, Offset: int64(len(all))})
		if err != nil {
			p.Fatalf("list the messages: %v", err)
		}
		for _, m := range page.GetMessages() {
			all = append(all, m.GetMessage())
		}
		if !page.GetHasMore() {
			return all
		}
	}
}

// describeMessages describes a conversation, one part per line.
func (p *talk) describeMessages(messages []*eventv1.Message) string {
	var b strings.Builder
	arguments := map[string]string{}
	for _, m := range messages {
		about := ""
		if m.GetHidden() {
			about = " hidden"
		}
		for _, key := range slices.Sorted(maps.Keys(m.GetMetadata())) {
			about += fmt.Sprintf(" %s=%s", key, m.GetMetadata()[key])
		}
		fmt.Fprintf(&b, "%s step %d%s:\n", strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")), m.GetStep(), about)
		for _, part := range m.GetParts() {
			switch is := part.GetPart().(type) {
			case *eventv1.Part_Text:
				fmt.Fprintf(&b, "  text %q\n", is.Text.GetText())
			case *eventv1.Part_ToolCall:
				arguments[is.ToolCall.GetToolCallId()] = compact(is.ToolCall.GetArguments())
				fmt.Fprintf(&b, "  call %s %s\n", is.ToolCall.GetToolName(), compact(is.ToolCall.GetArguments()))
			case *eventv1.Part_ToolResult:
				r := is.ToolResult
				fmt.Fprintf(&b, "  result %s %s -> %s\n", r.GetToolName(), arguments[r.GetToolCallId()], outcome(r.GetResult(), r.GetError()))
			default:
				fmt.Fprintf(&b, "  %v\n", part)
			}
		}
	}
	return p.plain(b.String())
}

// outcome describes the end of a call. The wording of an unknown outcome is ignored.
func outcome(result, failure string) string {
	switch {
	case unknown(failure):
		return "unknown"
	case failure != "":
		return "failed: " + failure
	default:
		return "ok " + compact(result)
	}
}

// unknown reports whether a failed result says that the effect is unknown.
func unknown(failure string) bool { return strings.Contains(failure, "not known") }

func (p *talk) about(got *statev1.GetSessionResponse) string {
	p.Helper()
	s := got.GetSession()
	var b strings.Builder
	fmt.Fprintf(&b, "%v turn %d steps %d output %s state %s", s.GetStatus(), s.GetTurn(), s.GetStepCount(), compact(s.GetOutput()), compact(s.GetCustomState()))
	fmt.Fprintf(&b, " failure %s interruption %s open calls %d\n", s.GetFailure().GetCode(), s.GetInterruption().GetReason(), len(got.GetCalls()))
	runs, err := statev1.NewRunServiceClient(p.conn).ListRuns(p.ctx, &statev1.ListRunsRequest{Tenant: tenant, SessionId: p.session})
	if err != nil {
		p.Fatalf("list the runs: %v", err)
	}
	for _, r := range runs.GetRuns() {
		fmt.Fprintf(&b, "run %d %v %v steps %d failure %s %s finished %s\n", r.GetTurn(), r.GetEntry(), r.GetStatus(), r.GetStepCount(),
			r.GetFailure().GetCode(), r.GetCompletionReason(), r.GetFinishReason())
	}
	used, err := statev1.NewUsageServiceClient(p.conn).GetUsageRollup(p.ctx, &statev1.GetUsageRollupRequest{Tenant: tenant, SessionId: p.session})
	if err != nil {
		p.Fatalf("get the usage: %v", err)
	}
	t := used.GetRollup().GetTokens()
	fmt.Fprintf(&b, "tokens %d+%d=%d reasoning %d cached %d\n", t.GetPromptTokens(), t.GetCompletionTokens(), t.GetTotalTokens(), t.GetReasoningTokens(), t.GetCachedTokens())
	return p.plain(b.String())
}

// describeStream describes the content of a stream's reader, regardless of how the text was divided. Parallel calls end in
// any order, so their lines are sorted.
func (p *talk) describeStream(chunks []harness.NativeChunk) string {
	var lines, sorted []string
	arguments := map[string]string{}
	text := ""
	flush := func() {
		if text != "" {
			lines = append(lines, fmt.Sprintf("text %q", text))
		}
		slices.Sort(sorted)
		lines, sorted, text = append(lines, sorted...), nil, ""
	}
	for _, c := range chunks {
		switch c.Type {
		case "text_delta":
			if len(sorted) > 0 {
				flush()
			}
			text += c.Delta
		case "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end":
		case "tool_start":
			arguments[c.ToolCallID] = compact(string(c.Arguments))
			sorted = append(sorted, fmt.Sprintf("tool_start %s %s", c.ToolName, compact(string(c.Arguments))))
		case "tool_end":
			sorted = append(sorted, fmt.Sprintf("tool_end %s %s -> %s", c.ToolName, arguments[c.ToolCallID], outcome(string(c.Result), c.Error)))
		case "tool_approval_request", "tool_approval_response", "state_patch":
			sorted = append(sorted, fmt.Sprintf("%s %s %s%s", c.Type, c.ToolName, c.Decision, compact(string(c.Patches))))
		default:
			flush()
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Type, c.Code, c.Reason)))
		}
	}
	flush()
	return p.plain(strings.Join(lines, "\n") + "\n")
}

// checkLedger compares each call of the conversation with the ledger.
func (p *talk) checkLedger(messages []*eventv1.Message) {
	p.Helper()
	for _, c := range recorded(messages) {
		if problem := c.problem(p.ledger.Entry(c.label), p.script.stops); problem != "" {
			p.Errorf("%s %q: %s", c.tool, c.label, problem)
		}
	}
}

func compact(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}
