package history_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// starter begins runs. Two clients send each request at the same time with one request key.
func (w *world) starter() {
	for !w.closing.Load() {
		session, key := pick(sessions), w.id("key")
		r := &statev1.StartRunRequest{
			Tenant: tenant, SessionId: session, AgentType: agent, RequestKey: key, AbandonCalls: chance(40),
			Messages: []*eventv1.Message{text(w.id("user"), eventv1.Role_ROLE_USER)},
		}
		if root, isChild := rootOf(session); isChild {
			r.Parent = &statev1.Parent{SessionId: root, ToolCallId: "spawn"}
		}
		twice(func() {
			answer, unsure, err := attempt(w, func(ctx context.Context, c client) (*statev1.StartRunResponse, error) { return c.StartRun(ctx, r) })
			w.noteFault(err)
			w.refused("start", err, "AGENT_NOT_FOUND", "PARENT_ENDED", "SESSION_BUSY", "SESSION_SUSPENDED", "SESSION_NOT_FOUND")
			w.observe(func(h *history) {
				h.starts = append(h.starts, start{session, key, answer.GetRun().GetRunId(), fateOf(unsure, err)})
			})
		})
		pause(30 * time.Millisecond)
	}
}

// submitter answers open calls. Two clients answer each call at the same time with different answers.
func (w *world) submitter() {
	for !w.closing.Load() {
		session := pick(sessions)
		root, _ := rootOf(session)
		for _, call := range w.open(session) {
			twice(func() {
				payload := w.id("answer")
				r := &statev1.SubmitCallRequest{
					Tenant: tenant, SessionId: root, ToolCallId: call,
					Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: fmt.Sprintf("%q", payload)}},
				}
				answer, _, err := attempt(w, func(ctx context.Context, c client) (*statev1.SubmitCallResponse, error) { return c.SubmitCall(ctx, r) })
				w.noteFault(err)
				w.refused("submit", err, "OWNER_NOT_CONTINUABLE", "UNKNOWN_TOOL_CALL")
				w.observe(func(h *history) {
					h.submits = append(h.submits, submit{session, call, payload, answer.GetOutcome()})
				})
			})
		}
		pause(20 * time.Millisecond)
	}
}

// open returns the unanswered calls of a session.
func (w *world) open(session string) (ids []string) {
	answer, _, err := w.get(session)
	if err != nil {
		return nil
	}
	for _, c := range answer.GetCalls() {
		if c.GetAnswer() == nil && c.GetSessionId() == session {
			ids = append(ids, c.GetToolCallId())
		}
	}
	return ids
}

func (w *world) get(session string) (*statev1.GetSessionResponse, bool, error) {
	r := &statev1.GetSessionRequest{Tenant: tenant, SessionId: session}
	return attempt(w, func(ctx context.Context, c client) (*statev1.GetSessionResponse, error) { return c.GetSession(ctx, r) })
}

// host stops runs, sets statuses, expires sessions and writes their state.
func (w *world) host() {
	for !w.closing.Load() {
		session := pick(sessions)
		switch {
		case chance(25):
			w.stop(session)
		case chance(30):
			w.setStatus(session)
		case chance(30):
			w.letExpire(session)
		default:
			w.merge(session)
		}
		pause(40 * time.Millisecond)
	}
}

func (w *world) stop(session string) {
	r := &statev1.RequestStopRequest{Tenant: tenant, SessionId: session, Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: "history"}
	if chance(30) {
		r.Kind = statev1.StopKind_STOP_KIND_ABORT
	}
	_, _, err := attempt(w, func(ctx context.Context, c client) (*statev1.RequestStopResponse, error) {
		return c.RequestStop(ctx, r)
	})
	w.noteFault(err)
	w.refused("stop", err, "SESSION_NOT_FOUND")
}

func (w *world) setStatus(session string) {
	r := &statev1.SetStatusRequest{
		Tenant: tenant, SessionId: session,
		Expected: []statev1.SessionStatus{statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL},
		Status:   statev1.SessionStatus_SESSION_STATUS_FAILED, Failure: &statev1.Failure{Error: "given up"},
	}
	what := w.id("status")
	answer, unsure, err := attempt(w, func(ctx context.Context, c client) (*statev1.SetStatusResponse, error) { return c.SetStatus(ctx, r) })
	w.noteFault(err)
	w.refused("set status", err, "SESSION_NOT_FOUND")
	if err == nil && answer.GetOk() && !unsure {
		w.observe(func(h *history) { h.wrote(w.T, session, answer.GetVersion(), what) })
	}
}

