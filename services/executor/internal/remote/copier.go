package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/step"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// Run is what a Copier needs of the run here. Its errors are those of the services here, and end the copying.
type Run interface {
	// Interruptible returns a context that ends with a stop of the run. A stop not yet taken has ended it already.
	Interruptible(ctx context.Context) (interruptible context.Context, end func())
	// TakeStop returns a new stop, once. It reports false for none.
	TakeStop() (loop.Stop, bool)
	// Show shows readers the next chunks of a step.
	Show(ctx context.Context, step int, chunks ...*eventv1.Chunk) error
	// Void voids what readers have seen of the step in flight.
	Void()
	// Count counts the tokens that the named agent has used.
	Count(name string, u model.Usage)
	// Commit commits a step. progress is stored with it, as Claim.Progress of the next claim.
	Commit(ctx context.Context, c loop.Commit, progress json.RawMessage) error
	// Finish ends the run outside of a step.
	Finish(ctx context.Context, o loop.Outcome) error
}

// Claim describes the claimed run here. All times are by the clock of the state service.
type Claim struct {
	Agent   agent.Remote
	Run     loop.Run
	Entry   statev1.RunEntry
	Message string // of the users, for this run; empty for none
	// Question is the newest message of the users in the conversation, for a run without one of its own.
	Question string
	Calls    []*statev1.Call // of the claim
	Progress json.RawMessage // of the last commit; nil before the first
	Step     int             // the last committed one of the session
	Copied   int             // steps of the run that are committed
	MaxSteps int             // of the run; 0 is agent.DefaultRemoteMaxSteps
	Deadline time.Time       // of the run; zero for none

	HTTP         *http.Client
	CallTimeout  time.Duration // of one request
	Patience     time.Duration // how long the other Holdfast may be unreachable
	StopPatience time.Duration // how long a stop is repeated
	Draining     <-chan struct{}
	Now          func() time.Time
	Log          *slog.Logger
}

// ErrDraining ends the copying when Claim.Draining is closed.
var ErrDraining = errors.New("the executor is stopping")

// codeLost is the code of a run whose remote agent cannot be followed, as in the specification. The detail begins with
// the cause: not_found, refused:REASON or status_unreachable.
const codeLost = "framework_subagent_lost"

// The limits of what is copied.
var (
	errStepTooLarge = fault.New(fault.TooLarge, "STEP_TOO_LARGE", "a step of the remote agent is larger than %d bytes", MaxStepBytes)
	errTooManySteps = errors.New("the remote agent has used up the steps of the run")
)

// localError is an error of the services here. Other errors come from the other Holdfast.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// local marks an error of the services here.
func local(err error) error {
	if err == nil {
		return nil
	}
	return localError{err}
}

// progress is the newest step committed here: its session, run and number there.
type progress struct {
	Session string `json:"session"`
	Run     string `json:"run"`
	Step    int32  `json:"step"`
	// Counted is the newest run there whose tokens are counted here.
	Counted string `json:"counted,omitempty"`
	// Below has the open calls here of sub-agents there, by local id. Their results stay there.
	Below []string `json:"below,omitempty"`
}

// Copier executes one run of a remote agent. It is for one goroutine.
type Copier struct {
	Claim
	run      Run
	client   *client.Client
	session  string // there
	progress progress

	mirror   *Mirror
	followed string             // the run there that the mirror has followed
	sequence int64              // of the last chunk in the mirror; 0 before the first
	pending  *Step              // a committed step there with calls for a client: the next commit here
	consumed []loop.Consumed    // answers that the next commit consumes
	results  []agent.ToolResult // of the calls of progress.Below among them
	stopped  *loop.Stop         // delivered, or given up
}

// NewCopier returns the copier of a claimed run.
func NewCopier(c Claim, run Run) *Copier {
	copier := &Copier{
		Claim: c, run: run, session: SessionID(c.Run),
		client: client.New(client.Config{URL: c.Agent.URL, Key: c.Agent.Key, HTTP: c.HTTP, Patience: c.Patience}),
	}
	if c.Progress != nil {
		_ = json.Unmarshal(c.Progress, &copier.progress) // written by commit
	}
	return copier
}

