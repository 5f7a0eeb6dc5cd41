package worker

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// view shows the run to readers, through the publisher. It tracks the shown part of the step in flight, and
// shows nothing twice. Its methods may wait for the stream tier until their ctx ends, without a loss for
// readers. Their error is publisher.ErrFenced.
//
// Many goroutines may use showDecision, showEnd and the functions of emitter at once. One goroutine uses the
// other methods.
type view struct {
	claimed   claimedRun
	subAgents subAgentCalls
	previous  string // the continued run, if known
	now       func() time.Time
	publisher *publisher.Publisher

	begun      bool         // readers were shown the begin of the run
	reply      shownReply   // of the step in flight
	emitted    emittedBytes // by tools and hooks of the step in flight
	started    idSet        // calls with a start
	ended      idSet        // calls with an end
	questioned idSet        // calls with a question to a human, or with a sub-agent
	decided    idSet        // calls with a human's decision

	mu    sync.Mutex
	state agent.State // custom state as shown to readers
}

// callFates knows how the calls of a reply continue. The planner implements it.
type callFates interface {
	// AwaitsClient reports whether a client has to answer the call.
	AwaitsClient(callID string) bool
	// IsRefused reports whether the runtime refuses the call. A refused call has no start.
	IsRefused(callID string) bool
	// Notices are what the model has refused before the reply.
	Notices() []loop.Notice
}

func newView(claim *statev1.Claim, c Config, p Peers, log *slog.Logger) *view {
	session, run := claim.GetSession(), claim.GetRun()
	root := session.GetRootSessionId()
	if root == "" {
		root = session.GetSessionId()
	}
	v := &view{claimed: newClaimedRun(claim), subAgents: newSubAgentCalls(claim), previous: previousRun(claim), now: p.Now}
	v.publisher = publisher.New(p.Stream, publisher.Claim{
		Stream: &streamv2.StreamRef{Tenant: session.GetTenant(), RootSessionId: root, SessionId: session.GetSessionId()},
		Epoch:  claim.GetEpoch(), Grant: claim.GetGrant(), RunID: run.GetRunId(), Step: session.GetStepCount() + 1,
		Position: session.GetPosition(), Claims: session.GetClaims(), TakenOver: run.GetAttempt() > 1,
	}, publisher.Config{
		MaxDeltaBytes: c.MaxDeltaBytes, MaxQueuedBytes: c.MaxQueuedBytes,
		Patience: c.StreamPatience, CallTimeout: c.CallTimeout,
	}, log)
	return v
}

// stamp sets the common fields of the run's chunks.
func (v *view) stamp(step int32, chunk *eventv1.Chunk) *eventv1.Chunk {
	chunk.AgentId = v.claimed.run.GetRunId()
	chunk.AgentType = v.claimed.run.GetAgentType()
	chunk.Timestamp = v.now().UnixMilli()
	chunk.Step = step
	return chunk
}

// show shows chunks of the step together.
func (v *view) show(ctx context.Context, step int32, chunks ...*eventv1.Chunk) error {
	if len(chunks) == 0 {
		return nil
	}
	for _, chunk := range chunks {
		v.stamp(step, chunk)
	}
	return v.publisher.Show(ctx, chunks...)
}

// emitter returns a function for events of tools and hooks of the step. TooLarge (EVENTS_TOO_LARGE) if
// the step emits too much.
func (v *view) emitter(step int32) tool.Emit {
	return func(ctx context.Context, event tool.Event) error {
		if err := v.emitted.admit(len(event.Name) + len(event.ID) + len(event.Data)); err != nil {
			return err
		}
		return v.show(ctx, step, custom(event))
	}
}

// showBegin shows the begin of the run, once, unless a step of the run is committed. step is the last one of the
// session. The begin has the time of the first claim in the database.
func (v *view) showBegin(ctx context.Context, step int32) error {
	if v.begun {
		return nil
	}
	v.begun = true
	run := v.claimed.run
	if run.GetStepCount() > 0 {
		return nil
	}
	begin := v.stamp(step, runBegin(v.claimed, v.previous))
	begin.Timestamp = cmp.Or(run.GetStartedAt(), begin.GetTimestamp())
	return v.publisher.Show(ctx, begin)
}

// beginReply shows the start of a reply, and the refusals of the model before it. Readers do not see the text of a
// form, which is JSON.
func (v *view) beginReply(ctx context.Context, step int32, form bool, notices []loop.Notice) error {
	v.reply = shownReply{begun: true, form: form, content: len(notices) > 0}
	chunks := []*eventv1.Chunk{stepStarted()}
	for _, n := range notices {
		chunks = append(chunks, notice(n))
	}
	return v.show(ctx, step, chunks...)
}

