package storetest

import (
	"fmt"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// rounds is the number of races in one test.
const rounds = 8

// races run an answer on one replica and the end of its call on another. Each race has one
// outcome, and the next step reads the reported answer.
var races = []suiteCase{
	{"concurrent submits on two replicas: one is accepted", func(h *harness) {
		replicas := h.replicaPair()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			h.startSuspended(key, "c1")
			one, all := h.submitOf(key, "c1"), h.submitAllOf(key, "c1", "c1")
			one.Response, all.Answers[0].Response = []byte("one"), []byte("all")
			var single session.Submitted
			var bulk []session.Submitted
			race(
				func() { h.check(sendOn(h, replicas[0], one.Key, one.Need(), capturing(&single, one.Decide))) },
				func() { h.check(sendOn(h, replicas[1], all.Key, all.Need(), capturing(&bulk, all.Decide))) },
			)
			reads, first, second := "all", bulk[0], single
			if single.Status == session.Accepted {
				reads, first, second = "one", single, bulk[0]
			}
			if first.Status != session.Accepted || first.Continuation != session.ContinueNewRun || second.Status != session.AlreadyCompleted ||
				second.Continuation != session.ContinueLiveRun || bulk[1].Status != session.AlreadyCompleted {
				h.Errorf("got %+v and %+v", single, bulk)
			}
			h.expectAnswer(key, session.AnswerClient, reads)
			same(h, "turn", h.snapshot(key).Session.Turn, int32(2))
		}
	}},
	{"an answer races a message that abandons its call", func(h *harness) {
		replicas := h.replicaPair()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			h.startSuspended(key, "c1")
			submit, start := h.submitOf(key, "c1"), h.abandoningStart(key)
			var answer session.Submitted
			var refused error
			race(
				func() { h.check(sendOn(h, replicas[round%2], key, submit.Need(), capturing(&answer, submit.Decide))) },
				func() { _, refused = h.tryStartOn(replicas[1-round%2], start) },
			)
			s, run := h.session(key)
			same(h, "turn", s.Turn, int32(2))
			if answer.Status == session.Accepted {
				h.refuses(refused, fault.Conflict, "SESSION_BUSY")
				same(h, "run", run.RunID, answer.RunID)
				h.expectAnswer(key, session.AnswerClient, "answer to c1")
				continue
			}
			h.must(refused)
			if answer.Status != session.AlreadyCompleted || answer.Continuation != session.ContinueLiveRun || answer.RunID != start.RunID {
				h.Errorf("got %+v, want it completed already", answer)
			}
			same(h, "run", run.RunID, start.RunID)
			h.expectAnswer(key, session.AnswerAbandoned, "gone")
		}
	}},
	{"an answer races a message with another answer", func(h *harness) {
		replicas := h.replicaPair()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			h.startSuspended(key, "c1", "c2")
			submit, start := h.submitOf(key, "c1"), h.abandoningStart(key, "c1")
			var answer session.Submitted
			var started session.Started
			race(
				func() { h.check(sendOn(h, replicas[round%2], key, submit.Need(), capturing(&answer, submit.Decide))) },
				func() {
					h.check(sendOn(h, replicas[1-round%2], key, start.Need(), capturingWide(&started, start.Decide)))
				},
			)
			same(h, "abandoned", started.Abandoned, []string{"c2"})
			reads := "c1"
			if answer.Status == session.Accepted {
				reads = "answer to c1"
			} else {
				same(h, "answer", answer.Status, session.AlreadyCompleted)
			}
			h.expectAnswer(key, session.AnswerClient, reads)
		}
	}},
	{"an answer races its deadline", func(h *harness) {
		replicas := h.replicaPair()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			h.start(h.startOf(key))
			ref := h.claimOf(key)
			c := h.suspendingCommit(ref, 1, "c1")
			c.Calls[0].DeadlineAt = h.now + 10
			h.commit(c)
			h.now += 20
			submit := h.submitOf(key, "c1")
			var answer session.Submitted
			race(
				func() { h.check(sendOn(h, replicas[0], key, submit.Need(), capturing(&answer, submit.Decide))) },
				func() {
					t := session.TimeoutCalls{
						Key: key, Response: func(session.Call) []byte { return []byte("timeout") }, NewRunID: h.id("run"), Now: h.now,
					}
					h.check(sendOn(h, replicas[1], key, t.Need(), capturing(new([]session.Call), t.Decide)))
					h.consumeAnswer(replicas[1], "c1")
				},
			)
			h.consumeAnswer(replicas[0], "c1") // if the answer has continued the session
			call := h.readCall(key, "c1")
			switch answer.Status {
			case session.Accepted:
				same(h, "what was read", fmt.Sprintf("%s %s", call.Answer, call.Response), "client answer to c1")
				same(h, "late answer", string(call.Late), "")
			case session.LateAnswer:
				same(h, "what was read", fmt.Sprintf("%s %s", call.Answer, call.Response), "timeout timeout")
				same(h, "late answer", string(call.Late), "answer to c1")
			default:
				h.Errorf("got %+v", answer)
			}
			if s := h.snapshot(key).Session; call.ConsumedStep != 2 || s.Turn != 2 || s.StepCount != 2 {
				h.Errorf("got %+v of %+v, want it consumed once", call, s)
			}
		}
	}},
	{"an answer races the session's expiry", func(h *harness) {
		replicas := h.replicaPair()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			h.start(h.startOf(key))
			c := h.suspendingCommit(h.claimOf(key), 1, "c1")
			c.ExpireAfter = 10
			h.commit(c)
			h.now += 20
			submit, expire := h.submitOf(key, "c1"), session.Expire{Key: key, Now: h.now}
			submit.Now -= 15 // just in time, by the clock of its replica
			var answer session.Submitted
			var expired session.ExpiryResult
			var refused error
			race(
				func() { refused = sendOn(h, replicas[round%2], key, submit.Need(), capturing(&answer, submit.Decide)) },
				func() {
					h.check(sendOn(h, replicas[1-round%2], key, expire.Need(), capturing(&expired, expire.Decide)))
				},
			)
			s := h.snapshot(key).Session
			if refused == nil {
				same(h, "expired", expired, session.ExpiryNotDue)
				same(h, "status", s.Status, session.Active)
				same(h, "answer", answer.Status, session.Accepted)
				h.expectAnswer(key, session.AnswerClient, "answer to c1")
				continue
			}
			h.refuses(refused, fault.NotFound, "UNKNOWN_TOOL_CALL")
			same(h, "status", s.Status, session.Failed)
			same(h, "reason", s.Failure.Reason, session.SessionExpired)
			same(h, "turn", s.Turn, int32(1))
		}
	}},
	{"equal starts on two replicas start one run", func(h *harness) {
		replicas := h.replicaPair()
		for name, prepare := range equalStarts(h) {
			key := at(name)
			command := prepare(key)
			started := make([]session.Started, parallelism)
			concurrently(func(i int) {
				var err error
				if started[i], err = h.tryStartOn(replicas[i%2], command(h.id("run"))); err != nil {
					h.Errorf("%s %d: %v", name, i, err)
				}
			})
			s, run := h.session(key)
			won := 0
			for i := range started {
				same(h, name+": run", started[i].Run.RunID, run.RunID)
				if !started[i].Repeated {
					won++
				}
			}
			if won != 1 || s.Status != session.Active || s.Turn > 2 {
				h.Errorf("%s: %d starts won, %+v", name, won, s)
			}
		}
	}},
	{"an answer races a rewind of the session", func(h *harness) {
		replicas := h.replicaPair()
		for round := range rounds {
			key := at(fmt.Sprint(round))
			h.startSuspended(key, "c1")
			submit, back := h.submitOf(key, "c1"), h.editOf(key, h.messageIDs(key)[0])
			var answer session.Submitted
			var unknown, busy error
			race(
				func() { unknown = sendOn(h, replicas[round%2], key, submit.Need(), capturing(&answer, submit.Decide)) },
				func() { _, busy = h.tryStartOn(replicas[1-round%2], back) },
			)
			s, run := h.session(key)
			same(h, "turn", s.Turn, int32(2))
			if unknown == nil {
				h.refuses(busy, fault.Conflict, "SESSION_BUSY")
				same(h, "run", run.RunID, answer.RunID)
				same(h, "messages", len(h.messageIDs(key)), 2)
				continue
			}
			h.must(busy)
			h.refuses(unknown, fault.NotFound, "UNKNOWN_TOOL_CALL")
			same(h, "run", run.RunID, back.RunID)
			same(h, "messages", len(h.messageIDs(key)), 1)
		}
	}},
}

