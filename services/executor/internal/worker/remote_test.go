package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
)

// otherHoldfast is a gateway of another Holdfast with one agent. play plays each run of a session.
type otherHoldfast struct {
	agentv1connect.UnimplementedAgentServiceHandler
	play func(s *farSession)

	mu       sync.Mutex
	sessions map[string]*farSession
	timeout  time.Duration // of the newest start
}

// farSession is a session of the other Holdfast.
type farSession struct {
	stopped chan struct{} // closed by a stop of the run

	mu      sync.Mutex
	changed chan struct{}
	runs    [][]*agentv1.StreamResponse // the frames of each run
	pending *agentv1.PendingCall
	answers []*agentv1.SubmitToolResultRequest
	aborted bool
	step    int32
}

// remoteAgent returns an agent whose work the other Holdfast does. It replaces the HTTP client of the system.
func (p *system) remoteAgent(name string, play func(s *farSession)) (catalog.Agent, *otherHoldfast) {
	far := &otherHoldfast{play: play, sessions: map[string]*farSession{}}
	_, handler := agentv1connect.NewAgentServiceHandler(far)
	p.http = &http.Client{Transport: inMemory{handler}}
	return catalog.Agent{Agent: agent.Agent{Name: name, Remote: &agent.Remote{URL: "http://other.example", Agent: "there"}}}, far
}

func (o *otherHoldfast) session(id string) (*farSession, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.sessions[id]; s != nil {
		return s, nil
	}
	return nil, rpc.ConnectError(fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", id))
}

// only returns the only session.
func (o *otherHoldfast) only(t testing.TB) *farSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sessions {
		return s
	}
	t.Fatal("the other Holdfast has no session")
	return nil
}

func (o *otherHoldfast) Start(_ context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timeout = time.Duration(r.GetTimeoutMs()) * time.Millisecond
	if o.sessions[r.GetSessionId()] == nil {
		s := &farSession{changed: make(chan struct{})}
		o.sessions[r.GetSessionId()] = s
		s.begin(o.play)
	}
	return &agentv1.StartResponse{SessionId: r.GetSessionId(), RunId: o.sessions[r.GetSessionId()].newest()}, nil
}

func (o *otherHoldfast) Resume(_ context.Context, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	s, err := o.session(r.GetSessionId())
	if err != nil {
		return nil, err
	}
	s.begin(o.play)
	return &agentv1.ResumeResponse{RunId: s.newest()}, nil
}

// begin begins the next run.
func (s *farSession) begin(play func(s *farSession)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs, s.stopped = append(s.runs, nil), make(chan struct{})
	go play(s)
}

// newest returns the id of the newest run.
func (s *farSession) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint("far", len(s.runs)-1)
}

func (o *otherHoldfast) Stream(ctx context.Context, r *agentv1.StreamRequest, stream *connect.ServerStream[agentv1.StreamResponse]) error {
	s, err := o.session(r.GetSessionId())
	if err != nil {
		return err
	}
	var run int
	if _, err := fmt.Sscanf(r.GetRunId(), "far%d", &run); err != nil {
		return err
	}
	for n := int(r.GetFromSequence()); ; {
		s.mu.Lock()
		frames, changed := s.runs[run][n:], s.changed
		s.mu.Unlock()
		for _, frame := range frames {
			if err := stream.Send(frame); err != nil || frame.GetEnd() != nil {
				return err
			}
		}
		n += len(frames)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *otherHoldfast) Get(_ context.Context, r *agentv1.GetRequest) (*agentv1.GetResponse, error) {
	s, err := o.session(r.GetSessionId())
	if err != nil {
		return nil, err
	}
	answer := &agentv1.GetResponse{SessionId: r.GetSessionId(), RunId: s.newest(), Status: "active"}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		answer.PendingCalls = []*agentv1.PendingCall{s.pending}
		answer.PendingCalls[0].SessionId = r.GetSessionId()
	}
	return answer, nil
}

func (o *otherHoldfast) Interrupt(_ context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	s, err := o.session(r.GetSessionId())
	if err == nil {
		s.stop(false)
	}
	return &agentv1.InterruptResponse{}, err
}

func (o *otherHoldfast) Abort(_ context.Context, r *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	s, err := o.session(r.GetSessionId())
	if err == nil {
		s.stop(true)
	}
	return &agentv1.AbortResponse{}, err
}

// SubmitToolResult refuses approvals: the key has started the run.
func (o *otherHoldfast) SubmitToolResult(_ context.Context, r *agentv1.SubmitToolResultRequest) (*agentv1.SubmitToolResultResponse, error) {
	s, err := o.session(r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if r.GetApproval().GetApproved() {
		return nil, rpc.ConnectError(fault.New(fault.Denied, "APPROVER_REFUSED", "somebody else has to approve"))
	}
	s.mu.Lock()
	s.answers, s.pending = append(s.answers, r), nil
	s.mu.Unlock()
	s.chunks(&eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: "c", ToolName: "pay", Error: "denied"}}})
	s.commit()
	s.end("completed")
	return &agentv1.SubmitToolResultResponse{}, nil
}

