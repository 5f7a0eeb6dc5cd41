package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/remote"
)

// codeSubAgentLost is the code of a run whose remote agent cannot be followed, as in the specification. The detail
// begins with the cause: not_found, refused:REASON or status_unreachable.
const codeSubAgentLost = "framework_subagent_lost"

// How often a run of a remote agent checks its owner and the progress of its remote session.
const (
	ownerInterval  = 2 * time.Second
	pausedInterval = time.Second
)

// progressKey is the key of remoteProgress in the custom state of a remote agent's session.
const progressKey = "remote"

// remoteProgress is the newest step that is committed here: its session, run and number there.
type remoteProgress struct {
	Session string `json:"session"`
	Run     string `json:"run"`
	Step    int32  `json:"step"`
	// Counted is the newest run there whose tokens are counted here.
	Counted string `json:"counted,omitempty"`
	// Below has the open calls here of sub-agents there, by local id. Their results stay there.
	Below []string `json:"below,omitempty"`
}

// errEndedOutside means that another party has ended the run, or owns it.
var errEndedOutside = errors.New("the run is no longer this executor's")

// The limits of what is copied.
var (
	errStepTooLarge = fault.New(fault.TooLarge, "STEP_TOO_LARGE", "a step of the remote agent is larger than %d bytes", remote.MaxStepBytes)
	errTooManySteps = errors.New("the remote agent has used up the steps of the run")
)

// remoteRun executes a run of a remote agent: see package remote. One goroutine owns it.
type remoteRun struct {
	*runner
	client   *client.Client
	agent    agent.Remote
	session  string // there
	message  string // of the users, for this run; empty for none
	question string // the newest of the users in the conversation
	progress remoteProgress
	mirror   *remote.Mirror
	at       remotePlace        // of the mirror
	held     *remote.Step       // a committed step there with calls for a client: the next commit here
	consumed []loop.Consumed    // answers that the next commit consumes
	results  []agent.ToolResult // of the calls of Below among them
	stopped  *loop.Stop         // delivered, or given up
	copied   int                // steps of the run that are committed here
}

// remotePlace is a place in the stream of a run there.
type remotePlace struct {
	run      string
	sequence int64 // of the last chunk; 0 before the first
}

// remoteEnd is the end of a run there.
type remoteEnd struct {
	paused  bool
	outcome loop.Outcome
}

// executeRemote executes the run of a remote agent.
func (r *runner) executeRemote(ctx context.Context) error {
	if err := r.loadState(); err != nil {
		return err
	}
	if refusal := r.hooks.beforeRun(ctx, r.claimed.run.GetStepCount() > 0); refusal != nil {
		return r.fail(ctx, *refusal)
	}
	message, question, err := r.usersMessages(ctx)
	if err != nil {
		return err
	}
	definition := *r.code.agent.Remote
	m := &remoteRun{
		runner: r, agent: definition, session: remote.SessionID(r.claimed.plannerRun()), message: message, question: question,
		copied: int(r.claimed.run.GetStepCount()),
		client: client.New(client.Config{URL: definition.URL, Key: definition.Key, HTTP: r.peers.HTTP, Patience: r.config.RemotePatience}),
	}
	if text, err := json.Marshal(r.writes.state[progressKey]); err == nil {
		_ = json.Unmarshal(text, &m.progress) // nothing before the first step
	}
	owned, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	go m.watchOwner(owned, lose)
	err = m.copyAll(owned)
	if err != nil && (errors.Is(context.Cause(owned), errEndedOutside) || isLost(err)) {
		m.stopOwed(ctx)
		return fault.New(fault.Stale, "EPOCH_STALE", "%v", errEndedOutside)
	}
	return err
}

// copyAll copies the runs there until the run here has ended. A stop is delivered there, and its consequences are
// copied.
func (m *remoteRun) copyAll(ctx context.Context) error {
	run, err := m.begin(ctx)
	if err != nil {
		return m.failLost(ctx, err)
	}
	for {
		next, done, err := m.copyRun(ctx, run)
		switch {
		case done:
			return err
		case isClosed(m.draining):
			return errDraining
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errStepTooLarge), errors.Is(err, errTooManySteps):
			return m.endExcess(ctx, err)
		case m.stopper.hasNew():
			if err := m.deliverStop(ctx); err != nil {
				return m.finishUndelivered(ctx)
			}
		case err != nil:
			return m.failLost(ctx, err)
		default:
			run = next
		}
	}
}

// copyRun copies one run there to its end. It returns the next run, or done if the run here has ended.
func (m *remoteRun) copyRun(ctx context.Context, run string) (next string, done bool, err error) {
	cuttable, end := m.stopper.cuttable(ctx)
	defer end()
	cuttable, cut := context.WithCancelCause(cuttable)
	defer cut(nil)
	go func() {
		select {
		case <-m.draining:
			cut(errDraining)
		case <-cuttable.Done():
		}
	}()
	last, err := m.follow(ctx, cuttable, run)
	switch {
	case err != nil:
		return "", isCommitError(err), err
	case last.paused:
		return m.afterPause(ctx, cuttable, run)
	}
	if m.held != nil {
		if err := m.commitHeld(ctx); err != nil {
			return "", true, err
		}
	}
	return "", true, m.finishRemote(ctx, last.outcome)
}

