package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// replicas are two handles on one database. A store that only one process has
// is held against itself.
var replicas = []test{
	{"of starts on two replicas one wins", func(b *bench) {
		both := b.both()
		for round := range 5 {
			key := at(fmt.Sprint(round))
			commands := make([]session.Send, crowd)
			for i := range commands {
				commands[i] = b.startOf(key)
			}
			var won atomic.Int32
			together(func(i int) {
				switch _, err := b.tryOn(both[i%2], commands[i]); {
				case err == nil:
					won.Add(1)
				case fault.ReasonOf(err) != "SESSION_BUSY":
					b.Errorf("got %v, want SESSION_BUSY", err)
				}
			})
			if s, _ := b.session(key); won.Load() != 1 || s.Turn != 1 || s.MessageCount != 1 {
				b.Errorf("%d starts won, %+v", won.Load(), s)
			}
		}
	}},
	{"starts with one request key on two replicas make one run", func(b *bench) {
		both := b.both()
		commands := make([]session.Send, crowd)
		for i := range commands {
			commands[i] = b.startOf(home)
			commands[i].RequestKey, commands[i].RequestHash = "k", []byte("h")
		}
		runs := make([]string, crowd)
		together(func(i int) {
			started, err := b.tryOn(both[i%2], commands[i])
			if err != nil {
				b.Errorf("start %d: %v", i, err)
			}
			runs[i] = started.Run.RunID
		})
		s, run := b.session(home)
		for _, id := range runs {
			same(b, "run", id, run.RunID)
		}
		same(b, "messages", s.MessageCount, int64(1))
	}},
	{"an executor that dies on two replicas is forgotten by one", func(b *bench) {
		both := b.both()
		for range 5 {
			since := map[string]session.Millis{}
			for i := range crowd {
				since[fmt.Sprint("dies", i)] = b.now
				b.announce(fmt.Sprint("dies", i))
			}
			var gone atomic.Int32
			together(func(i int) {
				for {
					struck, err := both[i%2].ForgetUnheard(b.Context(), since)
					if err != nil {
						b.Errorf("replica %d: %v", i%2, err)
					}
					gone.Add(int32(len(struck)))
					left, err := both[i%2].Heard(b.Context())
					if err != nil || len(left) == 1 { // what another has locked is passed over
						return
					}
				}
			})
			if int(gone.Load()) != crowd {
				b.Errorf("%d were forgotten, want each of %d once", gone.Load(), crowd)
			}
		}
	}},
	{"of creates on two replicas one makes the session", func(b *bench) {
		both := b.both()
		for round := range 5 {
			c := b.createOf(at(fmt.Sprint(round)))
			var made atomic.Int32
			together(func(i int) {
				mine := c
				mine.UserID = fmt.Sprint(i)
				switch err := send(b, both[i%2], b.family(), mine.Key, mine.Need(), keeping(new(session.Session), mine.Decide)); {
				case err == nil:
					made.Add(1)
				case fault.ReasonOf(err) != "SESSION_EXISTS":
					b.Errorf("got %v, want SESSION_EXISTS", err)
				}
			})
			same(b, "creates that made it", made.Load(), int32(1))
			list, err := b.Store.Sessions(b.Context(), home.Tenant, store.SessionQuery{Limit: 100})
			if err != nil || len(list) != round+1 {
				b.Errorf("got %d sessions, %v; want %d", len(list), err, round+1)
			}
		}
	}},
	{"claimers on two replicas never share a run", func(b *bench) {
		both := b.both()
		const runs = 30
		for i := range runs {
			b.start(b.startOf(at(fmt.Sprint(i))))
		}
		var claimed atomic.Int32
		together(func(i int) {
			for claimed.Load() < runs && !b.Failed() {
				due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: b.now}
				got, err := both[i%2].UpdateDue(b.Context(), due, session.Need{}, 3, session.Claim{ExecutorID: executor, Now: b.now}.Decide)
				if err != nil {
					b.Errorf("claim: %v", err)
				}
				claimed.Add(int32(len(got)))
			}
		})
		same(b, "claims", claimed.Load(), int32(runs))
		for i := range runs {
			if s, run := b.session(at(fmt.Sprint(i))); s.Epoch != 1 || run.Attempt != 1 || run.Status != session.RunRunning {
				b.Errorf("got %+v of epoch %d", run, s.Epoch)
			}
		}
	}},
	{"commands on two replicas lose nothing", func(b *bench) {
		both := b.both()
		b.create(b.createOf(home))
		b.create(b.createOf(at("s2")))
		together(func(i int) {
			for round := range 3 {
				keys := []session.Key{home, at("s2")}
				one, two := keys[(i/2)%2], keys[1-(i/2)%2] // locked in both orders
				err := both[i%2].Update(b.Context(), []session.Target{{Key: one}, {Key: two}}, weight, func(views []*session.View) ([]*session.Change, error) {
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
					b.Errorf("command %d: %v", i, err)
				}
			}
		})
		for _, key := range []session.Key{home, at("s2")} {
			for i, m := range b.messages(key) {
				same(b, "ordinal", m.Ordinal, int64(i))
			}
			if s := b.snapshot(key).Session; s.MessageCount != 3*crowd || s.Version != 3*crowd+1 || len(b.messages(key)) != 3*crowd {
				b.Errorf("got %+v", s)
			}
		}
	}},
	{"a family on two replicas moves as one", func(b *bench) {
		both := b.both()
		b.start(b.startOf(at("root")))
		ids := make([]string, crowd)
		together(func(i int) {
			c := b.startOf(at(fmt.Sprint("child ", i)))
			c.New.ParentID = "root"
			ids[i] = c.SessionID
			if _, err := b.tryOn(both[i%2], c); err != nil {
				b.Errorf("start %d: %v", i, err)
			}
		})
		b.await(ids...)
		refs := map[string]session.Ref{}
		for _, id := range ids {
			refs[id] = b.claimOf(at(id))
		}
		together(func(i int) {
			c := session.Finish{Ref: refs[ids[i]], Outcome: completed, Now: b.now}
			if err := send(b, both[i%2], b.family(), c.Key, c.Need(), answered(new(int64), c.Decide)); err != nil {
				b.Errorf("finish %d: %v", i, err)
			}
		})
		root := b.snapshot(at("root"))
		if root.Session.Status != session.Active || root.Session.Turn != 2 || len(root.Children) != crowd {
			b.Errorf("got %+v", root.Session)
		}
		for _, child := range root.Children {
			same(b, "what the root knows of "+child.SessionID, child.Status, session.Completed)
		}
	}},
	{"a reader on another replica never sees half of a step", func(b *bench) {
		both := b.both()
		b.start(b.startOf(at("root")))
		c := b.startOf(at("child"))
		c.New.ParentID = "root"
		b.start(c)
		ref := b.claimOf(at("child"))
		done := make(chan struct{})
		b.beside(func() {
			b.suspendAndGoOn(ref, 12)
			close(done)
		}, b.watch(both[1], at("child"), done), b.watch(both[0], at("root"), done))
	}},
}

