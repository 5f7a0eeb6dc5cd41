package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// watchOwner ends the context of the run when the session has another epoch. The state service also sends a stop when
// it ends a run from outside, as by the failure of its parent, but that may be lost.
func (m *remoteRun) watchOwner(ctx context.Context, lose context.CancelCauseFunc) {
	ticks := time.NewTicker(ownerInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		found, err := m.peers.Sessions.GetSession(call, &statev1.GetSessionRequest{Tenant: m.claimed.ref.GetTenant(), SessionId: m.claimed.ref.GetSessionId()}, m.claimed.granted())
		cancel()
		if isLost(err) || err == nil && found.GetSession().GetEpoch() != m.claimed.ref.GetEpoch() {
			lose(errEndedOutside)
			return
		}
	}
}

// failLost ends the run here because the run there cannot be followed.
func (m *remoteRun) failLost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cause := "status_unreachable"
	if isClosed(m.draining) {
		return errDraining
	}
	if isCommitError(err) {
		return err
	}
	if m.stopper.hasNew() && m.deliverStop(ctx) != nil {
		return m.finishUndelivered(ctx)
	}
	switch {
	case m.stopped != nil:
		return m.finish(ctx, m.stopped.Outcome())
	case fault.ReasonOf(err) == "SESSION_NOT_FOUND", fault.ReasonOf(err) == "RUN_NOT_FOUND":
		cause = "not_found"
	case isRefusal(err):
		cause = "refused:" + fault.ReasonOf(err)
	}
	return m.finish(ctx, loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{
		Error: "The remote agent was lost.", Detail: fmt.Sprintf("%s: %v", cause, err), Code: codeSubAgentLost,
	}})
}

// deliverStop sends a new stop to the remote session until it is confirmed. The run here does not end before, so a
// new owner of the run delivers it if this executor is lost. It returns an error when it gives up.
func (m *remoteRun) deliverStop(ctx context.Context) error {
	stop, _ := m.stopper.takeNew()
	m.stopped = &stop
	err := m.sendStop(ctx, stop)
	if err != nil {
		m.log.ErrorContext(ctx, "the remote agent could not be stopped; it may go on", "url", m.agent.URL, "session", m.session, "error", err)
	}
	return err
}

// finishUndelivered ends the run here after a stop that could not be delivered. An executor that stops leaves the
// delivery to the next owner of the run.
func (m *remoteRun) finishUndelivered(ctx context.Context) error {
	switch {
	case isClosed(m.draining):
		return errDraining
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return m.finishRemote(ctx, m.stopped.Outcome())
}

// stopOwed stops the remote session of a run that was ended from outside. If another executor has the run, it goes on.
func (m *remoteRun) stopOwed(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
	found, err := m.peers.Sessions.GetSession(call, &statev1.GetSessionRequest{Tenant: m.claimed.ref.GetTenant(), SessionId: m.claimed.ref.GetSessionId()}, m.claimed.granted())
	cancel()
	status := found.GetCurrentRun().GetStatus()
	sameRun := found.GetCurrentRun().GetRunId() == m.claimed.ref.GetRunId()
	gone := fault.KindOf(err) == fault.NotFound
	if !gone && (err != nil || !sameRun || status != statev1.RunStatus_RUN_STATUS_FAILED && status != statev1.RunStatus_RUN_STATUS_INTERRUPTED) {
		return
	}
	if err := m.sendStop(ctx, loop.Stop{Kind: loop.StopAbort, Reason: "the session of the caller has ended"}); err != nil {
		m.log.ErrorContext(ctx, "the remote agent could not be stopped; it may go on", "url", m.agent.URL, "session", m.session, "error", err)
	}
}

// sendStop repeats the stop until it is confirmed, for RemoteStopPatience.
func (m *remoteRun) sendStop(ctx context.Context, stop loop.Stop) error {
	deadline := m.peers.Now().Add(m.config.RemoteStopPatience)
	var wait backoff
	for {
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		var err error
		if stop.Kind == loop.StopInterrupt {
			_, err = m.client.Interrupt(call, &agentv1.InterruptRequest{SessionId: m.session, Reason: stop.Reason})
		} else {
			_, err = m.client.Abort(call, &agentv1.AbortRequest{SessionId: m.session, Reason: stop.Reason})
		}
		cancel()
		if err == nil || fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if isRefusal(err) || m.peers.Now().After(deadline) || isClosed(m.draining) {
			return err
		}
		if err := wait.sleep(ctx); err != nil {
			return err
		}
	}
}
