package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// replicas run commands on two handles on one database. A store of a single process uses one
// handle twice.
var replicas = []suiteCase{
	{"concurrent starts on two replicas: one wins", func(h *harness) {
		replicas := h.replicaPair()
		for round := range 5 {
			key := at(fmt.Sprint(round))
			commands := make([]session.Send, parallelism)
			for i := range commands {
				commands[i] = h.startOf(key)
			}
			var won atomic.Int32
			concurrently(func(i int) {
				switch _, err := h.tryStartOn(replicas[i%2], commands[i]); {
				case err == nil:
					won.Add(1)
				case fault.ReasonOf(err) != "SESSION_BUSY":
					h.Errorf("got %v, want SESSION_BUSY", err)
				}
			})
			if s, _ := h.session(key); won.Load() != 1 || s.Turn != 1 || s.MessageCount != 1 {
				h.Errorf("%d starts won, %+v", won.Load(), s)
			}
		}
	}},
	{"starts with one request key on two replicas create one run", func(h *harness) {
		replicas := h.replicaPair()
		commands := make([]session.Send, parallelism)
		for i := range commands {
			commands[i] = h.startOf(home)
			commands[i].RequestKey, commands[i].RequestHash = "k", []byte("h")
		}
		runs := make([]string, parallelism)
		concurrently(func(i int) {
			started, err := h.tryStartOn(replicas[i%2], commands[i])
			if err != nil {
				h.Errorf("start %d: %v", i, err)
			}
			runs[i] = started.Run.RunID
		})
		s, run := h.session(home)
		for _, id := range runs {
			same(h, "run", id, run.RunID)
		}
		same(h, "messages", s.MessageCount, int64(1))
	}},
	{"a silent executor is unregistered by one replica", func(h *harness) {
		replicas := h.replicaPair()
		for range 5 {
			since := map[string]session.Millis{}
			for i := range parallelism {
				since[fmt.Sprint("dies", i)] = h.now
				h.announce(fmt.Sprint("dies", i))
			}
			var removedCount atomic.Int32
			concurrently(func(i int) {
				for {
					unregistered, err := replicas[i%2].UnregisterUnseen(h.Context(), since)
					if err != nil {
						h.Errorf("replica %d: %v", i%2, err)
					}
					removedCount.Add(int32(len(unregistered)))
					remaining, err := replicas[i%2].LastSeen(h.Context())
					if err != nil || len(remaining) == 1 { // rows locked by another replica are skipped
						return
					}
				}
			})
			if int(removedCount.Load()) != parallelism {
				h.Errorf("%d executors were unregistered, want each of %d once", removedCount.Load(), parallelism)
			}
		}
	}},
	{"concurrent creates on two replicas: one creates the session", func(h *harness) {
		replicas := h.replicaPair()
		for round := range 5 {
			c := h.createOf(at(fmt.Sprint(round)))
			var made atomic.Int32
			concurrently(func(i int) {
				mine := c
				mine.UserID = fmt.Sprint(i)
				switch err := send(h, replicas[i%2], h.family(), mine.Key, mine.Need(), capturingWide(new(session.Session), mine.Decide)); {
				case err == nil:
					made.Add(1)
				case fault.ReasonOf(err) != "SESSION_EXISTS":
					h.Errorf("got %v, want SESSION_EXISTS", err)
				}
			})
			same(h, "creates that made it", made.Load(), int32(1))
			list, err := h.Store.Sessions(h.Context(), home.Tenant, store.SessionQuery{Limit: 100})
			if err != nil || len(list) != round+1 {
				h.Errorf("got %d sessions, %v; want %d", len(list), err, round+1)
			}
		}
	}},
	{"claimers on two replicas never share a run", func(h *harness) {
		replicas := h.replicaPair()
		const runs = 30
		for i := range runs {
			h.start(h.startOf(at(fmt.Sprint(i))))
		}
		var claimed atomic.Int32
		concurrently(func(i int) {
			for claimed.Load() < runs && !h.Failed() {
				due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: h.now}
				got, err := replicas[i%2].UpdateDue(h.Context(), due, session.Need{}, 3, session.Claim{ExecutorID: executor, Now: h.now}.Decide)
				if err != nil {
					h.Errorf("claim: %v", err)
				}
				claimed.Add(int32(len(got)))
			}
		})
		same(h, "claims", claimed.Load(), int32(runs))
		for i := range runs {
			if s, run := h.session(at(fmt.Sprint(i))); s.Epoch != 1 || run.Attempt != 1 || run.Status != session.RunRunning {
				h.Errorf("got %+v of epoch %d", run, s.Epoch)
			}
		}
	}},
	{"commands on two replicas lose no write", func(h *harness) {
		replicas := h.replicaPair()
		h.create(h.createOf(home))
		h.create(h.createOf(at("s2")))
		concurrently(func(i int) {
			for round := range 3 {
				keys := []session.Key{home, at("s2")}
				one, two := keys[(i/2)%2], keys[1-(i/2)%2] // locked in both orders
				err := replicas[i%2].Update(h.Context(), []session.Target{{Key: one}, {Key: two}}, weight,
					func(views []*session.View) ([]*session.Change, error) {
						changes := make([]*session.Change, len(views))
						for v, view := range views {
							s := *view.Session
							s.Version++
							m := session.Message{ID: fmt.Sprint(i, round), Ordinal: s.MessageCount}
							s.MessageCount++
							changes[v] = &session.Change{Session: &s, Messages: []session.Message{m}}
						}
						return changes, nil
					})
				if err != nil {
					h.Errorf("command %d: %v", i, err)
				}
			}
		})
		for _, key := range []session.Key{home, at("s2")} {
			for i, m := range h.messages(key) {
				same(h, "ordinal", m.Ordinal, int64(i))
			}
			if s := h.snapshot(key).Session; s.MessageCount != 3*parallelism || s.Version != 3*parallelism+1 ||
				len(h.messages(key)) != 3*parallelism {
				h.Errorf("got %+v", s)
			}
		}
	}},
	{"commands on a family from two replicas are consistent", func(h *harness) {
		replicas := h.replicaPair()
		h.start(h.startOf(at("root")))
		ids := make([]string, parallelism)
		concurrently(func(i int) {
			c := h.startOf(at(fmt.Sprint("child ", i)))
			c.NewSession.ParentID, c.NewSession.Child.CallID = "root", "call of "+c.SessionID
			ids[i] = c.SessionID
			if _, err := h.tryStartOn(replicas[i%2], c); err != nil {
				h.Errorf("start %d: %v", i, err)
			}
		})
		h.awaitChildren(ids...)
		refs := map[string]session.ClaimRef{}
		for _, id := range ids {
			refs[id] = h.claimOf(at(id))
		}
		concurrently(func(i int) {
			c := session.Finish{ClaimRef: refs[ids[i]], Outcome: completed, Now: h.now}
			if err := send(h, replicas[i%2], h.family(), c.Key, c.Need(), capturing(new(session.Finished), c.Decide)); err != nil {
				h.Errorf("finish %d: %v", i, err)
			}
		})
		root := h.snapshot(at("root"))
		if root.Session.Status != session.Active || root.Session.Turn != 2 || len(root.Children) != parallelism {
			h.Errorf("got %+v", root.Session)
		}
		for _, child := range root.Children {
			same(h, "what the root knows of "+child.SessionID, child.Status, session.Completed)
		}
	}},
	{"a reader on another replica never sees a partial step", func(h *harness) {
		replicas := h.replicaPair()
		h.start(h.startOf(at("root")))
		c := h.startOf(at("child"))
		c.NewSession.ParentID, c.NewSession.Child.CallID = "root", "call of "+c.SessionID
		h.start(c)
		ref := h.claimOf(at("child"))
		done := make(chan struct{})
		h.whileWatching(func() {
			h.suspendAndContinue(ref, 12)
			close(done)
		}, h.watchStep(replicas[1], at("child"), done), h.watchStep(replicas[0], at("root"), done))
	}},
}

