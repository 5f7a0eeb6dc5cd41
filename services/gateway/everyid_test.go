package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// A turn is one run of a drawn conversation.
type drawnTurn struct {
	// Answers: the run continues the message of the suspended run before it. Otherwise a new message abandons the calls
	// of that run.
	Answers bool
	// LostDrains is how often an executor is lost in the step that takes the answers.
	LostDrains int
	Silent     bool // the run shows nothing before it ends without a step
	Steps      []drawnStep
	End        string
}

type drawnStep struct {
	Lost  []lostAttempt
	Texts int
	Call  bool
	// Reads: the gateway reads the stored steps again in the attempt that stands.
	Reads bool
}

type lostAttempt struct {
	Texts int
	// Retried: the executor repeats its model call. Otherwise another one repeats the step.
	Retried bool
	Reads   bool // the gateway reads the stored steps again before the next attempt has a chunk
}

const (
	endCompleted   = "completed"
	endInterrupted = "interrupted"
	endStopped     = "stopped outside a step"
	endBetween     = "stopped between attempts"
	endFailed      = "failed outside a step"
	endAsks        = "suspended on a client's call"
	endApproves    = "suspended on an approval"
)

func drawTurns(t *rapid.T) []drawnTurn {
	var turns []drawnTurn
	suspended := false
	for i := range rapid.IntRange(1, 4).Draw(t, "turns") {
		draw := func(name string, most int) int {
			return rapid.IntRange(0, most).Draw(t, fmt.Sprint("turn ", i, ": ", name))
		}
		turn := drawnTurn{Answers: suspended && draw("answers", 1) == 0, Silent: draw("silent", 1) == 0}
		turn.End = rapid.SampledFrom([]string{endCompleted, endInterrupted, endStopped, endBetween, endFailed, endAsks, endApproves}).Draw(t, "end")
		if suspended {
			turn.LostDrains = draw("lost drains", 1)
		}
		outside := turn.End == endStopped || turn.End == endFailed || turn.End == endBetween
		for s := range 1 + draw("more steps", 1) {
			if s == 0 && outside && draw("no step", 1) == 0 {
				break
			}
			step := drawnStep{Texts: draw("texts", 2), Call: draw("call", 2) == 0, Reads: draw("reads", 3) == 0}
			for range draw("lost attempts", 2) {
				step.Lost = append(step.Lost, lostAttempt{Texts: draw("lost texts", 2), Retried: draw("retried", 1) == 0, Reads: draw("lost reads", 2) == 0})
			}
			turn.Steps = append(turn.Steps, step)
		}
		suspended = turn.End == endAsks || turn.End == endApproves
		turns = append(turns, turn)
	}
	return turns
}

// A recording is the stream of a client that is never cut.
type recording struct {
	mu     sync.Mutex
	events []event
	ended  chan error // one value, when the body ends
}

func record(t *testing.T, r *reply) *recording {
	t.Helper()
	stream, out := streamOf(t, r), &recording{ended: make(chan error, 1)}
	go func() {
		for {
			e, err := stream.next()
			if err != nil {
				out.ended <- err
				return
			}
			out.mu.Lock()
			out.events = append(out.events, e)
			out.mu.Unlock()
		}
	}()
	return out
}

func (r *recording) soFar() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// conversationPlay plays a drawn conversation and checks its streams.
type conversationPlay struct {
	t        *testing.T
	w        *World
	client   *http.Client
	problems []string

	last   *Run
	open   string // the open call of the suspended run; "" for none
	shown  []event
	live   *recording // of the run
	before []event    // what the client has of the message from the streams before
	late   []lateReader
}

// lateReader resumes while the run is live.
type lateReader struct {
	has  []event
	rest *recording
}

func (p *conversationPlay) get(path string, headers ...string) *reply {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = response.Body.Close() })
	return &reply{response}
}