// extendReply shows events of the reply.
func (v *view) extendReply(ctx context.Context, step int32, reply *loop.Reply, events []model.Event) error {
	for _, event := range events {
		if _, isText := event.(model.TextDelta); isText && v.reply.form {
			continue
		}
		chunk := replyChunk(event, reply)
		if chunk == nil {
			continue
		}
		v.reply.add(chunk)
		if err := v.show(ctx, step, chunk); err != nil {
			return err
		}
	}
	return nil
}

// starts returns the starts of calls that readers have not seen. A refused call gets none: a start tells a client that it
// may run the call.
func (v *view) starts(calls []agent.ToolCall, fates callFates) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for _, call := range calls {
		if !fates.IsRefused(call.ID) && v.started.add(call.ID) {
			chunks = append(chunks, toolStart(call, fates.AwaitsClient(call.ID)))
		}
	}
	return chunks
}

// showPlan shows the step up to its plan. It does not show the plan of a drain, whose calls belong to an earlier
// step.
func (v *view) showPlan(ctx context.Context, step int32, plan agent.Message, fates callFates) error {
	if v.claimed.isDrain(int(step), plan) {
		return nil
	}
	return v.show(ctx, step, v.beginPlan(plan, fates)...)
}

// beginPlan returns the chunks of a step up to its plan, which readers have then seen.
func (v *view) beginPlan(plan agent.Message, fates callFates) []*eventv1.Chunk {
	for _, call := range plan.Calls() {
		v.started.add(call.ID)
	}
	chunks := planChunks(plan, fates)
	for _, chunk := range chunks {
		v.reply.add(chunk)
	}
	return chunks
}

// showDecision shows a human's decision about a call, once; nothing for nil.
func (v *view) showDecision(ctx context.Context, step int32, callID string, d *loop.Decision) error {
	if d == nil || !v.decided.add(callID) {
		return nil
	}
	return v.show(ctx, step, approvalResponse(callID, *d))
}