// replicaPair returns two handles on the store.
func (h *harness) replicaPair() [2]store.Store {
	if h.Second == nil {
		return [2]store.Store{h.Store, h.Store}
	}
	return [2]store.Store{h.Store, h.Second(h.T)}
}

func (h *harness) tryStartOn(s store.Store, c intent) (started session.Started, err error) {
	err = send(h, s, h.family(), keyOf(c), c.Need(), capturingWide(&started, c.Decide))
	return started, err
}

// suspendAndContinue commits steps. Each suspends on two calls and consumes the answers to the
// calls of the previous step.
func (h *harness) suspendAndContinue(ref session.ClaimRef, steps int32) {
	h.Helper()
	for step := int32(1); step <= steps; step++ {
		c := h.suspendingCommit(ref, step, fmt.Sprint("a", step), fmt.Sprint("b", step))
		if step > 1 {
			c.Consume = []session.Consume{{CallID: fmt.Sprint("a", step-1), Revision: 1}, {CallID: fmt.Sprint("b", step-1), Revision: 1}}
		}
		h.commit(c)
		for _, call := range c.Calls {
			h.submit(h.submitOf(ref.Key, call.CallID))
		}
		ref = h.claimOf(ref.Key)
	}
}

// watchStep returns a function to read the rows of the child's steps in different tables. It
// fails the test if a step is incomplete (invariant C-1), and reports whether done is closed.
func (h *harness) watchStep(s store.Store, key session.Key, done chan struct{}) func() bool {
	child := at("child")
	return func() bool {
		seen, err := s.Session(h.Context(), key)
		if err != nil {
			h.Error(err)
			return true
		}
		steps := map[int32]int{}
		for _, call := range seen.Calls {
			steps[call.Step]++
		}
		for step, n := range steps {
			if n != 2 || len(steps) > 1 {
				h.Errorf("got %d calls of step %d, of %d steps", n, step, len(steps))
			}
			h.expectComplete(s, child, step)
		}
		if own := seen.Session; key == child &&
			(own.Status.Suspended() != (own.Suspension != nil) || own.Status.Suspended() && steps[own.StepCount] != 2 ||
				own.MessageCount != int64(own.StepCount)+1) {
			h.Errorf("got %+v with %d calls", own, len(seen.Calls))
		}
		return isClosed(done)
	}
}

// expectComplete fails the test unless the step's message and checkpoint are there.
func (h *harness) expectComplete(s store.Store, child session.Key, step int32) {
	messages, total, err := s.Messages(h.Context(), child, store.Page{From: int64(step), Limit: 1, MaxBytes: 1})
	if err != nil || total < int64(step)+1 || len(messages) != 1 || messages[0].Step != step {
		h.Errorf("step %d: got messages %+v of %d, %v", step, messages, total, err)
	}
	newest, _, err := s.Checkpoint(h.Context(), child, "")
	if err != nil || newest.Step < step {
		h.Errorf("step %d: got the newest checkpoint %+v, %v", step, newest, err)
	}
	after, err := s.Session(h.Context(), child)
	if err != nil || after.Session.StepCount < step || after.Session.Version < newest.Version {
		h.Errorf("step %d: got %+v, %v", step, after, err)
	}
}