// commitError is an error of the services here. Other errors come from the other Holdfast.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

func isCommitError(err error) bool {
	_, ok := errors.AsType[commitError](err)
	return ok
}

// follow copies the chunks of a run there, and commits its steps here. cuttable ends with a stop, after which the run is
// followed from the same place.
func (m *remoteRun) follow(ctx, cuttable context.Context, run string) (remoteEnd, error) {
	if m.at.run != run || m.at.sequence == 0 {
		if m.mirror != nil {
			m.void()
		}
		m.held, m.mirror = nil, remote.NewMirror(m.progress.Step, func(id string) string { return remote.CallID(m.claimed.plannerRun(), id) })
		m.at = remotePlace{run: run}
	}
	for frame, err := range m.client.Follow(cuttable, &agentv1.StreamRequest{SessionId: m.session, RunId: run, FromSequence: m.at.sequence}) {
		if err != nil {
			return remoteEnd{}, err
		}
		switch {
		case frame.GetChunk() != nil:
			err := m.copyChunk(ctx, run, frame.GetChunk())
			if errors.Is(err, errStepTooLarge) || errors.Is(err, errTooManySteps) {
				return remoteEnd{}, err
			}
			if err != nil {
				return remoteEnd{}, commitError{err}
			}
			m.at.sequence = frame.GetChunk().GetSequence()
		case frame.GetRewound() != nil:
			m.void()
			m.at.sequence = frame.GetRewound().GetSequence()
		case frame.GetEnd() != nil:
			m.count(run, frame.GetEnd().GetUsage())
			return m.endOf(frame.GetEnd()), nil
		case frame.GetFail() != nil:
			f := frame.GetFail()
			return remoteEnd{outcome: failedRemotely(f.GetError(), f.GetCode())}, nil
		}
	}
	return remoteEnd{}, fault.New(fault.Unavailable, "STREAM_CUT", "the stream ended without an end of its run")
}

// count counts the tokens of an ended run there, once.
func (m *remoteRun) count(run string, u *eventv1.Usage) {
	if run == m.progress.Counted {
		return
	}
	m.progress.Counted = run
	m.usage.addTokens("remote/"+m.agent.Agent, model.Usage{
		PromptTokens: u.GetPromptTokens(), CompletionTokens: u.GetCompletionTokens(), ReasoningTokens: u.GetReasoningTokens(),
		CachedTokens: u.GetCachedTokens(), TotalTokens: u.GetTotalTokens(),
	})
}

func (m *remoteRun) copyChunk(ctx context.Context, run string, c *agentv1.Chunk) error {
	if c.GetChunk().GetStepDiscarded() != nil {
		m.void()
		return nil
	}
	shown, committed := m.mirror.Add(c.GetChunk())
	if shown != nil && m.copied >= m.maxSteps() {
		return errTooManySteps
	}
	if m.mirror.TooLarge() {
		return errStepTooLarge
	}
	if shown != nil {
		if err := m.view.show(ctx, m.step+1, shown); err != nil {
			return err
		}
	}
	if !committed {
		return nil
	}
	step := m.mirror.Commit()
	m.progress.Session, m.progress.Run = m.session, run
	if m.held = &step; step.Waits {
		return nil // until the pause, with the calls
	}
	return m.commitHeld(ctx)
}

// commitHeld commits the held step without a suspension.
func (m *remoteRun) commitHeld(ctx context.Context) error { return m.commitCopy(ctx, loop.Commit{}) }

// void drops the step in flight, also for readers.
func (m *remoteRun) void() {
	if m.mirror.InFlight() {
		m.mirror.Void()
		m.view.voidStep(m.writes.stored)
	}
}

// commitCopy commits a step here: the held step, the progress, and the answers that have been sent.
func (m *remoteRun) commitCopy(ctx context.Context, c loop.Commit) error {
	c.Step, c.Consumed = int(m.step)+1, m.consumed
	var step remote.Step
	if m.held != nil {
		step = *m.held
		m.progress.Step = step.Number
	}
	step.Results = slices.Concat(m.results, step.Results)
	for _, result := range m.results {
		if err := m.view.show(ctx, int32(c.Step), toolEnd(result)); err != nil {
			return err
		}
	}
	c.Decisions = m.decisions()
	m.progress.Below = slices.DeleteFunc(m.progress.Below, func(id string) bool {
		return slices.ContainsFunc(m.consumed, func(one loop.Consumed) bool { return one.CallID == id })
	})
	c.Messages = append(remote.Messages(m.claimed.plannerRun(), c.Step, step), c.Messages...)
	progress, err := json.Marshal(m.progress)
	if err != nil {
		return err
	}
	m.writes.addHook(c.Step, []agent.Op{{Key: progressKey, Kind: agent.OpReplace, Value: progress}})
	if err := m.commitStep(ctx, c); err != nil {
		return err
	}
	m.held, m.consumed, m.results = nil, nil, nil
	m.copied++
	return nil
}

