package human_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

const (
	// roundLimit bounds one round.
	roundLimit = 4 * time.Minute
	// answerWithin is the deadline of the tool "hurry".
	answerWithin = 2 * time.Second
	// jitter is the largest offset between two simultaneous events.
	jitter = 3 * time.Millisecond
	// agentType refuses a message while it is busy; patient queues it.
	agentType, patient = "clerk", "patient"
)

// agentsFile has the client tools "ask" and "hurry", and the tools "pay" and "record" with effects on the
// ledger. "pay" needs approval.
const agentsFile = `
models:
  openai: {baseURL: "MODEL/v1", apiKeyEnv: FAKE_KEY}
tools:
  - &ask
    name: ask
    description: Asks the user.
    client: true
    inputSchema: {type: object, properties: {question: {type: string}}, required: [question]}
  - {name: hurry, description: Asks the user, client: true, answerWithin: WITHIN, inputSchema: {type: object, properties: {question: {type: string}}}}
  - name: pay
    description: Pays.
    approval: always
    retry: safe
    inputSchema: {type: object, properties: {label: {type: string}}, required: [label]}
    http: {method: POST, url: LEDGER, body: input}
  - name: record
    description: Records.
    retry: safe
    inputSchema: {type: object, properties: {label: {type: string}}, required: [label]}
    http: {method: POST, url: LEDGER, body: input}
agents:
  - {name: clerk, description: Asks and pays., model: openai/fake, onBusy: reject, tools: [ask, hurry, pay, record]}
  - {name: patient, description: Lets others wait., model: openai/fake, onBusy: enqueue, tools: [ask, hurry, pay, record]}
`

// world is a system with two replicas of each service except stream, the model, and the ledger.
type world struct {
	*harness.System
	model  *model
	ledger *harness.Ledger
}

func newWorld(t *testing.T, stateEnv ...string) *world {
	t.Helper()
	w := &world{model: startModel(t), ledger: harness.StartLedger(t, nil)}
	w.System = harness.Start(t, harness.Options{
		Agents: strings.NewReplacer("MODEL", w.model.URL, "LEDGER", w.ledger.URL, "WITHIN", answerWithin.String(), "&ask", "").Replace(agentsFile),
		States: 2, Gateways: 2, Executors: 2, LogLevel: "warn",
		StateEnv: append([]string{"HOLDFAST_STATE_SWEEP_EVERY=100ms"}, stateEnv...),
		ExecutorEnv: []string{
			"FAKE_KEY=a-key", "HOLDFAST_EXECUTOR_TOOL_HOSTS=127.0.0.1", "HOLDFAST_EXECUTOR_TOOL_PRIVATE_HOSTS=127.0.0.1",
		},
	})
	return w
}

// round is one session with two simultaneous events.
type round struct {
	*testing.T
	*world
	ctx     context.Context //nolint:containedctx // a round is one test: it ends when everything has to be over
	number  int
	session string
	agent   string
	// said is the conversation from the client's view.
	said []harness.UIMessage
}

// rounds plays rounds concurrently and prints how often each returned outcome occurred. The counts are for
// checks.
func (w *world) rounds(t *testing.T, n int, play func(*round) string) (count map[string]int) {
	t.Helper()
	count = map[string]int{}
	var mu sync.Mutex
	name := strings.ReplaceAll(t.Name(), "/", " ")
	t.Run("round", func(t *testing.T) {
		for i := range n {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), roundLimit)
				defer cancel()
				r := &round{T: t, world: w, ctx: ctx, number: i, agent: agentType, session: fmt.Sprintf("%s/%d ✂", name, i)}
				happened := play(r)
				mu.Lock()
				defer mu.Unlock()
				count[happened]++
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%3d of %d rounds: %s", count[what], n, what)
	}
	return count
}

// both runs two functions at the same moment. In a third of the rounds each, one runs after the other. It
// returns when both have ended.
func (r *round) both(first, second func()) {
	switch r.number % 3 {
	case 0:
		first()
		second()
		return
	case 1:
		second()
		first()
		return
	}
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for _, do := range []func(){first, second} {
		wg.Go(func() {
			<-ready
			time.Sleep(rand.N(jitter))
			do()
		})
	}
	close(ready)
	wg.Wait()
}

// suspend sends the word and reads the answer to its end, where the session suspends.
func (r *round) suspend(word string) {
	r.Helper()
	r.said = []harness.UIMessage{harness.UserMessage("user-1", word+" "+r.session)}
	stream, err := r.At(r.number%2).Post(r.ctx, harness.ChatPost{Session: r.session, Agent: r.agent, Messages: r.said})
	if err == nil {
		err = whole(stream)
	}
	if err != nil {
		r.Fatalf("the first message: %v", err)
	}
	r.said = append(r.said, stream.Message)
}

