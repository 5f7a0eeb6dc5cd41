package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// prepare collects the planner's input. It drops the messages and the journal of the claim, so that a run
// waiting for a model holds the conversation only once.
func (r *runner) prepare(ctx context.Context) (loop.Start, error) {
	stored, err := r.loadConversation(ctx)
	if err != nil {
		return loop.Start{}, err
	}
	transcript, err := r.toTranscript(stored)
	if err != nil {
		return loop.Start{}, err
	}
	if err := r.loadState(); err != nil {
		return loop.Start{}, err
	}
	peers, config := r.worker.peers, r.worker.config
	start := loop.Start{
		Run: r.claimed.plannerRun(), Session: r.claimed.plannerSession(),
		Agent:      r.code.agent.Agent,
		Caller:     callerInput(stored),
		Transcript: transcript, Begin: r.beginOfRun(transcript), State: r.writes.state, Now: r.writes.merged,
		Turn: int(r.claimed.run.GetTurn()), SessionSteps: int(r.step),
		Calls: toAsked(r.claim.GetCalls()),
		Depth: int(r.claimed.session.GetDepth()), MaxDepth: r.maxDepth(r.code.agent.Agent), NewSessionID: peers.NewID,
		Jitter: peers.Jitter, MaxCalls: config.MaxCalls,
		CallFunction: func(what string, f func(ctx context.Context) (any, error)) (any, error) {
			interruptible, end := r.stopper.interruptible(ctx)
			defer end()
			return r.code.function(interruptible, what, f)
		},
	}
	start.Journal, err = r.loadJournal()
	r.claim.Messages = nil
	r.claim.Journal = nil
	return start, err
}

// maxDepth returns the largest depth of a sub-agent of the agent.
func (r *runner) maxDepth(a agent.Agent) int {
	if own := a.MaxDepth; own > 0 {
		return min(own, r.worker.config.MaxDepth)
	}
	return r.worker.config.MaxDepth
}

// loadState loads the custom state of the session. A session without steps gets the defaults of the schema.
// Rewound steps do not count, and for a branch those of the original session do.
func (r *runner) loadState() error {
	session := r.claimed.session
	state, err := agent.ParseState([]byte(session.GetCustomState()))
	if err != nil {
		return err
	}
	session.CustomState = ""
	r.view.setState(state)
	var schema json.RawMessage
	if session.GetCheckpointId() == "" && !r.branched {
		schema = r.code.agent.StateSchema
	}
	return r.writes.start(state, schema)
}

// loadJournal loads and returns the journal of an earlier owner; nil without a plan.
func (r *runner) loadJournal() (*loop.Journal, error) {
	found := r.claim.GetJournal()
	for _, entry := range found.GetUsage() {
		r.usage.addToTotal(entry.GetTokens())
	}
	if found.GetPlan() == nil {
		return nil, nil
	}
	journal, ops, err := toJournal(found, r.claimed.session.GetStepCount())
	if err != nil {
		return nil, err
	}
	for _, result := range found.GetResults() {
		toolRan := slices.ContainsFunc(result.GetUsage(), func(u *eventv1.UsageEntry) bool { return u.GetTool() != nil })
		if toolRan { // with the hooks around it
			r.hooks.messaged.add(result.GetResult().GetToolCallId())
		}
	}
	r.writes.recover(journal, ops)
	r.recorder.journal.begin(journal.Plan, journal.Results...)
	return journal, nil
}

// messagesPage is the size of a page of messages.
const messagesPage = 200

// loadConversation returns all messages of the session: those before the tail that came with the claim, and the tail.
func (r *runner) loadConversation(ctx context.Context) ([]*statev1.StoredMessage, error) {
	session := r.claimed.session
	tail := r.claim.GetMessages()
	count := session.GetMessageCount() // of the messages before the tail
	if len(tail) > 0 {
		count = tail[0].GetOrdinal()
	}
	var stored []*statev1.StoredMessage
	for int64(len(stored)) < count {
		var page *statev1.ListMessagesResponse
		err := retry.Call(ctx, r.worker.config.CallTimeout, func(ctx context.Context) (err error) {
			page, err = r.worker.peers.Sessions.ListMessages(ctx, &statev1.ListMessagesRequest{
				Tenant: session.GetTenant(), SessionId: session.GetSessionId(), Offset: int64(len(stored)),
				Limit: int32(min(messagesPage, count-int64(len(stored)))),
			}, r.claimed.granted())
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the conversation: %w", err)
		}
		if len(page.GetMessages()) == 0 {
			return nil, fmt.Errorf("the conversation ends at message %d, but %d exist", len(stored), count)
		}
		stored = append(stored, page.GetMessages()...)
	}
	return append(stored, tail...), nil
}

// toTranscript converts the messages of the session.
func (r *runner) toTranscript(stored []*statev1.StoredMessage) ([]agent.Message, error) {
	transcript := make([]agent.Message, 0, len(stored))
	for i, s := range stored {
		if s.GetOrdinal() != int64(i) {
			return nil, fmt.Errorf("found message %d instead of message %d", s.GetOrdinal(), i)
		}
		m, err := toMessage(s.GetMessage())
		if err != nil {
			return nil, err
		}
		transcript = append(transcript, m)
		if r.claimed.session.GetStepCount() == 0 && s.GetMessage().GetStep() > 0 {
			r.branched = true // the message is of a step of the other session
		}
	}
	return transcript, nil
}

// beginOfRun returns the index of the first message of the run. For a continuation, it is that of the first run of
// the turn.
func (r *runner) beginOfRun(transcript []agent.Message) int {
	run := r.claimed.run
	begin := int(min(run.GetStartMessageCount(), int64(len(transcript))))
	if run.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
		return begin
	}
	if first := run.GetTurnMessageCount(); first > 0 {
		return int(min(first, int64(begin)))
	}
	return beginOfTurn(transcript, begin)
}

// beginOfTurn returns the index of the first of the adjacent user messages before index. Unless the turn was
// resumed, they began it. It is for the first run of a session, and for continuations whose claim lacks the
// begin of the turn.
func beginOfTurn(transcript []agent.Message, index int) int {
	asks := func(m agent.Message) bool { return m.Role == agent.RoleUser && !m.Hidden }
	for index > 0 && !asks(transcript[index-1]) {
		index--
	}
	for index > 0 && asks(transcript[index-1]) {
		index--
	}
	return index
}