// both returns two handles on the store.
func (b *bench) both() [2]store.Store {
	if b.Second == nil {
		return [2]store.Store{b.Store, b.Store}
	}
	return [2]store.Store{b.Store, b.Second(b.T)}
}

func (b *bench) tryOn(s store.Store, c intent) (started session.Started, err error) {
	err = send(b, s, b.family(), keyOf(c), c.Need(), keeping(&started, c.Decide))
	return started, err
}

// suspendAndGoOn commits steps that suspend on two calls each, answers them,
// and takes the answers with the step that suspends next.
func (b *bench) suspendAndGoOn(ref session.Ref, steps int32) {
	b.Helper()
	for step := int32(1); step <= steps; step++ {
		c := b.suspending(ref, step, fmt.Sprint("a", step), fmt.Sprint("b", step))
		if step > 1 {
			c.Consume = []session.Consume{{CallID: fmt.Sprint("a", step-1), Revision: 1}, {CallID: fmt.Sprint("b", step-1), Revision: 1}}
		}
		b.commit(c)
		for _, call := range c.Calls {
			b.submit(b.submitOf(ref.Key, call.CallID))
		}
		ref = b.claimOf(ref.Key)
	}
}

// watch reads what a step of the child leaves in different places, and fails
// the test when one is there without the others (invariant C-1).
func (b *bench) watch(s store.Store, key session.Key, done chan struct{}) func() bool {
	child := at("child")
	return func() bool {
		seen, err := s.Session(b.Context(), key)
		if err != nil {
			b.Error(err)
			return true
		}
		steps := map[int32]int{}
		for _, call := range seen.Calls {
			steps[call.Step]++
		}
		for step, n := range steps {
			if n != 2 || len(steps) > 1 {
				b.Errorf("got %d calls of step %d, of %d steps", n, step, len(steps))
			}
			b.complete(s, child, step)
		}
		if own := seen.Session; key == child && (own.Status.Suspended() != (own.Suspension != nil) || own.Status.Suspended() && steps[own.StepCount] != 2 || own.MessageCount != int64(own.StepCount)+1) {
			b.Errorf("got %+v with %d calls", own, len(seen.Calls))
		}
		return closed(done)
	}
}

// complete fails the test unless the step's message and checkpoint are there.
func (b *bench) complete(s store.Store, child session.Key, step int32) {
	messages, total, err := s.Messages(b.Context(), child, store.Page{From: int64(step), Limit: 1, MaxBytes: 1})
	if err != nil || total < int64(step)+1 || len(messages) != 1 || messages[0].Step != step {
		b.Errorf("step %d: got messages %+v of %d, %v", step, messages, total, err)
	}
	newest, _, err := s.Checkpoint(b.Context(), child, "")
	if err != nil || newest.Step < step {
		b.Errorf("step %d: got the newest checkpoint %+v, %v", step, newest, err)
	}
	after, err := s.Session(b.Context(), child)
	if err != nil || after.Session.StepCount < step || after.Session.Version < newest.Version {
		b.Errorf("step %d: got %+v, %v", step, after, err)
	}
}