// Copy copies the runs there until the run here has ended. A stop is delivered there, and its consequences are
// copied. Copy returns errors of the services here, ErrDraining, and the cause of an ended ctx. In any other case it has
// ended the run here.
func (c *Copier) Copy(ctx context.Context) error {
	run, err := c.begin(ctx)
	if err != nil {
		return c.failLost(ctx, err)
	}
	for {
		next, err := c.copyRun(ctx, run)
		switch failure, isLocal := errors.AsType[localError](err); {
		case isLocal:
			return failure.error
		case err == nil && next == "":
			return nil
		case isClosed(c.Draining):
			return ErrDraining
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errStepTooLarge), errors.Is(err, errTooManySteps):
			return c.endExcess(ctx, err)
		}
		if stop, isNew := c.run.TakeStop(); isNew {
			if c.deliver(ctx, stop) != nil {
				return c.finishUndelivered(ctx)
			}
			continue // the consequences of the stop are in the same run there
		}
		if err != nil {
			return c.failLost(ctx, err)
		}
		run = next
	}
}

// copyRun copies one run there to its end. It returns the next run; empty if the run here has ended.
func (c *Copier) copyRun(ctx context.Context, run string) (next string, err error) {
	interruptible, end := c.run.Interruptible(ctx)
	defer end()
	interruptible, cancel := context.WithCancelCause(interruptible)
	defer cancel(nil)
	go func() {
		select {
		case <-c.Draining:
			cancel(ErrDraining)
		case <-interruptible.Done():
		}
	}()
	outcome, err := c.follow(ctx, interruptible, run)
	switch {
	case err != nil:
		return "", err
	case outcome == nil:
		return c.afterPause(ctx, interruptible, run)
	}
	if err := c.commitPending(ctx); err != nil {
		return "", err
	}
	return "", c.finish(ctx, *outcome)
}

// follow copies the chunks of a run there, and commits its steps here. It returns the end of the run; nil for a pause.
// interruptible ends with a stop, after which the run is followed from the same place.
func (c *Copier) follow(ctx, interruptible context.Context, run string) (*loop.Outcome, error) {
	if c.followed != run || c.sequence == 0 {
		if c.mirror != nil {
			c.void()
		}
		c.pending = nil
		c.mirror = NewMirror(c.progress.Step, func(id string) string { return CallID(c.Run, id) })
		c.followed = run
		c.sequence = 0
	}
	request := &agentv1.StreamRequest{SessionId: c.session, RunId: run, FromSequence: c.sequence}
	for frame, err := range c.client.Follow(interruptible, request) {
		if err != nil {
			return nil, err
		}
		switch {
		case frame.GetChunk() != nil:
			if err := c.copyChunk(ctx, run, frame.GetChunk().GetChunk()); err != nil {
				return nil, err
			}
			c.sequence = frame.GetChunk().GetSequence()
		case frame.GetRewound() != nil:
			c.void()
			c.sequence = frame.GetRewound().GetSequence()
		case frame.GetEnd() != nil:
			c.count(run, frame.GetEnd().GetUsage())
			return endOf(frame.GetEnd()), nil
		case frame.GetFail() != nil:
			return failedRemotely(frame.GetFail().GetError(), frame.GetFail().GetCode()), nil
		}
	}
	return nil, fault.New(fault.Unavailable, "STREAM_CUT", "the stream ended without an end of its run")
}

// copyChunk shows a chunk here, and commits the step here that it commits there.
func (c *Copier) copyChunk(ctx context.Context, run string, chunk *eventv1.Chunk) error {
	if chunk.GetStepDiscarded() != nil {
		c.void()
		return nil
	}
	shown, committed := c.mirror.Add(chunk)
	switch {
	case shown != nil && c.Copied >= c.maxSteps():
		return errTooManySteps
	case c.mirror.TooLarge():
		return errStepTooLarge
	case shown != nil:
		if err := c.run.Show(ctx, c.Step+1, shown); err != nil {
			return local(err)
		}
	}
	if !committed {
		return nil
	}
	committedStep := c.mirror.Commit()
	c.pending = &committedStep
	c.progress.Session = c.session
	c.progress.Run = run
	if committedStep.Waits {
		return nil // until the pause, with the calls
	}
	return c.commitPending(ctx)
}

