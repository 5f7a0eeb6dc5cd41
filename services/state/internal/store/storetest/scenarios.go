package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/scenariotest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// RunScenarios plays the scenarios of package scenariotest on stores. They prove that a store shows commands the rows that
// the rules need, and writes what the rules decide.
func RunScenarios(t *testing.T, open func(*testing.T) Subject) {
	scenariotest.Run(t, "", func(t *testing.T) scenariotest.World {
		t.Helper()
		w := &stored{harness: newHarness(t, open(t)), waited: map[string][]string{}}
		w.must(w.Store.Announce(w.Context(), "seller", []session.Agent{{Type: "sales"}}, w.now))
		return w
	})
}

// stored is a world in a store.
type stored struct {
	*harness
	waited map[string][]string // ids of the runs that have waited, by session
}

// Do implements scenariotest.World.
func (w *stored) Do(command any) (any, error) {
	newID := func() string { return w.id("next") + "." }
	return scenariotest.Apply(command, newID, func(targets []session.Target, decide func([]*session.View) ([]*session.Change, error)) error {
		return w.Store.Update(w.Context(), targets, weight, decide)
	})
}

// Claim implements scenariotest.World.
func (w *stored) Claim(now session.Millis) (*scenariotest.Claimed, error) {
	due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent, "sales"}, Now: now}
	claimed, err := w.Store.UpdateDue(w.Context(), due, session.Need{Calls: true}, 1, session.Claim{ExecutorID: executor, Now: now}.Decide)
	if err != nil || len(claimed) == 0 {
		return nil, err
	}
	return &scenariotest.Claimed{ClaimRef: refOf(claimed[0]), Stop: claimed[0].Change.Runs[0].Stop, Calls: claimed[0].View.Calls}, nil
}

// Rows implements scenariotest.World.
func (w *stored) Rows(id string, callIDs []string) (*scenariotest.Rows, error) {
	key := session.Key{Tenant: scenariotest.Tenant, SessionID: id}
	ctx := w.Context()
	rows := &scenariotest.Rows{}
	need := session.Need{State: true, Journal: true, CallIDs: callIDs, Children: true, Waiting: true}
	err := w.Store.Update(ctx, []session.Target{{Key: key, Need: need}}, weight, func(views []*session.View) ([]*session.Change, error) {
		v := views[0]
		if v.Session == nil {
			return nil, session.SessionNotFound(key)
		}
		*rows = scenariotest.Rows{Session: *v.Session, Children: v.Children, Journal: v.Journal}
		for _, r := range v.Waiting {
			rows.Waiting = append(rows.Waiting, r.RunID)
		}
		for _, call := range v.NamedCalls {
			if call.SessionID == id {
				rows.Calls = append(rows.Calls, call)
			}
		}
		return nil, nil
	})
	if errors.Is(err, fault.NotFound) {
		return nil, nil //nolint:nilnil // there is no such session
	}
	if err != nil {
		return nil, err
	}
	rows.Messages, rows.Checkpoints, rows.Usage = w.messages(key), w.checkpoints(key), len(w.usage(key))
	slices.Reverse(rows.Checkpoints)
	if rows.Runs, err = w.Store.Runs(ctx, key, 0, 1000); err != nil {
		return nil, err
	}
	slices.Reverse(rows.Runs)
	w.waited[id] = slices.Compact(slices.Sorted(slices.Values(append(w.waited[id], rows.Waiting...))))
	for _, waited := range w.waited[id] {
		run, err := w.Store.Run(ctx, key, waited)
		if errors.Is(err, fault.NotFound) {
			continue // the run of a deleted session
		}
		if err != nil {
			return nil, err
		}
		if run.Turn == 0 {
			rows.Runs = append(rows.Runs, *run)
		}
	}
	return rows, nil
}
