package crashmatrix_test

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// script is a conversation: an agent of faultexec, the actions of its users, and the expected end.
type script struct {
	name  string
	agent string
	// drive performs the users' actions; nil for none. It does not depend on the executor's death.
	drive func(*talk)
	// timeout bounds the run; 0 for no bound.
	timeout time.Duration
	// pauses means that the session suspends in between, which ends its stream.
	pauses bool
	end    statev1.SessionStatus
	// stops means that a stop interrupts calls, so their outcome may be open.
	stops bool
	// voided are the points at which a death voids the text of a reply that a stop truncates anyway.
	voided []string
}

// deadline allows for the text before it on a busy machine.
const deadline = 10 * time.Second

var scripts = []script{
	{name: "text", agent: "text", end: completed},
	{name: "safe tool", agent: "safe", end: completed},
	{name: "never tool", agent: "never", end: completed},
	{name: "rows of context", agent: "briefed", end: completed},
	{name: "parallel calls and state", agent: "parallel", end: completed},
	{name: "output by schema", agent: "finish", end: completed},
	{name: "answer at the limit", agent: "cut", end: completed},
	{name: "failure of the model", agent: "failing", end: failed},
	{name: "failure without a word", agent: "mute", end: failed},
	{name: "interrupt", agent: "stopped", end: interrupted, voided: []string{"stop_seen", "stop_kept", "commit_begins"}, drive: func(p *talk) {
		p.awaitText("one two three four")
		p.stop(statev1.StopKind_STOP_KIND_INTERRUPT)
	}},
	{name: "abort", agent: "held", end: failed, stops: true, drive: func(p *talk) {
		p.awaitHeld()
		p.stop(statev1.StopKind_STOP_KIND_ABORT)
	}},
	{name: "interrupt of calls", agent: "held", end: interrupted, stops: true, drive: func(p *talk) {
		p.awaitHeld()
		p.stop(statev1.StopKind_STOP_KIND_INTERRUPT)
	}},
	{name: "deadline", agent: "stopped", end: failed, timeout: deadline},
	{name: "client tool", agent: "client", end: completed, pauses: true, drive: func(p *talk) {
		got := p.awaitStatus(statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL)
		for _, c := range got.GetCalls() {
			p.answer(c, &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `{"much": 42}`}})
		}
	}},
	{name: "approvals", agent: "approval", end: completed, pauses: true, drive: func(p *talk) {
		got := p.awaitStatus(statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL)
		for _, c := range got.GetCalls() {
			approved := c.GetToolName() == "pay"
			p.answer(c, &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{
				ApprovalId: c.GetApprovalId(), Approved: approved, Reason: "as I say",
			}}})
		}
	}},
	{name: "look-ups", agent: "looking", end: completed},
	{name: "look-up that writes", agent: "recalling", end: completed},
	{name: "look-up beside effects", agent: "mixed", end: completed},
	{name: "look-up beside a client tool", agent: "looking_client", end: completed, pauses: true, drive: func(p *talk) {
		got := p.awaitStatus(statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL)
		for _, c := range got.GetCalls() {
			p.answer(c, &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `{"much": 42}`}})
		}
	}},
	{name: "interrupt of look-ups", agent: "looking_held", end: interrupted, stops: true, drive: func(p *talk) {
		p.ledger.Await(p, p.session+" held")
		p.awaitEnd("look_up")
		p.stop(statev1.StopKind_STOP_KIND_INTERRUPT)
	}},
	{name: "shutdown", agent: "draining", end: completed, drive: func(p *talk) {
		p.awaitText("one two three four")
		p.victim.Terminate()
	}},
}

const (
	completed   = statev1.SessionStatus_SESSION_STATUS_COMPLETED
	failed      = statev1.SessionStatus_SESSION_STATUS_FAILED
	interrupted = statev1.SessionStatus_SESSION_STATUS_INTERRUPTED
)

// awaitText waits until readers have received the text.
func (p *talk) awaitText(text string) {
	p.Helper()
	s := p.Native(p, p.session, 0)
	s.Until("the text "+text, func(n *harness.NativeStream) bool { return strings.HasPrefix(n.Text(), text) })
	s.Close()
}

// awaitHeld waits until, among the calls of the agent "held", the short one has ended with a streamed result and
// the long one is running. An earlier stop might find the short call open if its executor died before the
// record.
func (p *talk) awaitHeld() {
	p.Helper()
	p.awaitEnd("remember")
	p.ledger.Await(p, p.session+" safe")
}

// awaitEnd waits until readers have received the end of a call of the tool.
func (p *talk) awaitEnd(tool string) {
	p.Helper()
	s := p.Native(p, p.session, 0)
	s.Until("the end of a call of "+tool, func(n *harness.NativeStream) bool {
		return slices.ContainsFunc(n.Chunks, func(c harness.NativeChunk) bool { return c.Type == "tool_end" && c.ToolName == tool })
	})
	s.Close()
}

func (p *talk) stop(kind statev1.StopKind) {
	p.Helper()
	_, err := statev1.NewRunServiceClient(p.conn).RequestStop(p.ctx, &statev1.RequestStopRequest{
		Tenant: tenant, SessionId: p.session, Kind: kind, Reason: "enough",
	})
	if err != nil {
		p.Fatalf("stop: %v", err)
	}
}

func (p *talk) answer(c *statev1.Call, a *statev1.CallAnswer) {
	p.Helper()
	got, err := statev1.NewCallServiceClient(p.conn).SubmitCall(p.ctx, &statev1.SubmitCallRequest{
		Tenant: tenant, SessionId: p.session, ToolCallId: c.GetToolCallId(), Answer: a,
	})
	if err != nil || got.GetOutcome() != statev1.SubmitCallResponse_OUTCOME_ACCEPTED {
		p.Fatalf("answer %s: %v, %v", c.GetToolName(), got, err)
	}
}

// startWithin starts the run with a deadline.
func (p *talk) startWithin(limit time.Duration) {
	p.Helper()
	_, err := statev1.NewRunServiceClient(p.conn).StartRun(p.ctx, &statev1.StartRunRequest{
		Tenant: tenant, SessionId: p.session, AgentType: p.agent(), TimeoutMs: limit.Milliseconds(),
		Messages: []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: p.session}}}}}},
	})
	if err != nil {
		p.Fatalf("start: %v", err)
	}
}
