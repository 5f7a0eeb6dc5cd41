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
	"github.com/holdfast-run/holdfast/pkg/step"
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
func (v *view) stamp(number int32, chunk *eventv1.Chunk) *eventv1.Chunk {
	chunk.AgentId = v.claimed.run.GetRunId()
	chunk.AgentType = v.claimed.run.GetAgentType()
	chunk.Timestamp = v.now().UnixMilli()
	chunk.Step = number
	return chunk
}

// show shows chunks of the step together.
func (v *view) show(ctx context.Context, number int32, chunks ...*eventv1.Chunk) error {
	if len(chunks) == 0 {
		return nil
	}
	for _, chunk := range chunks {
		v.stamp(number, chunk)
	}
	return v.publisher.Show(ctx, chunks...)
}

// emitter returns a function for events of tools and hooks of the step. TooLarge (EVENTS_TOO_LARGE) if
// the step emits too much.
func (v *view) emitter(number int32) tool.Emit {
	return func(ctx context.Context, event tool.Event) error {
		if err := v.emitted.admit(len(event.Name) + len(event.ID) + len(event.Data)); err != nil {
			return err
		}
		return v.show(ctx, number, custom(event))
	}
}

// showBegin shows the begin of the run, once, unless a step of the run is committed. step is the last one of the
// session. The begin has the time of the first claim in the database.
func (v *view) showBegin(ctx context.Context, number int32) error {
	if v.begun {
		return nil
	}
	v.begun = true
	run := v.claimed.run
	if run.GetStepCount() > 0 {
		return nil
	}
	begin := step.RunStarted(run.GetTurn(), run.GetMessageId())
	if v.claimed.continues() {
		begin = step.RunResumed(v.previous, run.GetTurn(), run.GetMessageId())
	}
	v.stamp(number, begin)
	begin.Timestamp = cmp.Or(run.GetStartedAt(), begin.GetTimestamp())
	return v.publisher.Show(ctx, begin)
}

// beginReply shows the start of a reply, and the refusals of the model before it. Readers do not see the text of a
// form, which is JSON.
func (v *view) beginReply(ctx context.Context, number int32, form bool, notices []loop.Notice) error {
	v.reply = shownReply{begun: true, form: form, content: len(notices) > 0}
	chunks := []*eventv1.Chunk{step.Started()}
	for _, n := range notices {
		chunks = append(chunks, notice(n))
	}
	return v.show(ctx, number, chunks...)
}

// extendReply shows events of the reply.
func (v *view) extendReply(ctx context.Context, number int32, reply *loop.Reply, events []model.Event) error {
	for _, event := range events {
		if _, isText := event.(model.TextDelta); isText && v.reply.form {
			continue
		}
		chunk := replyChunk(event, reply)
		if chunk == nil {
			continue
		}
		v.reply.add(chunk)
		if err := v.show(ctx, number, chunk); err != nil {
			return err
		}
	}
	return nil
}

// starts returns the starts of calls that readers have not seen. A refused call gets none: a start tells a client that it
// may run the call.
func (v *view) starts(fates callFates, calls ...*eventv1.ToolCallPart) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for _, call := range calls {
		if id := call.GetToolCallId(); !fates.IsRefused(id) && v.started.add(id) {
			chunks = append(chunks, step.ToolStart(call, fates.AwaitsClient(id)))
		}
	}
	return chunks
}

// showPlan shows the step up to its recorded plan. It does not show the plan of an answer step, whose calls belong to an
// earlier step.
func (v *view) showPlan(ctx context.Context, number int32, plan agent.Message, fates callFates) error {
	if v.claimed.isAnswering(int(number), plan.ID) {
		return nil
	}
	return v.show(ctx, number, v.beginPlan(fromMessage(plan, "", 0, nil), fates)...)
}

// beginPlan returns the chunks of a step up to its plan, which readers have then seen.
func (v *view) beginPlan(plan *eventv1.Message, fates callFates) []*eventv1.Chunk {
	chunks := []*eventv1.Chunk{step.Started()}
	for _, n := range fates.Notices() {
		chunks = append(chunks, notice(n))
	}
	chunks = step.AppendReply(chunks, plan.GetParts()...)
	for _, chunk := range chunks {
		v.reply.add(chunk)
	}
	return append(chunks, v.starts(fates, toolCalls(plan)...)...)
}

// showDecision shows a human's decision about a call, once; nothing for nil.
func (v *view) showDecision(ctx context.Context, number int32, callID string, d *loop.Decision) error {
	if d == nil || !v.decided.add(callID) {
		return nil
	}
	return v.show(ctx, number, step.Decision(callID, fromDecision(d)))
}

