package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// messagesPage is how many messages are asked for at once.
const messagesPage = 200

// start gathers what the planner has to know. The claim's messages and journal are let
// go: a run that waits on a model for long holds the conversation once.
func (r *runner) start(ctx context.Context) (loop.Start, error) {
	transcript, begin, err := r.transcript(ctx)
	if err != nil {
		return loop.Start{}, err
	}
	state, err := r.begunState()
	if err != nil {
		return loop.Start{}, err
	}
	start := loop.Start{
		Run:        r.named(),
		Agent:      r.agent.Agent,
		Transcript: transcript, Begin: begin, State: state, Now: r.writes.merged,
		Turn: int(r.started.GetTurn()), SessionSteps: int(r.session.GetStepCount()),
		Calls:  toAsked(r.claim.GetCalls()),
		Apart:  func(what string, f func() any) (any, error) { return r.apart(ctx, what, f) },
		Jitter: r.worker.peers.Jitter,
	}
	start.Journal, err = r.journal()
	r.claim.Messages, r.claim.Journal = nil, nil
	return start, err
}

// journal is what a former owner has recorded for the step in flight; nil where that is
// no plan.
func (r *runner) journal() (*loop.Journal, error) {
	found := r.claim.GetJournal()
	for _, entry := range found.GetUsage() {
		r.count(entry.GetTokens())
	}
	if found.GetPlan() == nil {
		return nil, nil
	}
	if found.GetStep() != r.session.GetStepCount()+1 {
		return nil, fmt.Errorf("the journal is of step %d, but %d steps are committed", found.GetStep(), r.session.GetStepCount())
	}
	plan, err := toMessage(found.GetPlan())
	if err != nil {
		return nil, err
	}
	journal := &loop.Journal{Plan: plan}
	for _, result := range found.GetResults() {
		ops, err := toOps(result.GetOps())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(result.GetUsage(), func(u *statev1.UsageEntry) bool { return u.GetTool() != nil }) {
			r.once.first(announced, result.GetResult().GetToolCallId()) // the tool has run, and the hooks around it
		}
		journal.Results = append(journal.Results, loop.Recorded{Result: toResult(result.GetResult()), Ops: ops})
	}
	r.writes.found = journal
	if r.writes.asked, err = toOps(found.GetOps()); err != nil {
		return nil, err
	}
	r.writes.planned = true
	r.kept.begin(plan, journal.Results...)
	return journal, nil
}

// named is the run as the planner knows it.
func (r *runner) named() loop.Run {
	return loop.Run{Tenant: r.ref.GetTenant(), SessionID: r.ref.GetSessionId(), RunID: r.ref.GetRunId()}
}

// begunState is the custom state that the run begins with. Where no step has led to it, also
// since all were taken back, the defaults of its schema are in it, which the run's first step
// writes. The first step of a branch is one of the session that it was made from.
func (r *runner) begunState() (agent.State, error) {
	state, err := agent.ParseState([]byte(r.session.GetCustomState()))
	if err != nil {
		return nil, err
	}
	r.session.CustomState = ""
	r.writes.kept, r.writes.state, r.writes.shown = state, state, state
	if r.session.GetCheckpointId() == "" && !r.branched && r.agent.StateSchema != nil {
		whole, err := withDefaults(r.agent.StateSchema, state)
		if err != nil {
			return nil, fmt.Errorf("fill the defaults of the custom state: %w", err)
		}
		r.writes.state, r.writes.defaulted = whole, true
	}
	return r.writes.state, nil
}

func withDefaults(stateSchema json.RawMessage, state agent.State) (agent.State, error) {
	schema, err := agent.CompileSchema(stateSchema)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	if text, err = schema.ApplyDefaults(text); err != nil {
		return nil, err
	}
	return agent.ParseState(text)
}