// count counts the tokens of an ended run there, once.
func (c *Copier) count(run string, u *eventv1.Usage) {
	if run == c.progress.Counted {
		return
	}
	c.progress.Counted = run
	c.run.Count("remote/"+c.Agent.Agent, model.Usage{
		PromptTokens: u.GetPromptTokens(), CompletionTokens: u.GetCompletionTokens(), ReasoningTokens: u.GetReasoningTokens(),
		CachedTokens: u.GetCachedTokens(), TotalTokens: u.GetTotalTokens(),
	})
}

// void drops the step in flight, also for readers.
func (c *Copier) void() {
	if c.mirror.InFlight() {
		c.mirror.Void()
		c.run.Void()
	}
}

// commitPending commits the pending step, if any, without a suspension.
func (c *Copier) commitPending(ctx context.Context) error {
	if c.pending == nil {
		return nil
	}
	return c.commit(ctx, loop.Commit{})
}

// commit commits a step here: the pending step, the progress, and the answers sent.
func (c *Copier) commit(ctx context.Context, commit loop.Commit) error {
	var copied Step
	if c.pending != nil {
		copied = *c.pending
		c.progress.Step = copied.Number
	}
	copied.Results = slices.Concat(c.results, copied.Results)
	commit.Step = c.Step + 1
	commit.Messages = append(Messages(c.Run, commit.Step, copied), commit.Messages...)
	commit.Consumed = c.consumed
	commit.Decisions = map[string]loop.Decision{}
	for _, call := range c.Calls {
		if d := call.GetAnswer().GetApproval(); d != nil {
			decision := loop.Decision{ApprovalID: call.GetApprovalId(), Approved: d.GetApproved(), Reason: d.GetReason()}
			commit.Decisions[call.GetToolCallId()] = decision
		}
	}
	for _, r := range c.results {
		end := step.ToolEnd(&eventv1.ToolResultPart{
			ToolCallId: r.CallID, ToolName: r.Name, Result: string(r.Result), Success: r.Success, Error: r.Error,
		})
		if err := c.run.Show(ctx, commit.Step, end); err != nil {
			return local(err)
		}
	}
	c.progress.Below = slices.DeleteFunc(c.progress.Below, func(id string) bool {
		return slices.ContainsFunc(c.consumed, func(answered loop.Consumed) bool { return answered.CallID == id })
	})
	text, err := json.Marshal(c.progress)
	if err != nil {
		return local(err)
	}
	if err := c.run.Commit(ctx, commit, text); err != nil {
		return local(err)
	}
	c.pending = nil
	c.consumed = nil
	c.results = nil
	c.Step++
	c.Copied++
	return nil
}

// maxSteps returns how many steps of a run are copied. The other Holdfast has its own limit, which is the usual one.
func (c *Copier) maxSteps() int { return cmp.Or(c.MaxSteps, agent.DefaultRemoteMaxSteps) }

// afterPause waits until the remote session continues with another run, and returns that. If it waits for a client, the
// run here waits for the client too. Results by callback are posted to the other Holdfast, and nobody here may give them.
func (c *Copier) afterPause(ctx, interruptible context.Context, run string) (next string, err error) {
	deadline := c.Now().Add(c.Patience)
	for {
		call, cancel := context.WithTimeout(interruptible, c.CallTimeout)
		found, err := c.client.Get(call, c.session)
		cancel()
		if err == nil {
			deadline = c.Now().Add(c.Patience)
		}
		waiting := slices.DeleteFunc(found.GetPendingCalls(), isForCallback)
		switch {
		case err != nil && (isRefusal(err) || c.Now().After(deadline)):
			return "", err
		case err != nil:
		case c.pending != nil:
			own := slices.DeleteFunc(waiting, func(p *agentv1.PendingCall) bool { return p.GetSessionId() != c.session })
			if found.GetRunId() == run && len(own) > 0 {
				return "", c.suspend(ctx, own)
			}
			if err := c.commitPending(ctx); err != nil { // its calls are answered already
				return "", err
			}
			continue
		case found.GetRunId() != run:
			return c.runAfter(interruptible, run, found.GetRunId())
		case len(waiting) > 0:
			return "", c.suspend(ctx, waiting)
		case found.GetStatus() == "interrupted":
			return "", c.finish(ctx, loop.Stop{Kind: loop.StopInterrupt}.Outcome())
		case found.GetStatus() == "failed":
			return "", c.finish(ctx, *failedRemotely(found.GetError(), found.GetErrorCode()))
		}
		if err := retry.Wait(interruptible, pausedInterval); err != nil {
			return "", err
		}
	}
}