// showEnd shows the writes and the end of a call, once. A call without a result has no end.
func (v *view) showEnd(ctx context.Context, number int32, e loop.Ended) error {
	if !v.ended.add(e.Result.CallID) {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	writes, err := v.write(e.Ops)
	if err != nil {
		return err
	}
	if e.Awaits != nil {
		return v.show(ctx, number, writes...)
	}
	return v.show(ctx, number, append(writes, v.subAgents.ends(fromResult(e.Result))...)...)
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
	return []*eventv1.Chunk{step.StatePatch(clean(string(patch)))}, nil
}

// showState shows the changes to the custom state at the end of the step.
func (v *view) showState(ctx context.Context, number int32, w *stateWrites) error {
	chunks, err := v.stateChunks(w)
	if err != nil {
		return err
	}
	return v.show(ctx, number, chunks...)
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

// showRest shows the rest of a step, as its request has it, together: messages, custom state, questions to a human,
// sub-agents, and the output. If readers have seen another reply, the commit sends them to the state service.
func (v *view) showRest(ctx context.Context, request *statev1.CommitStepRequest, e loop.Commit, fates callFates, w *stateWrites) error {
	var rest []*eventv1.Chunk
	for _, m := range request.GetMessages() {
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT && !v.claimed.isAnswering(e.Step, m.GetId()) {
			if !v.reply.begun {
				rest = append(rest, v.beginPlan(m, fates)...)
			} else if !v.reply.matches(m) {
				v.publisher.MarkDifferent()
			}
		}
		rest = append(rest, v.starts(fates, toolCalls(m)...)...)
		for _, p := range m.GetParts() {
			result := p.GetToolResult()
			if result == nil {
				continue
			}
			id := result.GetToolCallId()
			if decision := result.GetApproval(); decision != nil && v.decided.add(id) {
				rest = append(rest, step.Decision(id, decision))
			}
			if !v.ended.add(id) {
				continue
			}
			writes, err := v.write(w.calls[id]) // of a result that an earlier owner has recorded
			if err != nil {
				return err
			}
			rest = append(rest, slices.Concat(writes, v.subAgents.ends(result))...)
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
			rest = append(rest, step.SubagentStart(&eventv1.SubagentStart{SubSessionId: c.SessionID, SubAgentType: c.SubAgent, ToolCallId: c.ID}))
		default:
			rest = append(rest, step.ApprovalRequest(&eventv1.ToolApprovalRequest{
				ToolCallId: c.ID, ToolName: clean(c.Name), ApprovalId: c.ApprovalID, Input: clean(string(c.Arguments)),
			}))
		}
	}
	if e.Outcome != nil && e.Outcome.Structured {
		rest = append(rest, step.Output(request.GetOutcome().GetOutput()))
	}
	return v.show(ctx, request.GetStep(), rest...)
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
func (v *view) showCommitted(number int32, stored *statev1.CommitStepResponse, o *loop.Outcome, usage *eventv1.Usage) {
	v.reset()
	committed := v.stamp(number, step.Committed(stored.GetCheckpointId()))
	committed.Timestamp = cmp.Or(stored.GetCommittedAt(), committed.GetTimestamp())
	var end *publisher.Ended
	if o != nil {
		ended := v.runEnd(number, *o, usage, committed.GetTimestamp())
		end = &ended
	}
	v.publisher.Commit(committed, end)
}

// showFinished shows the end of the run outside of a step, after the given step. It voids the step in
// flight for readers. at is the time in the database; 0 is unknown.
func (v *view) showFinished(number int32, o loop.Outcome, usage *eventv1.Usage, at int64) {
	v.publisher.End(v.runEnd(number, o, usage, at))
}

func (v *view) runEnd(number int32, o loop.Outcome, usage *eventv1.Usage, at int64) publisher.Ended {
	chunk := v.stamp(number, lastChunk(o, usage))
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
func (s *shownReply) matches(message *eventv1.Message) bool {
	var text, thinking maphash.Hash
	text.SetSeed(s.text.Seed())
	thinking.SetSeed(s.thinking.Seed())
	for _, p := range message.GetParts() {
		_, _ = text.WriteString(p.GetText().GetText())
		_, _ = thinking.WriteString(p.GetReasoning().GetText())
	}
	return (s.form || text.Sum64() == s.text.Sum64()) && thinking.Sum64() == s.thinking.Sum64() && s.calls == len(toolCalls(message))
}

// toolCalls returns the calls of a message.
func toolCalls(m *eventv1.Message) []*eventv1.ToolCallPart {
	var calls []*eventv1.ToolCallPart
	for _, p := range m.GetParts() {
		if call := p.GetToolCall(); call != nil {
			calls = append(calls, call)
		}
	}
	return calls
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
