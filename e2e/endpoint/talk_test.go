package endpoint_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// patience ends a test that would hang.
const patience = 2 * time.Minute

// world is a system with the agents of one language.
type world struct {
	*outside
	model  *model
	served *harness.Served
	client *client.Client
	others *client.Client // another caller of the same tenant
}

// talk is one session of the table.
type talk struct {
	testing.TB
	*world
	ctx     context.Context //nolint:containedctx // a talk is one test
	session string
	agent   string
}

// begin starts the session of a scenario with its first message.
func (w *world) begin(t testing.TB, s scenario) *talk {
	t.Helper()
	p := &talk{TB: t, world: w, ctx: t.Context(), agent: s.agent}
	p.session = cmp.Or(s.session, "s-"+strings.Map(wordOf, s.name))
	w.model.write(p.session, script{s.model, s.shortened})
	w.model.Write(p.session+">worker", s.worker)
	r := proto.CloneOf(s.start)
	if r == nil {
		r = &agentv1.StartRequest{}
	}
	p.send(r, s.message)
	return p
}

// wordOf replaces spaces, for ids.
func wordOf(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// send sends a message.
func (p *talk) send(r *agentv1.StartRequest, message string) {
	p.Helper()
	r.SessionId, r.AgentType = p.session, p.agent
	r.Message = strings.TrimSpace("[" + p.session + "] " + message)
	if _, err := p.client.Start(p.ctx, r); err != nil {
		p.Fatalf("start: %v", err)
	}
}

// wait waits until the newest run has ended or waits for a client.
func (p *talk) wait() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := p.client.Wait(ctx, p.session, "")
	if reason := fault.ReasonOf(err); err != nil && reason != "RUN_FAILED" && reason != "RUN_INTERRUPTED" {
		p.Fatalf("wait for the run: %v\n%s", err, p.transcript())
	}
}

// look returns the session.
func (p *talk) look() *agentv1.GetSessionResponse {
	p.Helper()
	got, err := p.client.Session(p.ctx, p.session)
	if err != nil {
		p.Fatalf("get the session: %v", err)
	}
	return got
}

// pending waits until a call of the tool waits for a client.
func (p *talk) pending(tool string) client.Call {
	p.Helper()
	var found client.Call
	harness.WaitFor(p, patience, "a call of "+tool+" that waits", func() (bool, string) {
		calls := p.look().GetPendingCalls()
		for _, c := range calls {
			if c.GetToolName() == tool {
				found = client.Call{Session: c.GetSessionId(), ID: c.GetToolCallId(), Approval: c.GetApprovalId()}
				return true, ""
			}
		}
		return false, fmt.Sprint(calls, p.look().GetRun())
	})
	return found
}