func (s *farSession) stop(aborts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = s.aborted || aborts
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
}

func (s *farSession) isAborted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aborted
}

func (s *farSession) send(frame *agentv1.StreamResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := len(s.runs) - 1
	if c := frame.GetChunk(); c != nil {
		c.Sequence = int64(len(s.runs[newest]) + 1)
	}
	s.runs[newest] = append(s.runs[newest], frame)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *farSession) chunk(c *eventv1.Chunk) {
	c.Step = s.step + 1
	s.send(&agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Chunk{Chunk: &agentv1.Chunk{Chunk: c}}})
}

func (s *farSession) say(text string) {
	s.chunk(&eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}})
}

func (s *farSession) chunks(chunks ...*eventv1.Chunk) {
	for _, c := range chunks {
		s.chunk(c)
	}
}

func (s *farSession) commit() {
	s.chunk(&eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}})
	s.step++
}

func (s *farSession) end(status string) {
	s.send(&agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: &agentv1.End{Status: status, Output: `"over"`}}})
}

// inMemory lets a handler answer requests without a network.
type inMemory struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	body, content := io.Pipe()
	w := &inMemoryResponse{header: http.Header{}, begun: make(chan struct{}), body: content}
	go func() {
		m.handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = content.Close()
	}()
	context.AfterFunc(r.Context(), func() { _ = content.CloseWithError(context.Cause(r.Context())) })
	select {
	case <-w.begun:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	return &http.Response{Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: w.header, Body: body, Request: r, ContentLength: -1}, nil
}

type inMemoryResponse struct {
	header http.Header
	status int
	begun  chan struct{}
	body   *io.PipeWriter
}

func (w *inMemoryResponse) Header() http.Header { return w.header }
func (w *inMemoryResponse) Flush()              {}

func (w *inMemoryResponse) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.header = w.header.Clone()
		close(w.begun)
	}
}

func (w *inMemoryResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

func TestTheHookAfterARemoteRunCanStillWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		far, _ := p.remoteAgent("far", func(s *farSession) {
			s.say("Hello.")
			s.commit()
			s.end("completed")
		})
		failed := errors.New("AfterRun was not called")
		far.Hooks.AfterRun = func(ctx context.Context, _ *agent.HookCall, _ agent.RunEnd) {
			pause(ctx, time.Second)
			failed = ctx.Err()
		}
		p.agents["far"] = far
		p.open()
		p.startRun("s", "far", "hi")
		p.settle()
		time.Sleep(time.Minute)
		if failed != nil {
			t.Errorf("AfterRun had a context with %v", failed)
		}
	})
}

// Readers here keep the words of a step that a stop cuts, and read its rest in the same attempt.
func TestAStoppedRemoteStepIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range []statev1.StopKind{interrupt, abort} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.agents["far"], _ = p.remoteAgent("far", func(s *farSession) {
					s.say("one ")
					s.commit()
					for i := 0; ; i++ {
						s.say(fmt.Sprint(i, " "))
						select {
						case <-s.stopped:
							s.say("cut")
							s.commit()
							s.end("interrupted")
							return
						case <-time.After(time.Second):
						}
					}
				})
				p.open()
				run := p.startRun("s", "far", "hi")
				time.Sleep(4500 * time.Millisecond)
				p.stopRun(run, kind, "")
				p.end(run)
				synctest.Wait()
				attempts, text := map[int32]bool{}, ""
				for _, r := range p.history("s") {
					for i, c := range r.GetChunks() {
						if delta := c.GetTextDelta().GetDelta(); c.GetStep() == 2 && delta != "" {
							attempts[position.Of(r.GetSequence()+int64(i)).Attempt] = true
							text += delta
						}
					}
				}
				if len(attempts) != 1 || text != "0 1 2 3 4 cut" {
					t.Errorf("live readers have received %q in %d attempts, want one", text, len(attempts))
				}
				messages := p.messages("s")
				if got := messages[len(messages)-1].GetParts()[0].GetText().GetText(); got != "0 1 2 3 4 cut" {
					t.Errorf("the stored step is %q", got)
				}
			})
		})
	}
}

func TestARemoteRunHasALimitOfSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		definition, far := p.remoteAgent("far", func(s *farSession) {
			for n := 0; ; n++ {
				select {
				case <-s.stopped:
					s.end("interrupted")
					return
				case <-time.After(time.Second):
				}
				s.say(fmt.Sprint("Step ", n))
				s.commit()
			}
		})
		definition.MaxSteps = 3
		p.agents["far"] = definition
		p.open()
		p.startRun("s", "far", "hi")
		found := p.settle()
		if code := found.GetSession().GetFailure().GetCode(); !strings.Contains(code, "max_steps") || found.GetSession().GetStepCount() != 3 {
			t.Errorf("got %v, want a failure after 3 steps", found.GetSession())
		}
		if !far.only(t).isAborted() {
			t.Error("the remote agent goes on")
		}
	})
}

