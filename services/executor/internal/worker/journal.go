package worker

import (
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// stepJournal has the recorded plan of the step in flight and the results of its calls, for giving up the run.
// Unrecorded results have no writes. The zero value has no plan. Safe for concurrent use.
type stepJournal struct {
	mu      sync.Mutex
	planned bool
	plan    agent.Message
	results []loop.Recorded
}

// begin sets a recorded plan, with the results recorded so far.
func (j *stepJournal) begin(plan agent.Message, results ...loop.Recorded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.planned, j.plan, j.results = true, plan, slices.Clone(results)
}

// hasPlan reports whether the plan is recorded.
func (j *stepJournal) hasPlan() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.planned
}

// add adds a recorded result, or one for the commit.
func (j *stepJournal) add(result loop.Recorded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.planned {
		j.results = append(j.results, result)
	}
}

// end clears the journal after the commit.
func (j *stepJournal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.planned, j.plan, j.results = false, agent.Message{}, nil
}

// current returns the journal; nil without a plan.
func (j *stepJournal) current() *loop.Journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.planned {
		return nil
	}
	return &loop.Journal{Plan: j.plan, Results: slices.Clone(j.results)}
}

// toJournal converts the journal of a claim, which has a plan. steps counts the committed steps of the session.
// ops are the writes recorded with the plan.
func toJournal(found *statev1.Journal, steps int32) (journal *loop.Journal, ops []agent.Op, err error) {
	if found.GetStep() != steps+1 {
		return nil, nil, fmt.Errorf("the journal is of step %d, but %d steps are committed", found.GetStep(), steps)
	}
	plan, err := toMessage(found.GetPlan())
	if err != nil {
		return nil, nil, err
	}
	journal = &loop.Journal{Plan: plan}
	for _, result := range found.GetResults() {
		ops, err := toOps(result.GetOps())
		if err != nil {
			return nil, nil, err
		}
		journal.Results = append(journal.Results, loop.Recorded{Result: toResult(result.GetResult()), Ops: ops})
	}
	ops, err = toOps(found.GetOps())
	return journal, ops, err
}

// toolRan reports whether the tool of a recorded result has run, with the hooks around it.
func toolRan(result *statev1.CallResult) bool {
	return slices.ContainsFunc(result.GetUsage(), func(u *eventv1.UsageEntry) bool { return u.GetTool() != nil })
}