func isForCallback(p *agentv1.PendingCall) bool {
	return p.GetKind() == agentv1.CallKind_CALL_KIND_CALLBACK
}

// pausedInterval is the time between two looks at a paused remote session.
const pausedInterval = time.Second

// runAfter returns the run that continues a run there. newest may be a later one: each continuation names the run
// before it.
func (c *Copier) runAfter(ctx context.Context, run, newest string) (string, error) {
	for at := newest; ; {
		previous, err := c.previousRun(ctx, at)
		if err != nil || previous == run || previous == "" {
			return at, err
		}
		at = previous
	}
}

// previousRun returns the run that a run there continues; empty for none.
func (c *Copier) previousRun(ctx context.Context, run string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for frame, err := range c.client.Follow(ctx, &agentv1.StreamRequest{SessionId: c.session, RunId: run}) {
		if err != nil {
			return "", err
		}
		if chunk := frame.GetChunk(); chunk != nil {
			return chunk.GetChunk().GetRunResumed().GetPreviousRunId(), nil
		}
		if frame.GetEnd() != nil || frame.GetFail() != nil {
			break
		}
	}
	return "", nil
}

// endOf returns the end of a run there; nil for a pause.
func endOf(e *agentv1.End) *loop.Outcome {
	var end loop.Outcome
	switch e.GetStatus() {
	case "paused":
		return nil
	case "interrupted":
		end = loop.Stop{Kind: loop.StopInterrupt}.Outcome()
	default:
		end = loop.Outcome{Status: loop.StatusCompleted, FinishReason: model.FinishStop}
		if e.GetOutput() != "" {
			end.Output = json.RawMessage(e.GetOutput())
		}
	}
	return &end
}

func failedRemotely(text, code string) *loop.Outcome {
	return &loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{
		Error: text, Detail: "the remote agent has failed: " + text, Code: code,
	}}
}

// finish ends the run here. After a delivered stop, the end there is its consequence.
func (c *Copier) finish(ctx context.Context, o loop.Outcome) error {
	if c.stopped != nil && o.Status != loop.StatusCompleted {
		o = c.stopped.Outcome()
	}
	return local(c.run.Finish(ctx, o))
}

// failLost ends the run here because the run there cannot be followed.
func (c *Copier) failLost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if isClosed(c.Draining) {
		return ErrDraining
	}
	if stop, isNew := c.run.TakeStop(); isNew && c.deliver(ctx, stop) != nil {
		return c.finishUndelivered(ctx)
	}
	if c.stopped != nil {
		return c.run.Finish(ctx, c.stopped.Outcome())
	}
	cause := "status_unreachable"
	switch reason := fault.ReasonOf(err); {
	case reason == "SESSION_NOT_FOUND", reason == "RUN_NOT_FOUND":
		cause = "not_found"
	case isRefusal(err):
		cause = "refused:" + reason
	}
	return c.run.Finish(ctx, loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &loop.Failure{
		Error: "The remote agent was lost.", Detail: fmt.Sprintf("%s: %v", cause, err), Code: codeLost,
	}})
}

// endExcess stops the remote agent because of a limit here, and fails the run.
func (c *Copier) endExcess(ctx context.Context, cause error) error {
	c.Abort(ctx, cause.Error())
	if errors.Is(cause, errTooManySteps) {
		return c.run.Finish(ctx, loop.MaxStepsOutcome(c.maxSteps()))
	}
	return c.failLost(ctx, cause)
}

// isRefusal reports whether the other Holdfast has answered, and would answer the same again.
func isRefusal(err error) bool {
	f, ok := fault.From(err)
	return ok && f.Kind != fault.Unavailable && f.Kind != fault.Exhausted && f.Kind != fault.Internal
}

// isClosed reports whether the channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