// showEnd shows the writes and the end of a call, once.
func (v *view) showEnd(ctx context.Context, step int32, e loop.Ended) error {
	if !v.ended.add(e.Result.CallID) {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	writes, err := v.write(e.Ops)
	if err != nil {
		return err
	}
	return v.show(ctx, step, append(writes, v.subAgents.ends(e.Result)...)...)
}

// write returns the chunks of writes to the custom state, which readers then have. With concurrent calls, the caller
// holds mu until they are shown.
func (v *view) write(ops []agent.Op) ([]*eventv1.Chunk, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	patch, err := v.state.Patch(ops)
	if err != nil {
		return nil, err
	}
	v.state = applied(v.state, ops)
	return []*eventv1.Chunk{statePatch(patch)}, nil
}

// showState shows the changes to the custom state at the end of the step.
func (v *view) showState(ctx context.Context, step int32, w *stateWrites) error {
	chunks, err := v.stateChunks(w)
	if err != nil {
		return err
	}
	return v.show(ctx, step, chunks...)
}

// stateChunks returns the chunks of the changes to the custom state at the end of the step, which readers then have.
func (v *view) stateChunks(w *stateWrites) ([]*eventv1.Chunk, error) {
	if !w.changes() && !w.dropped {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.write(agent.Diff(v.state, w.merged()))
}

// showRest shows the rest of a step before its commit, together: the recovered results of an earlier owner, messages,
// custom state, questions to a human, sub-agents, and the output. If readers have seen another reply, the commit sends
// them to the state service.
func (v *view) showRest(ctx context.Context, e loop.Commit, recovered []loop.Recorded, fates callFates, w *stateWrites) error {
	var rest []*eventv1.Chunk
	showResult := func(r agent.ToolResult, ops []agent.Op) error {
		if d, ok := e.Decisions[r.CallID]; ok && v.decided.add(r.CallID) {
			rest = append(rest, approvalResponse(r.CallID, d))
		}
		if !v.ended.add(r.CallID) {
			return nil
		}
		writes, err := v.write(ops)
		rest = append(rest, slices.Concat(writes, v.subAgents.ends(r))...)
		return err
	}
	for _, r := range recovered {
		if err := showResult(r.Result, r.Ops); err != nil {
			return err
		}
	}
	for _, m := range e.Messages {
		if m.Role == agent.RoleAssistant && !v.claimed.isDrain(e.Step, m) {
			if !v.reply.begun {
				rest = append(rest, v.beginPlan(m, fates)...)
			} else if !v.reply.matches(m) {
				v.publisher.MarkDifferent()
			}
		}
		rest = append(rest, v.starts(m.Calls(), fates)...)
		for _, r := range m.Results() {
			if err := showResult(r, nil); err != nil {
				return err
			}
		}
	}
	state, err := v.stateChunks(w)
	if err != nil {
		return err
	}
	rest = append(rest, state...)
	for _, c := range e.Suspend {
		switch {
		case c.SubAgent == "" && !c.Approval || !v.questioned.add(c.ID):
		case c.SubAgent != "":
			rest = append(rest, subagentStart(c))
		default:
			rest = append(rest, approvalRequest(c))
		}
	}
	if e.Outcome != nil && e.Outcome.Structured {
		rest = append(rest, output(*e.Outcome))
	}
	return v.show(ctx, int32(e.Step), rest...)
}

// voidStep voids the step in flight for readers. state is the custom state before the step.
func (v *view) voidStep(state agent.State) {
	v.publisher.Retry(publisher.ReasonStepRetried)
	v.reset()
	v.setState(state)
}

// setState sets the custom state as shown to readers.
func (v *view) setState(state agent.State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state = state
}

// reset clears the shown part of the step in flight.
func (v *view) reset() {
	v.started.reset()
	v.ended.reset()
	v.questioned.reset()
	v.decided.reset()
	v.emitted.reset()
	v.reply = shownReply{}
}

// showCommitted shows the commit of the step, and the end of the run if it has ended. Both have the time of the commit in
// the database; 0 is unknown.
func (v *view) showCommitted(step int32, stored *statev1.CommitStepResponse, o *loop.Outcome, usage *eventv1.Usage) {
	v.reset()
	committed := v.stamp(step, stepCommitted(stored.GetCheckpointId()))
	committed.Timestamp = cmp.Or(stored.GetCommittedAt(), committed.GetTimestamp())
	var end *publisher.Ended
	if o != nil {
		ended := v.runEnd(step, *o, usage, committed.GetTimestamp())
		end = &ended
	}
	v.publisher.Commit(committed, end)
}

// showFinished shows the end of the run outside of a step, after the given step. It voids the step in
// flight for readers. at is the time in the database; 0 is unknown.
func (v *view) showFinished(step int32, o loop.Outcome, usage *eventv1.Usage, at int64) {
	v.publisher.End(v.runEnd(step, o, usage, at))
}

func (v *view) runEnd(step int32, o loop.Outcome, usage *eventv1.Usage, at int64) publisher.Ended {
	chunk := v.stamp(step, lastChunk(o, usage))
	chunk.Timestamp = cmp.Or(at, chunk.GetTimestamp())
	return publisher.Ended{Chunk: chunk, Terminal: terminal(v.claimed.run.GetRunId(), o, usage)}
}

// maxEmitted bounds the bytes emitted by the tools and hooks of a step. They stay in memory until the commit
// stores them.
const maxEmitted = 4 << 20

// emittedBytes counts the bytes emitted by the tools and hooks of a step. Safe for concurrent use.
type emittedBytes struct {
	mu    sync.Mutex
	bytes int
}

// admit returns TooLarge (EVENTS_TOO_LARGE) if the step emits too much.
func (e *emittedBytes) admit(size int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bytes+size > maxEmitted {
		return fault.New(fault.TooLarge, "EVENTS_TOO_LARGE",
			"the step has emitted events of %d bytes, and this one has %d; the limit is %d for a step: emit less, "+
				"or store the data elsewhere and emit a reference to it", e.bytes, size, maxEmitted)
	}
	e.bytes += size
	return nil
}

func (e *emittedBytes) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes = 0
}

// shownReply is the shown part of the reply in the step in flight.
type shownReply struct {
	begun    bool // readers have seen step_started
	form     bool // the reply is JSON; readers do not see its text
	content  bool // readers have seen a part of the reply, or a notice
	text     maphash.Hash
	thinking maphash.Hash
	calls    int
}

// add adds a chunk shown to readers.
func (s *shownReply) add(chunk *eventv1.Chunk) {
	s.content = s.content || chunk.GetStepStarted() == nil
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_StepStarted:
		s.begun = true
	case *eventv1.Chunk_TextDelta:
		_, _ = s.text.WriteString(e.TextDelta.GetDelta()) // never fails
	case *eventv1.Chunk_Thinking:
		_, _ = s.thinking.WriteString(e.Thinking.GetContent())
	case *eventv1.Chunk_ToolArgStreamStart:
		s.calls++
	}
}

// matches reports whether readers have seen the reply as the message has it. The message has less if the reply
// was cut within the arguments of a call.
func (s *shownReply) matches(message agent.Message) bool {
	var text, thinking maphash.Hash
	text.SetSeed(s.text.Seed())
	thinking.SetSeed(s.thinking.Seed())
	for _, p := range message.Parts {
		switch part := p.(type) {
		case agent.Text:
			_, _ = text.WriteString(clean(part.Text))
		case agent.Reasoning:
			_, _ = thinking.WriteString(clean(part.Text))
		}
	}
	return (s.form || text.Sum64() == s.text.Sum64()) && thinking.Sum64() == s.thinking.Sum64() && s.calls == len(message.Calls())
}

// idSet is a set of ids. The zero value is empty. Safe for concurrent use.
type idSet struct {
	mu  sync.Mutex
	ids map[string]bool
}

// add reports whether the id is new.
func (o *idSet) add(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids[id] {
		return false
	}
	if o.ids == nil {
		o.ids = map[string]bool{}
	}
	o.ids[id] = true
	return true
}

func (o *idSet) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = nil
}
