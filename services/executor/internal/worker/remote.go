package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/remote"
)

// ownerInterval is how often a run of a remote agent checks its owner.
const ownerInterval = 2 * time.Second

// progressKey is the key of remote.Claim.Progress in the custom state of a remote agent's session.
const progressKey = "remote"

// errEndedOutside means that another party has ended the run, or owns it.
var errEndedOutside = errors.New("the run is no longer this executor's")

// executeRemote executes the run of a remote agent. Package remote copies its steps from there.
func (r *runner) executeRemote(ctx context.Context) error {
	if err := r.loadState(); err != nil {
		return err
	}
	if refusal := r.hooks.beforeRun(ctx, r.claimed.run.GetStepCount() > 0); refusal != nil {
		return r.fail(ctx, *refusal)
	}
	claim := remote.Claim{
		Agent: *r.code.agent.Remote, Run: r.claimed.plannerRun(), Entry: r.claimed.run.GetEntry(), Calls: r.claim.GetCalls(),
		Step: int(r.step), Copied: int(r.claimed.run.GetStepCount()), MaxSteps: r.code.agent.MaxSteps,
		Deadline: r.claimed.deadline(0, time.Time{}),
		HTTP:     r.worker.peers.HTTP, CallTimeout: r.worker.config.CallTimeout,
		Patience: r.worker.config.RemotePatience, StopPatience: r.worker.config.RemoteStopPatience,
		Draining: r.draining, Now: func() time.Time { return r.claimed.stateTime(r.worker.peers.Now()) }, Log: r.log,
	}
	var err error
	if claim.Message, claim.Question, err = r.usersMessages(ctx); err != nil {
		return err
	}
	if found, ok := r.writes.state[progressKey]; ok {
		if claim.Progress, err = json.Marshal(found); err != nil {
			return err
		}
	}
	copier := remote.NewCopier(claim, remoteRun{r})
	var watch sync.WaitGroup
	defer watch.Wait()
	owned, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	watch.Go(func() { r.watchOwner(owned, lose) })
	err = copier.Copy(owned)
	switch {
	case errors.Is(err, remote.ErrDraining):
		return errDraining
	case err != nil && (errors.Is(context.Cause(owned), errEndedOutside) || isLost(err)):
		ctx := context.WithoutCancel(ctx)
		if r.hasEndedOutside(ctx) {
			copier.Abort(ctx, "the session of the caller has ended")
		}
		return fault.New(fault.Stale, "EPOCH_STALE", "%v", errEndedOutside)
	}
	return err
}

// usersMessages returns the texts of the users' messages at the begin of the run, empty for none, and of the newest
// ones in the conversation.
func (r *runner) usersMessages(ctx context.Context) (own, newest string, err error) {
	stored, err := r.loadConversation(ctx)
	if err != nil {
		return "", "", err
	}
	transcript, err := r.toTranscript(stored)
	if err != nil {
		return "", "", err
	}
	join := func(messages []agent.Message) string {
		var texts []string
		for _, m := range messages {
			if m.Role == agent.RoleUser {
				texts = append(texts, m.Text())
			}
		}
		return strings.Join(texts, "\n\n")
	}
	begin := min(int(r.claimed.run.GetStartMessageCount()), len(transcript))
	return join(transcript[begin:]), join(transcript[beginOfTurn(transcript, len(transcript)):]), nil
}

// watchOwner ends the context of the run when the session has another epoch. The state service also sends a stop when
// it ends a run from outside, as by the failure of its parent, but that may be lost.
func (r *runner) watchOwner(ctx context.Context, lose context.CancelCauseFunc) {
	ticks := time.NewTicker(ownerInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		found, err := r.readSession(ctx)
		if isLost(err) || err == nil && found.GetSession().GetEpoch() != r.claimed.ref.GetEpoch() {
			lose(errEndedOutside)
			return
		}
	}
}

// hasEndedOutside reports whether another party has ended the run. If another executor has the run, it goes on.
func (r *runner) hasEndedOutside(ctx context.Context) bool {
	found, err := r.readSession(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return true
	}
	run := found.GetCurrentRun()
	ended := run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED || run.GetStatus() == statev1.RunStatus_RUN_STATUS_INTERRUPTED
	return err == nil && ended && run.GetRunId() == r.claimed.ref.GetRunId()
}

// readSession reads the session of the run once, without a retry.
func (r *runner) readSession(ctx context.Context) (*statev1.GetSessionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, r.worker.config.CallTimeout)
	defer cancel()
	request := &statev1.GetSessionRequest{Tenant: r.claimed.ref.GetTenant(), SessionId: r.claimed.ref.GetSessionId()}
	return r.worker.peers.Sessions.GetSession(ctx, request, r.claimed.granted())
}

// remoteRun is the run of a runner for package remote.
type remoteRun struct{ runner *runner }

// Interruptible implements remote.Run.
func (r remoteRun) Interruptible(ctx context.Context) (context.Context, func()) {
	return r.runner.stopper.interruptible(ctx)
}

// TakeStop implements remote.Run.
func (r remoteRun) TakeStop() (loop.Stop, bool) { return r.runner.stopper.takeNew() }

// Show implements remote.Run.
func (r remoteRun) Show(ctx context.Context, step int, chunks ...*eventv1.Chunk) error {
	return r.runner.view.show(ctx, int32(step), chunks...)
}

// Void implements remote.Run.
func (r remoteRun) Void() { r.runner.view.voidStep(r.runner.writes.stored) }

// Count implements remote.Run.
func (r remoteRun) Count(name string, u model.Usage) { r.runner.usage.addTokens(name, u) }

// Commit implements remote.Run.
func (r remoteRun) Commit(ctx context.Context, c loop.Commit, progress json.RawMessage) error {
	r.runner.writes.progress = []agent.Op{{Key: progressKey, Kind: agent.OpReplace, Value: progress}}
	return r.runner.commitStep(ctx, r.runner.recorder.commitRequest(ctx, c), c.Outcome)
}

// Finish implements remote.Run.
func (r remoteRun) Finish(ctx context.Context, o loop.Outcome) error { return r.runner.finish(ctx, o) }
