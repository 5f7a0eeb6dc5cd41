package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// maxNoted is how far deltas are merged in what a tale keeps of the step in
// flight: large enough for few chunks, small enough to be copied for each delta.
const maxNoted = 4 << 10

// maxEmitted bounds what the tools and hooks of a step emit together, in bytes: the tale keeps
// it until the step stands.
const maxEmitted = 4 << 20

// tale is what readers are to know of a run: what has to stand in its session's
// stream behind base, in this order.
//
//	head     the chunk that ends the safe step: step_committed, or run_started before the first
//	untold   the committed steps after the safe one
//	current  what was told since the last commit
//
// While it is live, whatever is told goes to the writer as well. When the writer
// is lossy it is not, and the mender (mend.go) writes the tale again. The fields
// are guarded by mu where nothing else is said.
type tale struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when one of the next five changes
	live    bool          // what is told is written
	away    bool          // the stream tier does not answer: nobody waits for it
	pinned  bool          // a step is being committed as one that stands: it must not be taken back
	mends   int           // how often the tale has ceased to be live
	given   error         // why the mender has given up

	first    int32  // the last step before the run; never changes
	step     int32  // the last committed step of the session; changed by the runner's goroutine only
	safe     int32  // the last step of which nothing was lost on the way to the stream
	base     int64  // a sequence of the stream below everything after the safe step, but for its head
	messages int64  // of the session, up to step
	previous string // the run that this one goes on from, as far as it is known; never changes
	head     *eventv1.Chunk
	untold   []untold
	left     []loop.OpenCall // what the run's last step leaves to somebody outside; nil before that is committed
	current  []*eventv1.Chunk
	emitted  int // bytes of what was emitted, in current
}

// untold is a committed step of which readers may have to be told.
type untold struct {
	step     int32
	messages []agent.Message
	// drain says that the step has answered calls of an earlier one, decisions which of
	// their approvals were decided, and how.
	drain     bool
	decisions map[string]loop.Decision
	// aside is what was told and does not stand in the messages, whole chunks; nobody
	// knows it any more where the step is from the conversation.
	aside        []*eventv1.Chunk
	checkpointID string // empty: nobody knows it any more
}

// chunks are those of the whole step, which leaves calls open, but for the head that it
// becomes. Those of aside are stamped.
func (u untold) chunks(left []loop.OpenCall) []*eventv1.Chunk {
	var plan agent.Message
	var results []*eventv1.Chunk
	refused := map[string]bool{}
	for _, m := range u.messages {
		if m.Role == agent.RoleAssistant {
			plan = m
		}
		for _, result := range m.Results() {
			refused[result.CallID] = loop.Refused(plan, result)
			if d, ok := u.decisions[result.CallID]; ok {
				results = append(results, approvalResponse(result.CallID, d))
			}
			results = append(results, toolEnd(result))
		}
	}
	var chunks []*eventv1.Chunk
	if !u.drain {
		chunks = planChunks(plan, fate{
			awaitsClient: func(callID string) bool {
				return slices.ContainsFunc(left, func(c loop.OpenCall) bool { return c.ID == callID && !c.Approval })
			},
			refused: func(callID string) bool { return refused[callID] },
		})
	}
	for _, chunk := range u.aside {
		chunks = append(chunks, proto.CloneOf(chunk))
	}
	chunks = append(chunks, results...)
	for _, c := range left {
		if c.Approval {
			chunks = append(chunks, approvalRequest(c))
		}
	}
	return chunks
}

// beside reports whether the chunk tells something that is in no message.
func beside(chunk *eventv1.Chunk) bool {
	switch chunk.GetEvent().(type) {
	case *eventv1.Chunk_StatePatch, *eventv1.Chunk_Custom, *eventv1.Chunk_Output:
		return true
	}
	return false
}

// announce wakes everybody who waits for a change. The caller holds mu.
func (t *tale) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// keep adds a chunk to the step in flight. The caller holds mu.
func (t *tale) keep(chunk *eventv1.Chunk) {
	if n := len(t.current); n > 0 && writer.Merge(t.current[n-1], chunk, maxNoted) {
		return
	}
	t.current = append(t.current, proto.CloneOf(chunk))
}

// stamp gives the event of the step its base.
func (r *runner) stamp(step int32, chunk *eventv1.Chunk) *eventv1.Chunk {
	chunk.AgentId = r.started.GetRunId()
	chunk.AgentType = r.started.GetAgentType()
	chunk.Timestamp = r.worker.peers.Now().UnixMilli()
	chunk.Step = step
	return chunk
}

