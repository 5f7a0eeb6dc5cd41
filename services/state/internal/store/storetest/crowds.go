package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// crowd is how many do the same thing at once: more than a pool has
// connections.
const crowd = 12

var crowds = []test{
	{"starts with one request key make one run", func(b *bench) {
		commands := make([]session.Send, crowd)
		for i := range commands {
			commands[i] = b.startOf(home)
			commands[i].RequestKey, commands[i].RequestHash = "k", []byte("h")
		}
		var made atomic.Int32
		runs := make([]string, crowd)
		together(func(i int) {
			started, err := b.try(commands[i])
			if err != nil {
				b.Errorf("start %d: %v", i, err)
			}
			if !started.Repeated {
				made.Add(1)
			}
			runs[i] = started.Run.RunID
		})
		for _, run := range runs {
			if run != runs[0] {
				b.Errorf("got the runs %q and %q for one key", run, runs[0])
			}
		}
		if made.Load() != 1 {
			b.Errorf("got %d new runs, want 1", made.Load())
		}
	}},
	{"of starts in one session one wins", func(b *bench) {
		commands := make([]session.Send, crowd)
		for i := range commands {
			commands[i] = b.startOf(home)
		}
		var won atomic.Int32
		together(func(i int) {
			switch _, err := b.try(commands[i]); {
			case err == nil:
				won.Add(1)
			case fault.ReasonOf(err) != "SESSION_BUSY":
				b.Errorf("got %v, want SESSION_BUSY", err)
			}
		})
		if won.Load() != 1 {
			b.Errorf("got %d runs, want 1", won.Load())
		}
	}},
	{"claimers never share a run", func(b *bench) {
		const runs = 40
		for i := range runs {
			b.start(b.startOf(session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}))
		}
		for i := range crowd {
			b.announce(fmt.Sprint("claimer-", i))
		}
		var mu sync.Mutex
		owners := map[string]string{}
		claimUntilNoneIsLeft := func(i int) {
			id := fmt.Sprint("claimer-", i)
			for {
				due := store.Queued{ExecutorID: id, AgentTypes: []string{agent}, Now: b.now}
				got, err := b.Store.UpdateDue(b.Context(), due, session.Need{}, 3, session.Claim{ExecutorID: id, Now: b.now}.Decide)
				if err != nil {
					b.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				for _, d := range got {
					run := d.Change.Runs[0].RunID
					if owners[run] != "" {
						b.Errorf("run %s went to %s and %s", run, owners[run], id)
					}
					owners[run] = id
				}
				left := runs - len(owners)
				mu.Unlock()
				if left == 0 {
					return
				}
			}
		}
		together(claimUntilNoneIsLeft)
		for run, owner := range owners {
			for i := range runs {
				got, err := b.Store.Run(b.Context(), session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}, run)
				if err == nil && (got.ExecutorID != owner || got.Epoch != 1) {
					b.Errorf("run %s belongs to %s with epoch %d, want %s with 1", run, got.ExecutorID, got.Epoch, owner)
				}
			}
		}
	}},
	{"results of one step are all recorded", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		var calls []string
		for i := range crowd {
			calls = append(calls, fmt.Sprint("c", i))
		}
		b.must(b.tryPlan(ref, 1, "plan", calls...))
		together(func(i int) {
			repeated, err := b.tryResult(ref, 1, session.Result{CallID: calls[i], Ops: []session.StateOp{{Key: "n", Kind: session.Append, Value: fmt.Sprintf("[%d]", i)}}})
			if err != nil || repeated {
				b.Errorf("result %d: got repeated %v, %v", i, repeated, err)
			}
		})
		b.commit(b.commitOf(ref, 1))
		if s, _ := b.session(home); s.State != `{"n":[0,1,2,3,4,5,6,7,8,9,10,11]}` {
			b.Errorf("got state %s, want the order of the plan", s.State)
		}
	}},
	{"of commits of one step one is written", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		commit := b.commitOf(ref, 1)
		versions := make([]int64, crowd)
		together(func(i int) {
			checkpoint, err := b.tryCommit(commit)
			if err != nil {
				b.Errorf("commit %d: %v", i, err)
			}
			versions[i] = checkpoint.Version
		})
		for _, v := range versions {
			if v != 2 {
				b.Errorf("got version %d, want 2", v)
			}
		}
		if n := len(b.messages(home)); n != 2 {
			b.Errorf("got %d messages, want 2", n)
		}
	}},
}

// together calls f for each of a crowd at once.
func together(f func(i int)) {
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