func TestARemoteCallThatOthersApproveKeepsItsRuleAndItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		definition, far := p.remoteAgent("far", func(s *farSession) {
			s.chunks(&eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "c", ToolName: "pay", Arguments: `{}`}}},
				&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{ToolCallId: "c", ApprovalId: "a", ToolName: "pay"}}})
			s.mu.Lock()
			s.pending = &agentv1.PendingCall{ToolCallId: "c", ToolName: "pay", Input: `{}`, ApprovalId: "a", Approvers: "others"}
			s.mu.Unlock()
			s.commit()
			s.end("paused")
		})
		p.agents["far"] = definition
		p.open()
		p.post(&statev1.StartRunRequest{SessionId: "s", AgentType: "far", Messages: userMessages("hi"), Caller: &statev1.Caller{Actor: "user:me"}})
		var open []*statev1.Call
		p.until("the call waits", func() bool {
			open = openClientCalls(p.session("s"))
			return len(open) == 1 && p.session("s").GetSession().GetStatus() == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL
		})
		if open[0].GetApprovers() != statev1.Approvers_APPROVERS_OTHERS {
			t.Errorf("got the call %v, want the rule of the remote agent", open[0])
		}
		answer := approval(true, "")
		answer.GetApproval().ApprovalId = open[0].GetApprovalId()
		_, err := statev1.NewCallServiceClient(p.stateAPI).SubmitCall(p.context(), &statev1.SubmitCallRequest{
			Tenant: tenant, SessionId: "s", ToolCallId: open[0].GetToolCallId(), Answer: answer, Caller: &statev1.Caller{Actor: "user:other"},
		})
		must(t, err)
		p.until("the other Holdfast has the decision", func() bool {
			s := far.only(t)
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.ContainsFunc(s.answers, func(r *agentv1.SubmitToolResultRequest) bool {
				return !r.GetApproval().GetApproved() && strings.Contains(r.GetApproval().GetReason(), "accepts no approval")
			})
		})
	})
}

func TestAWrongClockOfAnExecutorMovesNoDeadlineOfARemoteRun(t *testing.T) {
	t.Parallel()
	const within, limit = time.Minute, 10 * time.Minute
	for _, lead := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(fmt.Sprint(lead), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.lead = lead
				definition, far := p.remoteAgent("far", func(s *farSession) {
					s.chunks(&eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "c", ToolName: "ask", Arguments: `{}`, AwaitsClient: true}}})
					s.mu.Lock()
					s.pending = &agentv1.PendingCall{ToolCallId: "c", ToolName: "ask", Input: `{}`, DeadlineAt: time.Now().Add(within).UnixMilli()}
					s.mu.Unlock()
					s.commit()
					s.end("paused")
				})
				p.agents["far"] = definition
				p.open()
				p.post(&statev1.StartRunRequest{SessionId: "s", AgentType: "far", Messages: userMessages("hi"), TimeoutMs: limit.Milliseconds()})
				var open []*statev1.Call
				p.until("the call waits", func() bool { open = openClientCalls(p.session("s")); return len(open) == 1 })
				if left := time.Until(time.UnixMilli(open[0].GetDeadlineAt())); left < within-5*time.Second || left > within+5*time.Second {
					t.Errorf("the call is answered within %v, want about %v", left, within)
				}
				far.mu.Lock()
				defer far.mu.Unlock()
				if far.timeout < limit-5*time.Second || far.timeout > limit {
					t.Errorf("the remote run has the time limit %v, want %v", far.timeout, limit)
				}
			})
		})
	}
}

// Nobody here may give the result that another system posts there: the run here has no call for it, and goes on by itself.
func TestARemoteCallThatWaitsForAnotherSystemIsNobodysCallHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var play func(s *farSession)
		play = func(s *farSession) {
			if s.newest() != "far0" {
				s.chunks(&eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{PreviousRunId: "far0"}}},
					&eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: "c", ToolName: "pay", Success: true, Result: `1`}}})
				s.say("Paid.")
				s.commit()
				s.end("completed")
				return
			}
			s.chunks(&eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "c", ToolName: "pay", Arguments: `{}`}}})
			s.mu.Lock()
			s.pending = &agentv1.PendingCall{ToolCallId: "c", ToolName: "pay", Input: `{}`, Kind: agentv1.CallKind_CALL_KIND_CALLBACK}
			s.mu.Unlock()
			s.commit()
			s.end("paused")
			time.Sleep(time.Minute)
			s.mu.Lock()
			s.pending = nil
			s.mu.Unlock()
			s.begin(play)
		}
		definition, _ := p.remoteAgent("far", play)
		p.agents["far"] = definition
		p.open()
		p.startRun("s", "far", "hi")
		time.Sleep(30 * time.Second)
		waiting := p.session("s")
		if calls := openClientCalls(waiting); len(calls) != 0 || waiting.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_ACTIVE {
			t.Errorf("while the other system works, the session has the calls %v and is %v", calls, waiting.GetSession().GetStatus())
		}
		found := p.settle()
		if found.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED || found.GetSession().GetStepCount() != 2 {
			t.Errorf("got %v, want both steps of the remote agent", found.GetSession())
		}
	})
}