// equalStarts returns functions to prepare a session, by name. Each returns a function to make
// equal starts with different run ids.
func equalStarts(h *harness) map[string]func(session.Key) func(runID string) intent {
	keyed := func(c session.RunRequest, runID string) session.RunRequest {
		c.RequestKey, c.RequestHash, c.RunID = "k", []byte("h"), runID
		return c
	}
	return map[string]func(session.Key) func(runID string) intent{
		"new": func(key session.Key) func(string) intent {
			c := h.startOf(key)
			return func(runID string) intent {
				return session.Send{RunRequest: keyed(c.RunRequest, runID), NewSession: c.NewSession}
			}
		},
		"abandons": func(key session.Key) func(string) intent {
			h.startSuspended(key, "c1", "c2")
			c := h.abandoningStart(key, "c1")
			return func(runID string) intent {
				return session.Send{RunRequest: keyed(c.RunRequest, runID), NewSession: c.NewSession}
			}
		},
		"rewinds": func(key session.Key) func(string) intent {
			h.startSuspended(key, "c1", "c2")
			c := h.regenerateOf(key, h.messageIDs(key)[0])
			return func(runID string) intent {
				return session.Regenerate{Send: session.Send{RunRequest: keyed(c.RunRequest, runID)}, Target: c.Target}
			}
		},
		"resumes": func(key session.Key) func(string) intent {
			h.startSuspended(key, "c1", "c2")
			c := h.resumeAt(key, h.checkpoints(key)[0].ID)
			return func(runID string) intent {
				return session.Resume{RunRequest: keyed(c.RunRequest, runID), CheckpointID: c.CheckpointID}
			}
		},
	}
}

