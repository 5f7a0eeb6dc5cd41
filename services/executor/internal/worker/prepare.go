package worker

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// prepare collects the planner's input. It drops the messages and the journal of the claim, so that a run
// waiting for a model holds the conversation only once.
func (r *runner) prepare(ctx context.Context) (loop.Start, error) {
	conversation := conversation{claimed: r.claimed, sessions: r.peers.Sessions, timeout: r.config.CallTimeout}
	stored, err := conversation.load(ctx, r.claim.GetMessages())
	if err != nil {
		return loop.Start{}, err
	}
	r.branched = conversation.branched(stored)
	transcript, err := toTranscript(stored)
	if err != nil {
		return loop.Start{}, err
	}
	if err := r.loadState(); err != nil {
		return loop.Start{}, err
	}
	start := loop.Start{
		Run:        r.claimed.plannerRun(),
		Agent:      r.code.agent.Agent,
		Transcript: transcript, Begin: conversation.begin(transcript), State: r.writes.state, Now: r.writes.merged,
		Turn: int(r.claimed.run.GetTurn()), SessionSteps: int(r.step),
		Calls: toAsked(r.claim.GetCalls()),
		Depth: int(r.claimed.session.GetDepth()), MaxDepth: r.maxDepth(r.code.agent.Agent), NewSessionID: r.peers.NewID,
		Jitter: r.peers.Jitter, MaxCalls: r.config.MaxCalls,
		CallFunction: func(what string, f func() any) (any, error) {
			cuttable, end := r.stopper.cuttable(ctx)
			defer end()
			return r.code.function(cuttable, what, f)
		},
	}
	start.Journal, err = r.loadJournal()
	r.claim.Messages, r.claim.Journal = nil, nil
	return start, err
}

// maxDepth returns the largest depth of a sub-agent of the agent.
func (r *runner) maxDepth(a agent.Agent) int {
	if own := a.MaxDepth; own > 0 {
		return min(own, r.config.MaxDepth)
	}
	return r.config.MaxDepth
}

// loadState loads the custom state of the session. A session without steps gets the defaults of the schema.
// Steps that were rewound do not count, and for a branch those of the original session do.
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
		if toolRan(result) {
			r.hooks.messaged.add(result.GetResult().GetToolCallId())
		}
	}
	r.writes.recover(journal, ops)
	r.recorder.journal.begin(journal.Plan, journal.Results...)
	return journal, nil
}