func (p *conversationPlay) play(i int, turn drawnTurn) {
	p.t.Helper()
	switch {
	case turn.Answers:
		p.before = p.shown
		r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://localhost/chat/s1/submit-tool-result", strings.NewReader(p.answerBody()))
		if err != nil {
			p.t.Fatal(err)
		}
		response, err := p.client.Do(r)
		if err != nil || response.StatusCode != http.StatusOK {
			p.t.Fatalf("got %v, %v", response, err)
		}
		_ = response.Body.Close()
		p.live = record(p.t, p.get("/chat/s1/stream", "Last-Event-ID", p.shown[len(p.shown)-1].id))
	default:
		p.before = nil
		p.live = record(p.t, post(p.t, p.client, chatBody("s1", fmt.Sprint("turn", i))))
	}
	run := p.w.AwaitRun(p.t, "default", "s1", p.last)
	p.last, p.late = run, nil
	p.begin(run, turn)
	for n, step := range turn.Steps {
		p.step(run, step, fmt.Sprint(i, "-", n))
		if n < len(turn.Steps)-1 || turn.End == endStopped {
			run.Show(run.Step(), StepCommitted())
		}
		p.look(false)
	}
	p.end(run, turn.End, i)
	p.open = ""
	if turn.End == endAsks || turn.End == endApproves {
		p.open = openCallOf(turn.End, i)
	}
	if err := <-p.live.ended; err == nil || err.Error() != "EOF" {
		p.problem("the stream of turn %d was cut: %v, after %s", i, err, dataLines(p.live.soFar()))
	}
	p.shown = append(slices.Clone(p.before), withoutDone(p.live.soFar())...)
	p.check(fmt.Sprint("turn ", i))
}

// begin shows the begin of the run, and what it does with the calls of the run before it.
func (p *conversationPlay) begin(run *Run, turn drawnTurn) {
	begin := Started
	if turn.Answers {
		begin = Resumed
	}
	if p.open == "" {
		if !turn.Silent || len(turn.Steps) > 0 {
			run.Show(run.Step()-1, begin())
		}
		return
	}
	for range turn.LostDrains {
		run.Show(run.Step(), append([]*eventv1.Chunk{begin()}, p.drain(turn)...)...)
		p.look(false)
		run.Rewind(0)
	}
	run.Show(run.Step(), append([]*eventv1.Chunk{begin()}, p.drain(turn)...)...)
	run.Show(run.Step(), StepCommitted())
	p.look(false)
}

// drain ends the open call.
func (p *conversationPlay) drain(turn drawnTurn) []*eventv1.Chunk {
	switch {
	case !turn.Answers:
		return []*eventv1.Chunk{{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: p.open, ToolName: "add", Error: "client_tool_abandoned"}}}}
	case strings.HasPrefix(p.open, "y"):
		return []*eventv1.Chunk{ApprovalResponse(p.open, "approve"), Result(p.open, `"done"`)}
	default:
		return []*eventv1.Chunk{Result(p.open, `"done"`)}
	}
}

// openCallOf returns the id of the call that ends a turn.
func openCallOf(end string, turn int) string {
	if end == endApproves {
		return fmt.Sprint("y", turn)
	}
	return fmt.Sprint("c", turn)
}

// answerBody answers the open call.
func (p *conversationPlay) answerBody() string {
	if strings.HasPrefix(p.open, "y") {
		return fmt.Sprintf(`{"toolCallId":%q,"kind":"approval-response","approvalId":"a-%s","approved":true}`, p.open, p.open)
	}
	return fmt.Sprintf(`{"toolCallId":%q,"result":"done"}`, p.open)
}

// step shows a step, and does not commit it.
func (p *conversationPlay) step(run *Run, step drawnStep, name string) {
	number := run.Step()
	for n, lost := range step.Lost {
		run.Show(number, append([]*eventv1.Chunk{StepStarted()}, drawnTexts(fmt.Sprint("lost ", name, "-", n, " "), lost.Texts)...)...)
		p.look(false)
		run.Retry()
		p.look(lost.Reads)
	}
	run.Show(number, append([]*eventv1.Chunk{StepStarted()}, drawnTexts(name, 1+step.Texts)...)...)
	p.look(step.Reads)
	if step.Call {
		run.Show(number, Call("t"+name, `{"a":1}`))
		p.look(false)
		run.Show(number, Result("t"+name, `{"sum":2}`))
	}
}

