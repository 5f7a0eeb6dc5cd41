package worker

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// maxEmitted bounds what the tools and hooks of a step emit together, in bytes: it is kept
// until the step is committed, and stored with it.
const maxEmitted = 4 << 20

// emitted counts what the tools and hooks of a step emit. Safe for concurrent use.
type emitted struct {
	mu    sync.Mutex
	bytes int
}

// admit gives TooLarge (EVENTS_TOO_LARGE) where the step has emitted too much.
func (e *emitted) admit(size int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bytes+size > maxEmitted {
		return fault.New(fault.TooLarge, "EVENTS_TOO_LARGE",
			"the step has emitted events of %d bytes, and this one has %d; the limit for all of a step is %d: emit less, or keep it elsewhere and emit where", e.bytes, size, maxEmitted)
	}
	e.bytes += size
	return nil
}

func (e *emitted) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes = 0
}

func newPublisher(w *Worker, claim *statev1.Claim, runner *runner) *publisher.Publisher {
	session, run := claim.GetSession(), claim.GetRun()
	root := session.GetRootSessionId()
	if root == "" {
		root = session.GetSessionId()
	}
	return publisher.New(w.peers.Stream, publisher.Claim{
		Stream: &streamv2.StreamRef{Tenant: session.GetTenant(), RootSessionId: root, SessionId: session.GetSessionId()},
		Epoch:  claim.GetEpoch(), RunID: run.GetRunId(), Step: session.GetStepCount() + 1,
		Position: session.GetPosition(), Claims: session.GetClaims(), TakenOver: run.GetAttempt() > 1,
	}, publisher.Config{
		MaxDeltaBytes: w.config.MaxDeltaBytes, MaxQueuedBytes: w.config.MaxQueuedBytes,
		Patience: w.config.StreamPatience, CallTimeout: w.config.CallTimeout,
	}, runner.log)
}

// stamp gives the event of the step its base.
func (r *runner) stamp(step int32, chunk *eventv1.Chunk) *eventv1.Chunk {
	chunk.AgentId = r.started.GetRunId()
	chunk.AgentType = r.started.GetAgentType()
	chunk.Timestamp = r.worker.peers.Now().UnixMilli()
	chunk.Step = step
	return chunk
}

// show shows readers chunks of the step, which stay together. It may wait for the stream
// tier, until ctx ends; the chunks are shown all the same.
func (r *runner) show(ctx context.Context, step int32, chunks ...*eventv1.Chunk) error {
	for _, chunk := range chunks {
		r.stamp(step, chunk)
	}
	return r.publisher.Show(ctx, chunks...)
}

// emit shows what code of the agent emits in the step. TooLarge (EVENTS_TOO_LARGE) where
// the step has emitted too much.
func (r *runner) emit(ctx context.Context, step int32, event tool.Event) error {
	if err := r.emitted.admit(len(event.Name) + len(event.ID) + len(event.Data)); err != nil {
		return err
	}
	return r.show(ctx, step, custom(event))
}

// open shows how the run begins, once, where no step of it is committed yet.
func (r *runner) open(ctx context.Context) error {
	if r.opened {
		return nil
	}
	r.opened = true
	switch {
	case r.started.GetStepCount() > 0:
		return nil
	case r.goesOn():
		return r.show(ctx, r.step, runResumed(r.previous, r.started.GetTurn(), r.started.GetMessageId()))
	}
	return r.show(ctx, r.step, runStarted(r.started.GetTurn(), r.started.GetMessageId()))
}

// goesOn reports whether the run goes on where another one has stopped.
func (r *runner) goesOn() bool {
	entry := r.started.GetEntry()
	return entry == statev1.RunEntry_RUN_ENTRY_RESUME || entry == statev1.RunEntry_RUN_ENTRY_CONTINUATION
}

// showPlan shows the step in flight up to its plan. The plan of a step that answers calls
// of an earlier one was shown by that.
func (r *runner) showPlan(ctx context.Context, plan agent.Message) error {
	if r.drains(plan) {
		return nil
	}
	r.once.start(plan.Calls())
	chunks := planChunks(plan, r.fate())
	for _, chunk := range chunks {
		r.reply.add(chunk)
	}
	return r.show(ctx, r.step+1, chunks...)
}

// takeBack voids what readers have seen of the step in flight.
func (r *runner) takeBack() {
	r.publisher.Retry(publisher.ReasonStepRetried)
	r.once.retry()
	r.emitted.reset()
	r.reply = shownReply{}
}

// end is how the run has ended, for readers.
func (r *runner) end(o loop.Outcome) publisher.Ended {
	return publisher.Ended{Chunk: r.stamp(r.step, lastChunk(o, r.usage)), Terminal: terminal(r.ref.GetRunId(), o, r.usage)}
}

// flush gives the stream tier a short time to take what was shown.
func (r *runner) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	_ = r.publisher.Flush(ctx) // what did not get there is read from the state service
}