// tell tells chunks of the step, which stand together. It may wait for the stream, until
// ctx ends: where a stop has ended it, the mender tells what was not written.
func (r *runner) tell(ctx context.Context, step int32, chunks ...*eventv1.Chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, chunk := range chunks {
		r.keep(r.stamp(step, chunk))
		if !r.live {
			if err := r.writer.Err(); err != nil {
				return err
			}
			continue
		}
		switch err := r.writer.Write(ctx, chunk); {
		case err != nil && cutByStop(ctx):
			r.lose()
		case err != nil:
			return err
		}
	}
	return nil
}

// emit tells what code of the agent emits in the step. TooLarge (EVENTS_TOO_LARGE) where the
// step has emitted too much.
func (r *runner) emit(ctx context.Context, step int32, event tool.Event) error {
	if err := r.admit(event); err != nil {
		return err
	}
	return r.tell(ctx, step, custom(event))
}

// admit counts what is emitted.
func (t *tale) admit(event tool.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := len(event.Name) + len(event.ID) + len(event.Data)
	if t.emitted+size > maxEmitted {
		return fault.New(fault.TooLarge, "EVENTS_TOO_LARGE",
			"the step has emitted events of %d bytes, and this one has %d; the limit for all of a step is %d: emit less, or keep it elsewhere and emit where", t.emitted, size, maxEmitted)
	}
	t.emitted += size
	return nil
}

// note keeps the chunks of a step as told, without a word to the writer.
func (r *runner) note(step int32, chunks []*eventv1.Chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, chunk := range chunks {
		r.keep(r.stamp(step, chunk))
	}
}

// retell takes back what was told of the step in flight where discard says so, with other
// chunks in its place, and has the mender write the rest again.
func (r *runner) retell(discard bool, instead ...*eventv1.Chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if discard {
		r.current = slices.DeleteFunc(r.current, func(chunk *eventv1.Chunk) bool { return chunk.GetStep() > r.step })
		r.emitted = 0
	}
	for _, chunk := range instead {
		r.keep(r.stamp(r.step+1, chunk))
	}
	if r.live { // else the mender is at it, and will see what is left
		r.lose()
	}
}

// lose has the mender write the tale again. The caller holds mu; the tale is live.
func (r *runner) lose() {
	r.live = false
	r.mends++
	r.writer.Lose()
	r.announce()
}

// stand waits until everything that was told stands in the stream, and gives the
// last sequence. It answers that it does not when the stream tier is away, unless
// it is to wait for ever. then, where it is not nil, is called under mu at a
// moment when everything stands.
func (r *runner) stand(ctx context.Context, forever bool, then func()) (sequence int64, whole bool, err error) {
	for {
		r.mu.Lock()
		live, away, mends, given, changed := r.live, r.away, r.mends, r.given, r.changed
		r.mu.Unlock()
		if sequence, err = r.writer.Flush(ctx); err != nil {
			return 0, false, cmp.Or(context.Cause(ctx), err)
		}
		if live {
			r.mu.Lock()
			if r.live && r.mends == mends && !r.writer.Lossy() {
				if then != nil {
					then()
				}
				r.mu.Unlock()
				return sequence, true, nil
			}
			r.mu.Unlock()
		}
		switch {
		case given != nil && (forever || !errors.Is(given, writer.ErrBroken)):
			return 0, false, given
		case away && !forever:
			return 0, false, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, false, context.Cause(ctx)
		}
	}
}

// pin keeps the mender from taking back what stands. The caller holds mu.
func (t *tale) pin() { t.pinned = true }

// unpin lets the mender go on.
func (t *tale) unpin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pinned {
		t.pinned = false
		t.announce()
	}
}

// place gives the last safe step and the sequence that it stands below.
func (t *tale) place() (step int32, sequence int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.safe, t.base
}

// advance takes a committed step, which leaves calls open, into the tale and tells that it
// is. whole says that it stands up to the sequence, and was pinned when that was found.
func (r *runner) advance(ctx context.Context, u untold, left []loop.OpenCall, messages int64, whole bool, sequence int64) error {
	head := r.stamp(u.step, stepCommitted(u.checkpointID))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = left
	if whole {
		r.safe, r.base, r.head, r.untold = u.step, max(r.base, sequence), head, nil
	} else {
		u.aside = slices.DeleteFunc(r.current, func(chunk *eventv1.Chunk) bool { return !beside(chunk) })
		r.untold = append(r.untold, u)
	}
	r.step, r.messages, r.current, r.emitted = u.step, messages, nil, 0
	if !r.live {
		return r.writer.Err()
	}
	err := r.writer.Write(ctx, proto.CloneOf(head))
	if err != nil && cutByStop(ctx) && r.writer.Err() == nil {
		r.lose()
		return nil
	}
	return err
}