// end ends the run.
func (p *conversationPlay) end(run *Run, how string, turn int) {
	id := openCallOf(how, turn)
	call := &statev1.Call{ToolCallId: id, ToolName: "add", Input: `{"a":1}`, Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL}
	switch how {
	case endCompleted:
		run.Show(run.Step(), StepCommitted(), Completed())
		run.Complete()
	case endInterrupted:
		run.Interrupt()
	case endStopped, endBetween:
		run.InterruptOutside()
	case endFailed:
		run.Retry()
		run.Fail("It failed.", "x")
	case endAsks:
		run.Show(run.Step(), ClientCall(id, `{"a":1}`), StepCommitted(), Suspended())
		run.Suspend([]*statev1.Call{call})
	case endApproves:
		call.Kind, call.ApprovalId = statev1.CallKind_CALL_KIND_APPROVAL, "a-"+id
		run.Show(run.Step(), ApprovalRequest(id, `{"a":1}`), StepCommitted(), Suspended())
		run.Suspend([]*statev1.Call{call})
	}
}

func drawnTexts(name string, n int) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for i := range n {
		chunks = append(chunks, Text(fmt.Sprint(name, ".", i, " ")))
	}
	return chunks
}

// look waits until the client has everything, and resumes there too. reads: the gateway reads the stored steps before.
func (p *conversationPlay) look(reads bool) {
	if reads {
		p.w.State.SaveState("default", "s1", `{"n":`+fmt.Sprint(time.Now().UnixNano())+`}`)
		time.Sleep(10 * time.Second)
	}
	synctest.Wait()
	has := append(slices.Clone(p.before), p.live.soFar()...)
	if len(has) > 0 && has[len(has)-1].data != "[DONE]" {
		p.late = append(p.late, lateReader{has, record(p.t, p.get("/chat/s1/stream", "Last-Event-ID", has[len(has)-1].id))})
	}
	synctest.Wait()
}

func withoutDone(events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.data == "[DONE]" })
}

func (p *conversationPlay) problem(format string, values ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, values...))
}

// check checks the live stream, all streams that begin at one of its events, and the stored message.
func (p *conversationPlay) check(what string) {
	p.t.Helper()
	replayed, err := streamOf(p.t, p.get("/chat/s1/stream")).all()
	if err != nil {
		p.problem("%s: the replay was cut: %v, after %s; live was %s", what, err, dataLines(replayed), dataLines(p.shown))
		return
	}
	want := p.view(what+", replayed", nil, replayed)
	if got := p.view(what+", live", nil, p.shown); got != want {
		p.problem("%s\nlive     %s\nreplayed %s\nfrom %s", what, got, want, dataLines(p.shown))
	}
	for _, one := range p.late {
		err = <-one.rest.ended
		id := one.has[len(one.has)-1].id
		if got := p.view(fmt.Sprintf("%s, resumed live at %s", what, id), one.has, one.rest.soFar()); err.Error() != "EOF" || got != want {
			p.problem("%s, resumed live at %s: %v\ngot  %s\nwant %s\nfrom %s\nand %s", what, id, err, got, want, dataLines(one.has), dataLines(one.rest.soFar()))
		}
	}
	void := voidEvents(p.shown)
	end := p.shown[len(p.shown)-1].id
	for i, e := range p.shown {
		r := p.get("/chat/s1/stream", "Last-Event-ID", e.id)
		if r.StatusCode == http.StatusNoContent {
			if e.id != end {
				p.problem("%s: nothing follows %s, %s", what, e.id, e.data)
			}
			continue
		}
		rest, err := streamOf(p.t, r).all()
		if err != nil {
			p.problem("%s, resumed at %s, %s: cut, %v, after %s", what, e.id, e.data, err, dataLines(rest))
			continue
		}
		if begins := strings.Contains(dataLines(rest), `"type":"start"`); begins && !void[i] {
			p.problem("%s: the start is repeated behind %s, %s", what, e.id, e.data)
		}
		if got := p.view(fmt.Sprintf("%s, resumed at %s", what, e.id), p.shown[:i+1], rest); got != want {
			p.problem("%s, resumed at %s, %s\ngot  %s\nwant %s\nfrom %s\nand %s", what, e.id, e.data, got, want, dataLines(p.shown[:i+1]), dataLines(rest))
		}
	}
	p.checkStored(what, want)
}