func (w *world) letExpire(session string) {
	soon := time.Now().Add(200 * time.Millisecond).UnixMilli()
	r := &statev1.UpdateSessionRequest{Tenant: tenant, SessionId: session, ExpiresAt: &soon}
	what := w.id("expiry")
	answer, _, err := attempt(w, func(ctx context.Context, c client) (*statev1.UpdateSessionResponse, error) {
		return c.UpdateSession(ctx, r)
	})
	w.noteFault(err)
	w.refused("let expire", err, "SESSION_NOT_FOUND")
	if err == nil {
		w.observe(func(h *history) { h.wrote(w.T, session, answer.GetVersion(), what) })
	}
}

// merge appends to the log outside of a run. It is sent once, because such a write cannot be repeated safely.
func (w *world) merge(session string) {
	item := w.id("host")
	r := &statev1.MergeStateRequest{Tenant: tenant, SessionId: session, Ops: []*statev1.StateOp{appendTo("log", item)}}
	answer, err := once(w.ctx, w.client(), func(ctx context.Context, c client) (*statev1.MergeStateResponse, error) { return c.MergeState(ctx, r) })
	unsure := fault.KindOf(err) == fault.Unavailable
	if !unsure {
		w.noteFault(err)
		w.refused("merge", err, "SESSION_NOT_FOUND", "QUEUE_FULL")
	}
	w.observe(func(h *history) {
		h.commits = append(h.commits, commit{session: session, log: []string{item}, fate: fateOf(unsure, err)})
		if err == nil {
			h.wrote(w.T, session, answer.GetVersion(), item)
		}
	})
}

// reader checks the invariants of every single response.
func (w *world) reader() {
	seen := map[string]*statev1.Session{}
	for !w.closing.Load() {
		id := pick(sessions)
		var acked int64
		w.observe(func(h *history) { acked = h.acked[id]; h.reads++ })
		answer, _, err := w.get(id)
		if err != nil {
			w.refused("read", err, "SESSION_NOT_FOUND")
			continue
		}
		s := answer.GetSession()
		if s.GetVersion() < acked {
			w.Errorf("session %s has version %d after a client was told %d", id, s.GetVersion(), acked)
		}
		if old := seen[id]; old != nil && (s.GetVersion() < old.GetVersion() || s.GetEpoch() < old.GetEpoch() ||
			s.GetMessageCount() < old.GetMessageCount() || s.GetStepCount() < old.GetStepCount()) {
			w.Errorf("session %s went back from %v to %v", id, old, s)
		}
		seen[id] = s
		w.whole(answer)
	}
}

// whole checks that a snapshot shows suspensions completely: the status, the open calls, and in a root the state
// of the child.
func (w *world) whole(answer *statev1.GetSessionResponse) {
	s := answer.GetSession()
	open := map[string]int{}
	for _, c := range answer.GetCalls() {
		if c.GetAnswer() == nil {
			open[c.GetSessionId()]++
		}
	}
	waits := s.GetStatus() == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL
	if waits && open[s.GetSessionId()] == 0 {
		w.Errorf("session %s waits for nothing: %v", s.GetSessionId(), answer)
	}
	if waits != (s.GetSuspension() != nil) {
		w.Errorf("session %s is %v with the suspension %v", s.GetSessionId(), s.GetStatus(), s.GetSuspension())
	}
	active := s.GetStatus() == statev1.SessionStatus_SESSION_STATUS_ACTIVE
	if run := answer.GetCurrentRun(); active != live(run) {
		w.Errorf("session %s is %v with a run that is %v", s.GetSessionId(), s.GetStatus(), run.GetStatus())
	}
	for _, child := range answer.GetSubSessions() {
		if child.GetStatus() == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL && open[child.GetSessionId()] == 0 {
			w.Errorf("root %s shows its child waiting, and none of its calls: %v", s.GetSessionId(), answer)
		}
		if child.GetStatus() == statev1.SessionStatus_SESSION_STATUS_FAILED && open[child.GetSessionId()] > 0 {
			w.Errorf("root %s shows its child failed with open calls: %v", s.GetSessionId(), answer)
		}
	}
}

func live(r *statev1.Run) bool {
	return r.GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED || r.GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING
}

func (w *world) noteFault(err error) {
	if reason := fault.ReasonOf(err); reason != "" {
		w.observe(func(h *history) { h.faults[reason]++ })
	}
}
