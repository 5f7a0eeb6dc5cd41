package storetest

import (
	"fmt"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// rounds is how often a race is run in one test.
const rounds = 8

// races are between who answers a call and who makes an end of it, on two replicas.
// Each has one outcome, and what the model reads is what was reported.
var races = []test{
	{"of submits on two replicas, alone or with others, one is taken", func(b *bench) {
		both := b.both()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			b.suspended(key, "c1")
			one, all := b.submitOf(key, "c1"), b.submitAllOf(key, "c1", "c1")
			one.Response, all.Answers[0].Response = []byte("one"), []byte("all")
			var single session.Submitted
			var bulk []session.Submitted
			atOnce(
				func() { b.bears(sendOn(b, both[0], one.Key, one.Need(), answered(&single, one.Decide))) },
				func() { b.bears(sendOn(b, both[1], all.Key, all.Need(), answered(&bulk, all.Decide))) },
			)
			reads, first, second := "all", bulk[0], single
			if single.Status == session.Accepted {
				reads, first, second = "one", single, bulk[0]
			}
			if first.Status != session.Accepted || first.Continuation != session.NewRun || second.Status != session.AlreadyCompleted ||
				second.Continuation != session.LiveRun || bulk[1].Status != session.AlreadyCompleted {
				b.Errorf("got %+v and %+v", single, bulk)
			}
			b.reads(key, session.AnswerClient, reads)
			same(b, "turn", b.snapshot(key).Session.Turn, int32(2))
		}
	}},
	{"of an answer and a message that abandons its call one is taken", func(b *bench) {
		both := b.both()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			b.suspended(key, "c1")
			submit, start := b.submitOf(key, "c1"), b.abandoning(key)
			var answer session.Submitted
			var refused error
			atOnce(
				func() { b.bears(sendOn(b, both[round%2], key, submit.Need(), answered(&answer, submit.Decide))) },
				func() { _, refused = b.tryOn(both[1-round%2], start) },
			)
			s, run := b.session(key)
			same(b, "turn", s.Turn, int32(2))
			if answer.Status == session.Accepted {
				b.refuses(refused, fault.Conflict, "SESSION_BUSY")
				same(b, "run", run.RunID, answer.RunID)
				b.reads(key, session.AnswerClient, "answer to c1")
				continue
			}
			b.must(refused)
			if answer.Status != session.AlreadyCompleted || answer.Continuation != session.LiveRun || answer.RunID != start.RunID {
				b.Errorf("got %+v, want it to have come too late", answer)
			}
			same(b, "run", run.RunID, start.RunID)
			b.reads(key, session.AnswerAbandoned, "gone")
		}
	}},
	{"of an answer and a message that brings another one is taken", func(b *bench) {
		both := b.both()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			b.suspended(key, "c1", "c2")
			submit, start := b.submitOf(key, "c1"), b.abandoning(key, "c1")
			var answer session.Submitted
			var started session.Started
			atOnce(
				func() { b.bears(sendOn(b, both[round%2], key, submit.Need(), answered(&answer, submit.Decide))) },
				func() {
					b.bears(sendOn(b, both[1-round%2], key, start.Need(), keeping(&started, start.Decide)))
				},
			)
			same(b, "abandoned", started.Abandoned, []string{"c2"})
			reads := "c1"
			if answer.Status == session.Accepted {
				reads = "answer to c1"
			} else {
				same(b, "answer", answer.Status, session.AlreadyCompleted)
			}
			b.reads(key, session.AnswerClient, reads)
		}
	}},
	{"an answer that comes with the deadline is read, or told as late", func(b *bench) {
		both := b.both()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			b.start(b.startOf(key))
			ref := b.claimOf(key)
			c := b.suspending(ref, 1, "c1")
			c.Calls[0].DeadlineAt = b.now + 10
			b.commit(c)
			b.now += 20
			submit := b.submitOf(key, "c1")
			var answer session.Submitted
			atOnce(
				func() { b.bears(sendOn(b, both[0], key, submit.Need(), answered(&answer, submit.Decide))) },
				func() {
					t := session.Timeout{Key: key, Response: func(session.Call) []byte { return []byte("timeout") }, NewRunID: b.id("run"), Now: b.now}
					b.bears(sendOn(b, both[1], key, t.Need(), answered(new([]session.Call), t.Decide)))
					b.takeUp(both[1], "c1")
				},
			)
			b.takeUp(both[0], "c1") // where the answer has continued the session
			call := b.callOf(key, "c1")
			switch answer.Status {
			case session.Accepted:
				same(b, "what was read", fmt.Sprintf("%s %s", call.Answer, call.Response), "client answer to c1")
				same(b, "late answer", string(call.Late), "")
			case session.LateAnswer:
				same(b, "what was read", fmt.Sprintf("%s %s", call.Answer, call.Response), "timeout timeout")
				same(b, "late answer", string(call.Late), "answer to c1")
			default:
				b.Errorf("got %+v", answer)
			}
			if s := b.snapshot(key).Session; call.ConsumedStep != 2 || s.Turn != 2 || s.StepCount != 2 {
				b.Errorf("got %+v of %+v, want it read once", call, s)
			}
		}
	}},
	{"a session is answered or it expires", func(b *bench) {
		both := b.both()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			b.start(b.startOf(key))
			c := b.suspending(b.claimOf(key), 1, "c1")
			c.ExpireAfter = 10
			b.commit(c)
			b.now += 20
			submit, expire := b.submitOf(key, "c1"), session.Expire{Key: key, Now: b.now}
			var answer session.Submitted
			var expired session.Expired
			var refused error
			atOnce(
				func() { refused = sendOn(b, both[round%2], key, submit.Need(), answered(&answer, submit.Decide)) },
				func() { b.bears(sendOn(b, both[1-round%2], key, expire.Need(), answered(&expired, expire.Decide))) },
			)
			s := b.snapshot(key).Session
			if refused == nil {
				same(b, "expired", expired, session.ExpiryNotDue)
				same(b, "status", s.Status, session.Active)
				same(b, "answer", answer.Status, session.Accepted)
				b.reads(key, session.AnswerClient, "answer to c1")
				continue
			}
			b.refuses(refused, fault.NotFound, "UNKNOWN_TOOL_CALL")
			same(b, "status", s.Status, session.Failed)
			same(b, "reason", s.Failure.Reason, session.SessionExpired)
			same(b, "turn", s.Turn, int32(1))
		}
	}},
	{"of equal starts on two replicas one starts, whatever it brings", func(b *bench) {
		both := b.both()
		keyed := func(c session.Post, runID string) session.Post {
			c.RequestKey, c.RequestHash, c.RunID = "k", []byte("h"), runID
			return c
		}
		for name, prepare := range map[string]func(session.Key) func(runID string) intent{
			"new": func(key session.Key) func(string) intent {
				c := b.startOf(key)
				return func(runID string) intent { return session.Send{Post: keyed(c.Post, runID), New: c.New} }
			},
			"abandons": func(key session.Key) func(string) intent {
				b.suspended(key, "c1", "c2")
				c := b.abandoning(key, "c1")
				return func(runID string) intent { return session.Send{Post: keyed(c.Post, runID), New: c.New} }
			},
			"goes back": func(key session.Key) func(string) intent {
				b.suspended(key, "c1", "c2")
				c := b.regenerateOf(key, b.said(key)[0])
				return func(runID string) intent {
					return session.Regenerate{Send: session.Send{Post: keyed(c.Post, runID)}, Target: c.Target}
				}
			},
			"resumes": func(key session.Key) func(string) intent {
				b.suspended(key, "c1", "c2")
				c := b.resumeAt(key, b.checkpoints(key)[0].ID)
				return func(runID string) intent {
					return resume{session.Resume{Post: keyed(c.Post, runID), CheckpointID: c.CheckpointID}}
				}
			},
		} {
			key := at(name)
			command := prepare(key)
			started := make([]session.Started, crowd)
			together(func(i int) {
				var err error
				if started[i], err = b.tryOn(both[i%2], command(b.id("run"))); err != nil {
					b.Errorf("%s %d: %v", name, i, err)
				}
			})
			s, run := b.session(key)
			won := 0
			for i := range started {
				same(b, name+": run", started[i].Run.RunID, run.RunID)
				if !started[i].Repeated {
					won++
				}
			}
			if won != 1 || s.Status != session.Active || s.Turn > 2 {
				b.Errorf("%s: %d starts won, %+v", name, won, s)
			}
		}
	}},
	{"a call is answered or its session is taken back", func(b *bench) {
		both := b.both()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			b.suspended(key, "c1")
			submit, back := b.submitOf(key, "c1"), b.editOf(key, b.said(key)[0])
			var answer session.Submitted
			var unknown, busy error
			atOnce(
				func() { unknown = sendOn(b, both[round%2], key, submit.Need(), answered(&answer, submit.Decide)) },
				func() { _, busy = b.tryOn(both[1-round%2], back) },
			)
			s, run := b.session(key)
			same(b, "turn", s.Turn, int32(2))
			if unknown == nil {
				b.refuses(busy, fault.Conflict, "SESSION_BUSY")
				same(b, "run", run.RunID, answer.RunID)
				same(b, "messages", len(b.said(key)), 2)
				continue
			}
			b.must(busy)
			b.refuses(unknown, fault.NotFound, "UNKNOWN_TOOL_CALL")
			same(b, "run", run.RunID, back.RunID)
			same(b, "messages", len(b.said(key)), 1)
		}
	}},
}