// checkStored compares the client's message with the stored one. A run that has written nothing has none.
func (p *conversationPlay) checkStored(what, want string) {
	p.t.Helper()
	var got struct{ Messages []map[string]any }
	if err := json.Unmarshal([]byte(text(p.t, p.get("/messages?sessionId=s1"))), &got); err != nil || len(got.Messages) == 0 {
		p.t.Fatalf("got %v, %v", got, err)
	}
	newest := got.Messages[len(got.Messages)-1]
	stored := `[]`
	if newest["role"] == "assistant" {
		parts, _ := newest["parts"].([]any)
		c := &uiClient{}
		for _, part := range parts {
			c.parts = append(c.parts, part.(map[string]any))
		}
		stored = toJSON(content(c))
	}
	if parts, _, _ := strings.Cut(want, "\n"); parts != stored {
		p.problem("%s\nstored %s\nlive   %s", what, stored, parts)
	}
}

// voidEvents returns the indexes of the events of void attempts: those before another attempt at their step.
func voidEvents(events []event) map[int]bool {
	void, last := map[int]bool{}, map[int32]int32{} // the last attempt of each step
	for i, e := range slices.Backward(events) {
		if at := positionOfID(e.id); at.Attempt != position.Stored {
			void[i] = at.Attempt < last[at.Step]
			last[at.Step] = max(last[at.Step], at.Attempt)
		}
	}
	return void
}

// positionOfID returns the position of an event's id; of the start, the beginning.
func positionOfID(id string) position.Position {
	text, rest, _ := strings.Cut(id, ".")
	sequence, err := strconv.ParseInt(text, 10, 64)
	if err != nil || rest == "start" {
		return position.Position{}
	}
	return position.Of(sequence)
}

// content returns the parts without empty steps: a client keeps the start of a void step.
func content(c *uiClient) []uiPart {
	parts := []uiPart{}
	for i, part := range c.parts {
		next := any("step-start")
		if i < len(c.parts)-1 {
			next = c.parts[i+1]["type"]
		}
		if part["type"] != "step-start" || next != "step-start" && next != "data-error" {
			parts = append(parts, part)
		}
	}
	return parts
}

// view returns what a client has that receives the rest after what it has. The rest may begin the message again.
func (p *conversationPlay) view(what string, has, rest []event) string {
	p.t.Helper()
	if len(rest) > 0 && strings.Contains(rest[0].data, `"type":"start"`) {
		has = nil
	}
	all := withoutDone(append(slices.Clone(has), rest...))
	for i, e := range all {
		if strings.Contains(e.data, `"type":"start",`) != (i == 0) {
			p.problem("%s: a start is missing or repeated in %s", what, dataLines(all))
			break
		}
	}
	end := dataLines(all[max(0, len(all)-1):])
	if isEnd := strings.Contains(end, `"type":"finish"`) || strings.Contains(end, `"type":"error"`); !isEnd || len(rest) == 0 {
		p.problem("%s: there is no end in %s", what, dataLines(rest))
	}
	c := &uiClient{}
	c.apply(p.t, all)
	return toJSON(content(c)) + "\n" + toJSON(c.metadata) + "\n" + end
}

func TestEveryIDOfALiveStreamResumesToWhatIsStored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(draw *rapid.T) {
		turns := drawTurns(draw)
		var problems []string
		bubble(t, func(t *testing.T, w *World, client *http.Client) {
			p := &conversationPlay{t: t, w: w, client: client}
			for i, turn := range turns {
				if p.play(i, turn); len(p.problems) > 0 {
					break
				}
			}
			problems = p.problems
		}, func(c *gateway.Config) { c.MessageMetadata, c.AISDK = true, 7 })
		if len(problems) > 0 {
			draw.Fatalf("%s\nof %+v", problems[0], turns)
		}
	})
}