// maxSteps returns how many steps of a run are copied. The other Holdfast has its own limit, which is the usual one.
func (m *remoteRun) maxSteps() int { return cmp.Or(m.code.agent.MaxSteps, agent.DefaultRemoteMaxSteps) }

// endExcess stops the remote agent because of a limit here, and fails the run.
func (m *remoteRun) endExcess(ctx context.Context, cause error) error {
	if err := m.sendStop(ctx, loop.Stop{Kind: loop.StopAbort, Reason: cause.Error()}); err != nil {
		m.log.ErrorContext(ctx, "the remote agent could not be stopped; it may go on", "url", m.agent.URL, "session", m.session, "error", err)
	}
	if errors.Is(cause, errTooManySteps) {
		return m.finish(ctx, loop.MaxStepsOutcome(m.maxSteps()))
	}
	return m.failLost(ctx, cause)
}

// endOf returns the end of a run there.
func (m *remoteRun) endOf(e *agentv1.End) remoteEnd {
	switch e.GetStatus() {
	case "paused":
		return remoteEnd{paused: true}
	case "interrupted":
		return remoteEnd{outcome: loop.Stop{Kind: loop.StopInterrupt}.Outcome()}
	}
	return remoteEnd{outcome: loop.Outcome{Status: loop.StatusCompleted, Output: toJSON(e.GetOutput()), FinishReason: model.FinishStop}}
}

func failedRemotely(text, code string) loop.Outcome {
	return loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{
		Error: text, Detail: "the remote agent has failed: " + text, Code: code,
	}}
}

// afterPause waits until the remote session continues with another run, or waits for a client. Then the run here
// waits for the client too.
func (m *remoteRun) afterPause(ctx, cuttable context.Context, run string) (next string, done bool, err error) {
	deadline := m.peers.Now().Add(m.config.RemotePatience)
	for {
		call, cancel := context.WithTimeout(cuttable, m.config.CallTimeout)
		found, err := m.client.Get(call, m.session)
		cancel()
		if err == nil {
			deadline = m.peers.Now().Add(m.config.RemotePatience)
		}
		switch {
		case isRefusal(err):
			return "", false, err
		case err != nil && m.peers.Now().After(deadline):
			return "", false, err
		case err != nil:
		case found.GetRunId() != run && m.held != nil:
			if err := m.commitHeld(ctx); err != nil {
				return "", true, err
			}
			continue
		case found.GetRunId() != run:
			next, err := m.runAfter(cuttable, run, found.GetRunId())
			return next, false, err
		case m.held != nil:
			own := slices.DeleteFunc(found.GetPendingCalls(), func(p *agentv1.PendingCall) bool { return p.GetSessionId() != m.session })
			if len(own) > 0 {
				return "", true, m.suspend(ctx, own)
			}
			if err := m.commitHeld(ctx); err != nil { // they are answered already
				return "", true, err
			}
			continue
		case len(found.GetPendingCalls()) > 0:
			return "", true, m.suspend(ctx, found.GetPendingCalls())
		case found.GetStatus() == "interrupted":
			return "", true, m.finishRemote(ctx, loop.Stop{Kind: loop.StopInterrupt}.Outcome())
		case found.GetStatus() == "failed":
			return "", true, m.finishRemote(ctx, failedRemotely(found.GetError(), found.GetErrorCode()))
		}
		if !sleep(cuttable, pausedInterval) {
			return "", false, context.Cause(cuttable)
		}
	}
}

// runAfter returns the run that continues a run there. newest may be a later one: each continuation names the run
// before it.
func (m *remoteRun) runAfter(ctx context.Context, run, newest string) (string, error) {
	for at := newest; ; {
		previous, err := m.previousRun(ctx, at)
		if err != nil || previous == run || previous == "" {
			return at, err
		}
		at = previous
	}
}

// previousRun returns the run that a run there continues; empty for none.
func (m *remoteRun) previousRun(ctx context.Context, run string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for frame, err := range m.client.Follow(ctx, &agentv1.StreamRequest{SessionId: m.session, RunId: run}) {
		if err != nil {
			return "", err
		}
		if c := frame.GetChunk(); c != nil {
			return c.GetChunk().GetRunResumed().GetPreviousRunId(), nil
		}
		if frame.GetEnd() != nil || frame.GetFail() != nil {
			break
		}
	}
	return "", nil
}

// finishRemote ends the run here. After a stop that was delivered, the end there is its consequence.
func (m *remoteRun) finishRemote(ctx context.Context, o loop.Outcome) error {
	if m.stopped != nil && o.Status != loop.StatusCompleted {
		o = m.stopped.Outcome()
	}
	return m.finish(ctx, o)
}

// sleep reports whether the time has passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