// whole reads a stream to its proper end.
func whole(stream *harness.UIStream) error {
	defer stream.Close()
	err := stream.Rest()
	if err == nil {
		err = stream.Complete()
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, stream.Dump())
	}
	return nil
}

// result answers a client tool with a text.
func (r *round) result(tool, text string) harness.ToolAnswer {
	r.Helper()
	return harness.ToolAnswer{ToolCallID: r.open(tool).ToolCallID, Result: json.RawMessage(fmt.Sprintf("%q", text))}
}

// verdict answers an approval request.
func (r *round) verdict(tool string, approved bool, reason string) harness.ToolAnswer {
	r.Helper()
	p := r.open(tool)
	if p.Approval == nil {
		r.Fatalf("nobody was asked whether %s may run: %+v", tool, *p)
	}
	return harness.ToolAnswer{
		ToolCallID: p.ToolCallID, Kind: "approval-response", ApprovalID: p.Approval.ID, Approved: &approved, Reason: reason,
	}
}

// open returns the part of the open call.
func (r *round) open(tool string) *harness.UIPart {
	r.Helper()
	last := r.said[len(r.said)-1]
	p := last.Call(tool)
	if p == nil || p.State != "input-available" && p.State != "approval-requested" {
		r.Fatalf("no call of %s waits in\n%s", tool, last.Content())
	}
	return p
}

// response is the response to an answer.
type response struct {
	// status is accepted, already_completed, late_answer_after_timeout, the code of a refusal, or "streamed" for
	// a stream.
	status string
	got    harness.Submitted
	// message is the whole answer of a stream.
	message harness.UIMessage
}

// route is a route for answers.
type route struct {
	name   string
	answer func(r *round, a harness.ToolAnswer) response
}

// routes returns all routes through both gateways.
func routes() []route {
	var all []route
	for gateway := range 2 {
		all = append(all,
			route{fmt.Sprintf("route %d", gateway), func(r *round, a harness.ToolAnswer) response { return r.submit(gateway, a) }},
			route{fmt.Sprintf("chat %d", gateway), func(r *round, a harness.ToolAnswer) response { return r.send(gateway, a) }},
			route{fmt.Sprintf("connect %d", gateway), func(r *round, a harness.ToolAnswer) response { return r.call(gateway, a) }},
		)
	}
	return all
}

// routeNamed returns the route of this name.
func routeNamed(name string) route {
	all := routes()
	return all[slices.IndexFunc(all, func(d route) bool { return d.name == name })]
}

// submit answers through the submit route.
func (r *round) submit(gateway int, a harness.ToolAnswer) response {
	got, err := r.At(gateway).Submit(r.ctx, r.session, a)
	if err != nil && harness.RefusalCode(err) == "" {
		r.Errorf("submit: %v", err)
	}
	return response{status: cmp.Or(got.Status, harness.RefusalCode(err)), got: got}
}

// call answers over Connect.
func (r *round) call(gateway int, a harness.ToolAnswer) response {
	q := &agentv1.SubmitToolResultRequest{
		SessionId: r.session, ToolCallId: a.ToolCallID,
		Answer: &agentv1.SubmitToolResultRequest_Result{Result: string(a.Result)},
	}
	if a.Approved != nil {
		q.Answer = &agentv1.SubmitToolResultRequest_Approval{Approval: &agentv1.ApprovalResponse{
			ApprovalId: a.ApprovalID, Approved: *a.Approved, Reason: a.Reason,
		}}
	}
	got, err := r.At(gateway).AgentService(r).SubmitToolResult(r.ctx, q)
	err = harness.Fault(err)
	if err != nil && fault.ReasonOf(err) == "" {
		r.Errorf("submit over Connect: %v", err)
	}
	name := func(of fmt.Stringer, prefix string) string {
		return strings.ToLower(strings.TrimPrefix(of.String(), prefix))
	}
	if err != nil {
		return response{status: fault.ReasonOf(err)}
	}
	return response{status: name(got.GetStatus(), "STATUS_"), got: harness.Submitted{
		Status: name(got.GetStatus(), "STATUS_"), Continuation: name(got.GetContinuation(), "CONTINUATION_"), RunID: got.GetRunId(),
	}}
}