// atOnce runs both, and returns when both are done.
func atOnce(one, other func()) {
	var wg sync.WaitGroup
	wg.Go(one)
	wg.Go(other)
	wg.Wait()
}

// bears is must for a goroutine of the test.
func (b *bench) bears(err error) {
	b.Helper()
	if err != nil {
		b.Errorf("got %v, want no error", err)
	}
}

// sendOn is all for one of several replicas.
func sendOn(b *bench, s store.Store, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error)) error {
	return send(b, s, b.family(), key, need, decide)
}

// takeUp lets the run that is due consume the answer to the call, as an executor
// does: with what it has read, and anew when that has changed meanwhile.
func (b *bench) takeUp(s store.Store, callID string) {
	due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: b.now}
	claimed, err := s.UpdateDue(b.Context(), due, session.Need{Calls: true}, 1, session.Claim{ExecutorID: executor, Now: b.now}.Decide)
	b.bears(err)
	for _, d := range claimed {
		ref := refOf(d)
		for revision := int32(1); ; revision++ {
			c := b.commitOf(ref, 2)
			c.Consume, c.Outcome = []session.Consume{{CallID: callID, Revision: revision}}, &completed
			err := sendOn(b, s, ref.Key, c.Need(), answered(new(session.Checkpoint), c.Decide))
			if fault.ReasonOf(err) != "ANSWER_CHANGED" || revision > 2 {
				b.bears(err)
				break
			}
		}
	}
}

// callOf returns a call, which may be a tombstone.
func (b *bench) callOf(key session.Key, id string) session.Call {
	b.Helper()
	v := b.view(key, session.Need{CallIDs: []string{id}})
	if len(v.Named) != 1 {
		b.Fatalf("session %v has no call %q", key, id)
	}
	return v.Named[0]
}

// reads fails the test unless the next step would read this answer to c1.
func (b *bench) reads(key session.Key, by session.AnswerKind, response string) {
	b.Helper()
	call := b.callOf(key, "c1")
	if call.Answer != by || string(call.Response) != response || call.Revision != 1 || call.ConsumedAt != 0 {
		b.Errorf("got %+v, want %q of %s, once", call, response, by)
	}
}