// submit answers a call. A run that has not suspended yet refuses the answer for a moment.
func (p *talk) submit(tool string, answer func(client.Call) error) {
	p.Helper()
	call := p.pending(tool)
	harness.WaitFor(p, patience, "the answer to "+tool, func() (bool, string) {
		err := answer(call)
		if err != nil && !errors.Is(err, fault.Unavailable) {
			p.Fatalf("answer %s: %v", tool, err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// deed is something that the client, or the outside world, does during a scenario.
type deed func(*talk)

// approve approves the waiting call of a tool.
func approve(tool string) deed {
	return func(p *talk) {
		p.submit(tool, func(c client.Call) error { _, err := p.client.Approve(p.ctx, c, ""); return err })
	}
}

// approveAsOther approves it as another caller. The one that started the run is refused.
func approveAsOther(tool string) deed {
	return func(p *talk) {
		call := p.pending(tool)
		if _, err := p.client.Approve(p.ctx, call, ""); fault.ReasonOf(err) != "APPROVER_REFUSED" {
			p.Errorf("the one that started the run approves: got %v, want APPROVER_REFUSED", err)
		}
		p.submit(tool, func(c client.Call) error { _, err := p.others.Approve(p.ctx, c, ""); return err })
	}
}

func deny(tool, reason string) deed {
	return func(p *talk) {
		p.submit(tool, func(c client.Call) error { _, err := p.client.Deny(p.ctx, c, reason); return err })
	}
}

// answer answers the waiting call of a client tool.
func answer(tool string, value any) deed {
	return func(p *talk) {
		p.submit(tool, func(c client.Call) error { _, err := p.client.SubmitResult(p.ctx, c, value); return err })
	}
}

func answerError(tool, text string) deed {
	return func(p *talk) {
		p.submit(tool, func(c client.Call) error { _, err := p.client.SubmitError(p.ctx, c, text); return err })
	}
}

// letExpire lets the call of the tool wait until its time is over, and the run end.
func letExpire(tool string) deed {
	return func(p *talk) {
		harness.WaitFor(p, patience, "the end of the wait for "+tool, func() (bool, string) {
			got := p.look()
			return got.GetSession().GetStatus() == "completed", fmt.Sprint(got.GetSession().GetStatus(), got.GetPendingCalls())
		})
	}
}

// open waits until n calls stand at the gate, and opens it.
func open(gate string, n int) deed {
	return func(p *talk) {
		p.AwaitGate(p, p.session+"/"+gate, n)
		p.Open(p.session + "/" + gate)
	}
}

// arrive waits until a call stands at the gate.
func arrive(gate string) deed {
	return func(p *talk) { p.AwaitGate(p, p.session+"/"+gate, 1) }
}

// interrupt stops the run softly, abort permanently.
func interrupt(p *talk) {
	if _, err := p.client.Interrupt(p.ctx, &agentv1.InterruptRequest{SessionId: p.session}); err != nil {
		p.Fatalf("interrupt: %v", err)
	}
}

func abort(p *talk) {
	if _, err := p.client.Abort(p.ctx, &agentv1.AbortRequest{SessionId: p.session}); err != nil {
		p.Fatalf("abort: %v", err)
	}
}

// awaitEffect waits for an effect whose label begins with the text.
func awaitEffect(label string) deed { return func(p *talk) { p.AwaitLabel(p, p.session, label) } }

// then sends another message after the end of the run.
func then(message string) deed {
	return func(p *talk) {
		p.wait()
		p.send(&agentv1.StartRequest{}, message)
	}
}

// transcript describes what clients, the model and the outside world have seen of the session, a line each:
//
//	says "text"                       the model's text
//	patch OP PATH JSON                of the custom state, before the call that has written it
//	act: JSON                         the result of a call
//	act fails: text                   of a failed call, as users read it
//	  model: text                     as the model reads it, if that differs
//	event NAME JSON                   maybe with: id ID; equal ones in a row are counted
//	metadata JSON                     of the message
//	asks for act, asks the client ask calls that wait
//	completed JSON (reason), failed CODE text, interrupted, suspended reason
//	state JSON                        at the end
//	usage KIND/NAME VALUE
//	effect LABEL                      in the ledger, in order
//
// Calls that end at once are in the order in which the model made them.
func (p *talk) transcript() string {
	p.Helper()
	names, order := p.callNames()
	var lines, ends []string
	text, patch := "", ""
	flush := func() {
		slices.Sort(ends)
		for _, end := range ends {
			_, end, _ = strings.Cut(end, "\x00")
			lines = append(lines, end)
		}
		if patch != "" {
			lines = append(lines, strings.TrimSuffix(patch, "\n"))
		}
		if text != "" {
			lines = append(lines, "says "+jsonOf(text))
		}
		ends, text, patch = nil, "", ""
	}
	for _, f := range p.frames() {
		c := f.GetChunk().GetChunk()
		switch {
		case c.GetTextDelta() != nil:
			if text == "" {
				flush()
			}
			text += c.GetTextDelta().GetDelta()
		case c.GetStepStarted() != nil:
			flush()
		case c.GetStatePatch() != nil:
			if text != "" {
				flush()
			}
			patch += patchLines(c.GetStatePatch().GetPatches())
		case c.GetToolEnd() != nil:
			if text != "" {
				flush()
			}
			name := names[c.GetToolEnd().GetToolCallId()]
			ends = append(ends, fmt.Sprintf("%05d\x00%s%s", order[c.GetToolEnd().GetToolCallId()], patch, p.endOf(name, c.GetToolEnd())))
			patch = ""
		default:
			if line := lineOf(names, f); line != "" {
				flush()
				lines = append(lines, line)
			}
		}
	}
	flush()
	lines = counted(lines)
	session := p.look()
	if state := compact(session.GetSession().GetCustomState()); state != "" && state != "{}" {
		lines = append(lines, "state "+shorten(state))
	}
	used, err := p.client.Usage(p.ctx, p.session, "")
	if err != nil {
		p.Fatalf("get the usage: %v", err)
	}
	for _, u := range used.GetCustom() {
		lines = append(lines, fmt.Sprintf("usage %s/%s %v", u.GetType(), u.GetName(), u.GetValue()))
	}
	for _, label := range p.Labels(p.session) {
		lines = append(lines, "effect "+label)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), p.session, sessionMark)
}

// patchLines describes an RFC 6902 patch, with a line for each operation.
func patchLines(text string) string {
	var operations []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if json.Unmarshal([]byte(text), &operations) != nil {
		return "patch " + text + "\n"
	}
	var b strings.Builder
	for _, o := range operations {
		b.WriteString(strings.TrimRight(fmt.Sprintf("patch %s %s %s", o.Op, o.Path, shorten(compact(string(o.Value)))), " ") + "\n")
	}
	return b.String()
}

// counted replaces many equal lines in a row by one.
func counted(lines []string) []string {
	var list []string
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		if n < 10 {
			list = append(list, lines[i:i+n]...)
		} else {
			list = append(list, fmt.Sprintf("%d events %s", n, strings.TrimPrefix(lines[i], "event ")))
		}
		i += n
	}
	return list
}

// frames returns what readers see of all runs of the session, in order.
func (p *talk) frames() []*agentv1.StreamResponse {
	p.Helper()
	var runs []*agentv1.Run
	for r, err := range p.client.Runs(p.ctx, p.session) {
		if err != nil {
			p.Fatalf("list the runs: %v", err)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *agentv1.Run) int { return int(a.GetStartSequence() - b.GetStartSequence()) })
	var frames []*agentv1.StreamResponse
	for _, r := range runs {
		if r.GetStatus() == "running" || r.GetStatus() == "waiting" {
			continue // only in the description of a failure
		}
		request := &agentv1.StreamRequest{SessionId: p.session, RunId: r.GetRunId(), FromSequence: r.GetStartSequence()}
		for f, err := range p.client.Follow(p.ctx, request) {
			if err != nil {
				p.Fatalf("follow the run %v: %v", r, err)
			}
			if c := f.GetChunk().GetChunk(); c == nil || c.GetAgentId() == r.GetRunId() { // not of sub-agents
				frames = append(frames, f)
			}
		}
	}
	return frames
}

// callNames names the calls of the session: by their tool, with a number from the second call of a tool on. order is that of the
// calls in the conversation.
func (p *talk) callNames() (names map[string]string, order map[string]int) {
	p.Helper()
	names, order = map[string]string{}, map[string]int{}
	counts := map[string]int{}
	for m, err := range p.client.Messages(p.ctx, p.session) {
		if err != nil {
			p.Fatalf("list the messages: %v", err)
		}
		for _, part := range m.GetParts() {
			c := part.GetToolCall()
			if c == nil {
				continue
			}
			counts[c.GetToolName()]++
			order[c.GetToolCallId()] = len(order)
			names[c.GetToolCallId()] = c.GetToolName()
			if n := counts[c.GetToolName()]; n > 1 {
				names[c.GetToolCallId()] += fmt.Sprintf(" %d", n)
			}
		}
	}
	return names, order
}

// endOf describes the end of a call.
func (p *talk) endOf(name string, e *eventv1.ToolEnd) string {
	if e.GetSuccess() {
		return name + ": " + shorten(compact(e.GetResult()))
	}
	line := name + " fails: " + shorten(e.GetError())
	if read := p.modelReads(e.GetToolCallId()); read != "" && read != e.GetError() {
		line += "\n  model: " + shorten(read)
	}
	return line
}

// modelReads returns what the model reads of the result of a call, or the text of its error; "" if the model was not called again.
func (p *talk) modelReads(callID string) string {
	asked := p.model.Asked(p.session)
	for _, q := range slices.Backward(asked) {
		for _, m := range q.Messages {
			if m["role"] != "tool" || m["tool_call_id"] != callID {
				continue
			}
			text, _ := m["content"].(string)
			var failed map[string]string
			if json.Unmarshal([]byte(text), &failed) == nil && len(failed) == 1 && failed["error"] != "" {
				return failed["error"]
			}
			return text
		}
	}
	return ""
}

// lineOf describes a frame; "" if the transcript does not have it.
func lineOf(names map[string]string, f *agentv1.StreamResponse) string {
	if end := f.GetEnd(); end != nil {
		switch {
		case end.GetStatus() == "paused": // the line before says why
			return ""
		case end.GetStatus() != "completed":
			return end.GetStatus()
		case end.GetCompletionReason() != "":
			return fmt.Sprintf("completed %s (%s)", compact(end.GetOutput()), end.GetCompletionReason())
		}
		return "completed " + compact(end.GetOutput())
	}
	if fail := f.GetFail(); fail != nil {
		return "failed " + fail.GetCode() + " " + fail.GetError()
	}
	switch e := f.GetChunk().GetChunk().GetEvent().(type) {
	case *eventv1.Chunk_Custom:
		line := "event " + e.Custom.GetEventName() + " " + shorten(compact(e.Custom.GetData()))
		if e.Custom.GetEventName() == "message-metadata" {
			line = "metadata " + compact(e.Custom.GetData())
		}
		if id := e.Custom.GetId(); id != "" {
			line += " id " + id
		}
		return line
	case *eventv1.Chunk_ToolApprovalRequest:
		return "asks for " + names[e.ToolApprovalRequest.GetToolCallId()]
	case *eventv1.Chunk_ToolApprovalResponse:
		return strings.TrimSpace(e.ToolApprovalResponse.GetDecision() + " " + names[e.ToolApprovalResponse.GetToolCallId()] +
			" " + e.ToolApprovalResponse.GetReason())
	case *eventv1.Chunk_ToolStart:
		if e.ToolStart.GetAwaitsClient() {
			return "asks the client " + names[e.ToolStart.GetToolCallId()] + " " + compact(e.ToolStart.GetArguments())
		}
	case *eventv1.Chunk_RunSuspended:
		return "suspended " + e.RunSuspended.GetReason()
	}
	return ""
}

// shown is how many bytes of a text the transcript shows.
const shown = 300

func shorten(text string) string {
	if len(text) <= shown {
		return text
	}
	return fmt.Sprintf("%s… %d bytes", strings.ToValidUTF8(text[:40], ""), len(text))
}

// compact returns a JSON text without spaces, with sorted members.
func compact(text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return text
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) != nil {
		return text
	}
	return strings.TrimSpace(b.String())
}

// checkSchema compares a tool as the model sees it: its description, the types of its properties, and the required ones.
func (p *talk) checkSchema(q request, tool, description, types string, required ...string) {
	p.Helper()
	i := slices.IndexFunc(q.Tools, func(t offered) bool { return t.Name == tool })
	if i < 0 {
		p.Errorf("the model does not see the tool %s", tool)
		return
	}
	var schema struct {
		Type       string
		Properties map[string]struct{ Type string }
		Required   []string
	}
	if err := json.Unmarshal(q.Tools[i].Parameters, &schema); err != nil {
		p.Fatalf("the schema of %s is %s: %v", tool, q.Tools[i].Parameters, err)
	}
	got := map[string]string{}
	for name, property := range schema.Properties {
		got[name] = property.Type
	}
	slices.Sort(schema.Required)
	fits := schema.Type == "object" && jsonOf(got) == compact(types) && slices.Equal(schema.Required, required)
	if q.Tools[i].Description != description || !fits {
		p.Errorf("%s is %q with the schema %s, want %q with %s and required %q",
			tool, q.Tools[i].Description, q.Tools[i].Parameters, description, types, required)
	}
}