// send answers like a chat, with the whole conversation.
func (r *round) send(gateway int, answers ...harness.ToolAnswer) response {
	stream, err := r.At(gateway).Post(r.ctx, harness.ChatPost{Session: r.session, Agent: r.agent, Messages: r.answered(answers...)})
	if err == nil {
		err = whole(stream)
	}
	switch {
	case harness.RefusalCode(err) != "":
		return response{status: harness.RefusalCode(err)}
	case err != nil:
		r.Errorf("POST /chat with an answer: %v", err)
		return response{status: "failed"}
	}
	return response{status: "streamed", message: stream.Message}
}

// answered returns the client's conversation with the answers in its parts.
func (r *round) answered(answers ...harness.ToolAnswer) []harness.UIMessage {
	said := slices.Clone(r.said)
	last := said[len(said)-1].Clone()
	for i := range last.Parts {
		p := &last.Parts[i]
		for _, a := range answers {
			switch {
			case p.ToolCallID != a.ToolCallID:
			case a.Approved != nil:
				p.State, p.Approval = "approval-responded", &harness.UIApproval{ID: a.ApprovalID, Approved: a.Approved, Reason: a.Reason}
			case a.Error != "":
				p.State, p.ErrorText = "output-error", a.Error
			default:
				p.State, p.Output = "output-available", a.Result
			}
		}
	}
	said[len(said)-1] = last
	return said
}

// settled waits for the session's status and checks all views: both gateways return the same conversation, and
// so does the stream of its last answer.
func (r *round) settled(status string) []harness.UIMessage {
	r.Helper()
	r.WaitStatus(r, r.session, status)
	var stored []harness.UIMessage
	alike := func() (bool, string) {
		stored = r.Messages(r, r.session)
		mine, others := harness.Transcript(stored), harness.Transcript(r.At(1).Messages(r, r.session))
		return mine == others, fmt.Sprintf("the gateways have\n%s\nand\n%s", mine, others)
	}
	if status == "failed" { // open calls get their end with the run
		harness.WaitFor(r, roundLimit, "both gateways to tell the same", alike)
	} else if same, seen := alike(); !same {
		r.Error(seen)
	}
	for _, q := range r.model.requests(r.session) {
		if problem := q.problem(); problem != "" {
			r.Errorf("the model was asked with a broken conversation: %s\n%v", problem, q)
		}
	}
	if status == "failed" {
		return stored // its stream reports the failure
	}
	for gateway := range 2 {
		stream, err := r.At(gateway).Reconnect(r.ctx, r.session)
		if err != nil {
			r.Fatalf("attach at the end: %v", err)
		}
		if stream == nil {
			continue // read to its end already
		}
		if err := whole(stream); err != nil {
			r.Fatalf("attached at the end: %v", err)
		}
		r.same("the stream of the last answer", stream.Message, stored[len(stored)-1])
	}
	return stored
}

// same compares a received message with the stored one.
func (r *round) same(who string, got, stored harness.UIMessage) {
	r.Helper()
	if has, want := shown(got), shown(stored); has != want {
		r.Errorf("%s has\n%swant what is stored:\n%s", who, has, want)
	}
}

// shown returns the reader's view of a message, with the answers to approval requests.
func shown(m harness.UIMessage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s", m.ID, m.Content())
	for _, p := range m.Parts {
		if a := p.Approval; a != nil && a.Approved != nil {
			fmt.Fprintf(&b, "%s: approved %v %q\n", a.ID, *a.Approved, a.Reason)
		}
	}
	return b.String()
}

// last returns the model's newest request and expects n requests.
func (r *round) last(n int) request {
	r.Helper()
	all := r.model.requests(r.session)
	if len(all) != n {
		r.Fatalf("the model was asked %d times, want %d:\n%v", len(all), n, all)
	}
	return all[n-1]
}

// once expects exactly one post to the ledger after an approval.
func (r *round) once(label string) {
	r.Helper()
	if there := r.ledger.Entry(label + " " + r.session); there.Posts != 1 || len(there.Keys) != 1 {
		r.Errorf("the ledger has %+v of %q, want it once", there, label)
	}
}

// sendUnrelated sends the next message of the conversation, unrelated to the open question.
func (r *round) sendUnrelated(gateway int, onBusy string) (answer harness.UIMessage, code string) {
	said := append(slices.Clone(r.said), harness.UserMessage("user-2", "never "+r.session))
	stream, err := r.At(gateway).Post(r.ctx, harness.ChatPost{Session: r.session, Agent: r.agent, Messages: said, OnBusy: onBusy})
	if err == nil {
		err = whole(stream)
	}
	if code := harness.RefusalCode(err); code != "" {
		return answer, code
	}
	if err != nil {
		r.Errorf("the message meanwhile: %v", err)
		return answer, "failed"
	}
	return stream.Message, ""
}