// transcript is the whole conversation: the tail that came with the claim, and
// what stands before it. begin is where the run's own messages begin, or those of the
// first of the runs that it continues.
func (r *runner) transcript(ctx context.Context) (transcript []agent.Message, begin int, err error) {
	tail := r.claim.GetMessages()
	first := r.session.GetMessageCount()
	if len(tail) > 0 {
		first = tail[0].GetOrdinal()
	}
	before, err := r.stored(ctx, first)
	if err != nil {
		return nil, 0, err
	}
	ofStep := func(s *statev1.StoredMessage) bool { return s.GetMessage().GetStep() > 0 }
	r.branched = r.session.GetStepCount() == 0 && (slices.ContainsFunc(before, ofStep) || slices.ContainsFunc(tail, ofStep))
	transcript = make([]agent.Message, 0, r.session.GetMessageCount())
	if transcript, err = appendMessages(transcript, before); err != nil {
		return nil, 0, err
	}
	if transcript, err = appendMessages(transcript, tail); err != nil {
		return nil, 0, err
	}
	begin = int(min(r.started.GetStartMessageCount(), int64(len(transcript))))
	if r.started.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
		return transcript, begin, nil
	}
	if first := r.started.GetTurnMessageCount(); first > 0 {
		return transcript, int(min(first, int64(begin))), nil
	}
	return transcript, beginOfTurn(transcript, begin), nil
}

// beginOfTurn gives the first of the user's messages that stand together before the
// place: a run that is continued was begun by them, unless it was resumed. It is for the
// first run of a session, and for continuations of which the state service does not say
// where their turn began.
func beginOfTurn(transcript []agent.Message, place int) int {
	asks := func(m agent.Message) bool { return m.Role == agent.RoleUser && !m.Hidden }
	for place > 0 && !asks(transcript[place-1]) {
		place--
	}
	for place > 0 && asks(transcript[place-1]) {
		place--
	}
	return place
}

// stored reads the first count messages of the conversation.
func (r *runner) stored(ctx context.Context, count int64) ([]*statev1.StoredMessage, error) {
	var messages []*statev1.StoredMessage
	for int64(len(messages)) < count {
		page, err := call(ctx, r, func(ctx context.Context) (*statev1.ListMessagesResponse, error) {
			return r.worker.peers.Sessions.ListMessages(ctx, &statev1.ListMessagesRequest{
				Tenant: r.ref.GetTenant(), SessionId: r.ref.GetSessionId(), Offset: int64(len(messages)),
				Limit: int32(min(messagesPage, count-int64(len(messages)))),
			})
		})
		if err != nil {
			return nil, fmt.Errorf("read the conversation: %w", err)
		}
		if len(page.GetMessages()) == 0 {
			return nil, fmt.Errorf("the conversation ends at message %d, but %d exist", len(messages), count)
		}
		messages = append(messages, page.GetMessages()...)
	}
	return messages, nil
}

func appendMessages(transcript []agent.Message, stored []*statev1.StoredMessage) ([]agent.Message, error) {
	for _, s := range stored {
		if s.GetOrdinal() != int64(len(transcript)) {
			return nil, fmt.Errorf("message %d stands where message %d should", s.GetOrdinal(), len(transcript))
		}
		m, err := toMessage(s.GetMessage())
		if err != nil {
			return nil, err
		}
		transcript = append(transcript, m)
	}
	return transcript, nil
}

// previousRun is the run that the claimed one goes on from, as far as the claim tells.
// Empty for a run that was started.
func previousRun(claim *statev1.Claim) string {
	run := claim.GetRun()
	if run.GetEntry() != statev1.RunEntry_RUN_ENTRY_RESUME && run.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
		return ""
	}
	messages := claim.GetMessages()
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if id := m.GetMessage().GetRunId(); m.GetOrdinal() < run.GetStartMessageCount() && id != "" && id != run.GetRunId() {
			return id
		}
	}
	for _, c := range claim.GetCalls() {
		if c.GetRunId() != "" {
			return c.GetRunId()
		}
	}
	return ""
}
