package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// parallelism is the number of concurrent commands. It exceeds the connections of a pool.
const parallelism = 12

var concurrency = []suiteCase{
	{"concurrent starts with one request key create one run", func(h *harness) {
		commands := make([]session.Send, parallelism)
		for i := range commands {
			commands[i] = h.startOf(home)
			commands[i].RequestKey, commands[i].RequestHash = "k", []byte("h")
		}
		var made atomic.Int32
		runs := make([]string, parallelism)
		concurrently(func(i int) {
			started, err := h.tryStart(commands[i])
			if err != nil {
				h.Errorf("start %d: %v", i, err)
			}
			if !started.Repeated {
				made.Add(1)
			}
			runs[i] = started.Run.RunID
		})
		for _, run := range runs {
			if run != runs[0] {
				h.Errorf("got the runs %q and %q for one key", run, runs[0])
			}
		}
		if made.Load() != 1 {
			h.Errorf("got %d new runs, want 1", made.Load())
		}
	}},
	{"concurrent starts in one session: one wins", func(h *harness) {
		commands := make([]session.Send, parallelism)
		for i := range commands {
			commands[i] = h.startOf(home)
		}
		var won atomic.Int32
		concurrently(func(i int) {
			switch _, err := h.tryStart(commands[i]); {
			case err == nil:
				won.Add(1)
			case fault.ReasonOf(err) != "SESSION_BUSY":
				h.Errorf("got %v, want SESSION_BUSY", err)
			}
		})
		if won.Load() != 1 {
			h.Errorf("got %d runs, want 1", won.Load())
		}
	}},
	{"concurrent claimers never share a run", func(h *harness) {
		const runs = 40
		for i := range runs {
			h.start(h.startOf(session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}))
		}
		for i := range parallelism {
			h.announce(fmt.Sprint("claimer-", i))
		}
		var mu sync.Mutex
		owners := map[string]string{}
		claimUntilNoneIsLeft := func(i int) {
			id := fmt.Sprint("claimer-", i)
			for {
				due := store.Queued{ExecutorID: id, AgentTypes: []string{agent}, Now: h.now}
				got, err := h.Store.UpdateDue(h.Context(), due, session.Need{}, 3, session.Claim{ExecutorID: id, Now: h.now}.Decide)
				if err != nil {
					h.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				for _, d := range got {
					run := d.Change.Runs[0].RunID
					if owners[run] != "" {
						h.Errorf("run %s went to %s and %s", run, owners[run], id)
					}
					owners[run] = id
				}
				remaining := runs - len(owners)
				mu.Unlock()
				if remaining == 0 {
					return
				}
			}
		}
		concurrently(claimUntilNoneIsLeft)
		for run, owner := range owners {
			for i := range runs {
				got, err := h.Store.Run(h.Context(), session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}, run)
				if err == nil && (got.ExecutorID != owner || got.Epoch != 1) {
					h.Errorf("run %s belongs to %s with epoch %d, want %s with 1", run, got.ExecutorID, got.Epoch, owner)
				}
			}
		}
	}},
	{"concurrent results of a step are all recorded", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		var calls []string
		for i := range parallelism {
			calls = append(calls, fmt.Sprint("c", i))
		}
		h.must(h.tryPlan(ref, 1, "plan", calls...))
		concurrently(func(i int) {
			repeated, err := h.tryResult(ref, 1, session.Result{CallID: calls[i],
				Ops: []session.StateOp{{Key: "n", Kind: session.OpAppend, Value: fmt.Sprintf("[%d]", i)}}})
			if err != nil || repeated {
				h.Errorf("result %d: got repeated %v, %v", i, repeated, err)
			}
		})
		h.commit(h.commitOf(ref, 1))
		if s, _ := h.session(home); s.State != `{"n":[0,1,2,3,4,5,6,7,8,9,10,11]}` {
			h.Errorf("got state %s, want the order of the plan", s.State)
		}
	}},
	{"concurrent commits of a step: one is written", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		commit := h.commitOf(ref, 1)
		versions := make([]int64, parallelism)
		concurrently(func(i int) {
			checkpoint, err := h.tryCommit(commit)
			if err != nil {
				h.Errorf("commit %d: %v", i, err)
			}
			versions[i] = checkpoint.Version
		})
		for _, v := range versions {
			if v != 2 {
				h.Errorf("got version %d, want 2", v)
			}
		}
		if n := len(h.messages(home)); n != 2 {
			h.Errorf("got %d messages, want 2", n)
		}
	}},
}

// concurrently calls f in parallelism goroutines, each with its index, and waits for them.
func concurrently(f func(i int)) {
	var wg sync.WaitGroup
	for i := range parallelism {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