// race runs both functions concurrently and waits for them.
func race(one, other func()) {
	var wg sync.WaitGroup
	wg.Go(one)
	wg.Go(other)
	wg.Wait()
}

// check is must for other goroutines than the test's own.
func (h *harness) check(err error) {
	h.Helper()
	if err != nil {
		h.Errorf("got %v, want no error", err)
	}
}

// sendOn is sendWidened on a given replica.
func sendOn(h *harness, s store.Store, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error)) error {
	return send(h, s, h.family(), key, need, decide)
}

// consumeAnswer claims the due run, if any, and commits a step to consume the answer to the
// call. When the answer has changed meanwhile, it repeats the commit with the next
// revision, as an executor does.
func (h *harness) consumeAnswer(s store.Store, callID string) {
	due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: h.now}
	claimed, err := s.UpdateDue(h.Context(), due, session.Need{Calls: true}, 1, session.Claim{ExecutorID: executor, Now: h.now}.Decide)
	h.check(err)
	for _, d := range claimed {
		ref := refOf(d)
		for revision := int32(1); ; revision++ {
			c := h.commitOf(ref, 2)
			c.Consume, c.Outcome = []session.Consume{{CallID: callID, Revision: revision}}, &completed
			err := sendOn(h, s, ref.Key, c.Need(), capturing(new(session.Checkpoint), c.Decide))
			if fault.ReasonOf(err) != "ANSWER_CHANGED" || revision > 2 {
				h.check(err)
				break
			}
		}
	}
}

// readCall returns a call; it may be a tombstone.
func (h *harness) readCall(key session.Key, id string) session.Call {
	h.Helper()
	v := h.readView(key, session.Need{CallIDs: []string{id}})
	if len(v.NamedCalls) != 1 {
		h.Fatalf("session %v has no call %q", key, id)
	}
	return v.NamedCalls[0]
}

// expectAnswer fails the test unless this answer to c1 waits for the next step.
func (h *harness) expectAnswer(key session.Key, by session.AnswerKind, response string) {
	h.Helper()
	call := h.readCall(key, "c1")
	if call.Answer != by || string(call.Response) != response || call.Revision != 1 || call.ConsumedAt != 0 {
		h.Errorf("got %+v, want %q of %s, once", call, response, by)
	}
}
