package server

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func runIDsOf(runs []*statev1.Run) (ids []string) {
	for _, run := range runs {
		ids = append(ids, run.GetRunId())
	}
	return ids
}

// messageOf returns the ids of the runs of the message that the run writes; of the newest message for an empty id.
func (b *bench) messageOf(sessionID, runID string) []string {
	b.Helper()
	got, err := b.sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: sessionID, MessageOfRun: proto.String(runID)})
	b.must(err)
	return runIDsOf(got.GetMessageRuns())
}

// More runs than the first page has continue the message.
func TestTheRunsOfAMessageComeWithSessionsAnswersAndRepetitions(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 100)
		earlier := startOf("s")
		earlier.Messages[0].Id, earlier.RequestKey = "m0", "k0"
		alone := b.send(earlier).GetRun().GetRunId()
		b.commit(endingStep(refTo(s.execute()), 1, completed))
		first := startOf("s")
		first.Messages[0].Id, first.RequestKey = "m1", "k1"
		want := []string{b.send(first).GetRun().GetRunId()}
		number := int32(2)
		for i := range firstRuns + 3 {
			call := fmt.Sprint("c", i)
			commit := suspendingStep(refTo(s.execute()), number, call)
			if i > 0 {
				commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: fmt.Sprint("c", i-1), Revision: 1}}
			}
			b.commit(commit)
			number++
			none := b.submits("s")
			if got := none.GetAwaitedCalls(); len(got) != 1 || got[0].GetToolCallId() != call || got[0].GetInput() == "" {
				t.Errorf("got the awaited calls %v, want %s", got, call)
			}
			got := b.submits("s", answersTo(call)...)
			want = append(want, got.GetRun().GetRunId())
			if runs := runIDsOf(got.GetMessageRuns()); !slices.Equal(runs, want) || len(got.GetAwaitedCalls()) != 0 {
				t.Fatalf("got %q and the awaited calls %v, want %q and none", runs, got.GetAwaitedCalls(), want)
			}
		}
		for _, run := range []string{"", want[0], want[4], want[len(want)-1]} {
			if got := b.messageOf("s", run); !slices.Equal(got, want) {
				t.Errorf("the message of %q: got the runs %q, want %q", run, got, want)
			}
		}
		if got := b.messageOf("s", alone); !slices.Equal(got, []string{alone}) {
			t.Errorf("got %q, want the run alone", got)
		}
		if got := b.get("s").GetMessageRuns(); got != nil {
			t.Errorf("got %v, want no runs, which were not requested", got)
		}
		_, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s", MessageOfRun: proto.String("unknown")})
		b.refuses(err, fault.NotFound, "RUN_NOT_FOUND")

		end := endingStep(refTo(s.execute()), number, completed)
		end.Outcome.Output = `"done"`
		end.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: fmt.Sprint("c", firstRuns+2), Revision: 1}}
		b.commit(end)
		repeats := func(what string, r *statev1.StartRunRequest, want ...string) {
			t.Helper()
			got := b.send(r)
			if runs := runIDsOf(got.GetMessageRuns()); !got.GetRepeated() || !slices.Equal(runs, want) {
				t.Errorf("%s: got %v of the runs %q, want a repetition with %q", what, got.GetRepeated(), runs, want)
			}
			if slices.ContainsFunc(got.GetMessageRuns(), func(run *statev1.Run) bool { return run.GetOutput() != "" }) {
				t.Errorf("%s: got outputs", what)
			}
		}
		repeats("the newest message", first, want...)
		repeats("an earlier message", earlier, alone)
		edit := editing("s", said(eventv1.Role_ROLE_USER, "m1", "anew"))
		edit.RequestKey = "k2"
		edited := b.send(edit).GetRun().GetRunId()
		repeats("an edit", edit, edited)
		repeats("a removed message", first)
		repeats("a message before it", earlier, alone)
		if got := b.messageOf("s", want[0]); !slices.Equal(got, want) {
			t.Errorf("the removed message: got the runs %q, want %q", got, want)
		}
	})
}

// readsOfRuns counts the pages of runs that are read, and their rows.
type readsOfRuns struct {
	store.Reader
	pages, rows *int
}

func (r readsOfRuns) Runs(ctx context.Context, key session.Key, before int32, limit int) ([]session.Run, error) {
	page, err := r.Reader.Runs(ctx, key, before, limit)
	*r.pages++
	*r.rows += len(page)
	return page, err
}

// A reader may name any run, so the work must not grow with the session.
func TestTheSearchForTheRunsOfAMessageIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 2000)
	turn := int32(0)
	ends := func() string {
		turn++
		id := b.start("s").GetRun().GetRunId()
		b.commit(endingStep(refTo(s.execute()), turn, completed))
		return id
	}
	first := ends()
	ids := []string{b.start("s").GetRun().GetRunId()}
	for i := range maxMessageRuns + 10 {
		turn++
		commit := suspendingStep(refTo(s.execute()), turn, fmt.Sprint("c", i))
		if i > 0 {
			commit.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: fmt.Sprint("c", i-1), Revision: 1}}
		}
		b.commit(commit)
		ids = append(ids, b.submits("s", answersTo(fmt.Sprint("c", i))...).GetRun().GetRunId())
	}
	if got, want := b.messageOf("s", ""), ids[len(ids)-maxMessageRuns:]; !slices.Equal(got, want) {
		t.Errorf("got %d runs, want the %d newest", len(got), len(want))
	}
	turn++
	end := endingStep(refTo(s.execute()), turn, completed)
	end.ConsumedCalls = []*statev1.ConsumedCall{{ToolCallId: fmt.Sprint("c", maxMessageRuns+9), Revision: 1}}
	b.commit(end)
	for range 250 {
		ends()
	}
	key := session.Key{Tenant: "acme", SessionID: "s"}
	snapshot, err := b.store.Session(t.Context(), key)
	b.must(err)
	named, err := b.store.Run(t.Context(), key, first)
	b.must(err)
	pages, rows := 0, 0
	runs, err := messageRuns(t.Context(), readsOfRuns{b.store, &pages, &rows}, key, named, snapshot.Current)
	if err != nil || len(runs) != 1 || runs[0].RunID != first {
		t.Errorf("got %v, %v, want the run alone", runs, err)
	}
	if pages > 3 || rows > 2*maxMessageRuns {
		t.Errorf("read %d rows in %d pages of a session with %d runs", rows, pages, snapshot.Session.Turn)
	}
}

func TestARepeatedRequestThatWaitsHasItsRunAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.start("s")
	r := startOf("s")
	r.Messages[0].Id, r.RequestKey, r.OnBusy = "m1", "k1", statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
	waiting := b.send(r)
	if len(waiting.GetMessageRuns()) != 0 {
		t.Errorf("got %v, want no runs, because the request is no repetition", waiting)
	}
	if got := b.send(r); !got.GetWaiting() || !slices.Equal(runIDsOf(got.GetMessageRuns()), []string{waiting.GetRun().GetRunId()}) {
		t.Errorf("got %v, want the waiting run", got)
	}
	if got := b.messageOf("s", waiting.GetRun().GetRunId()); !slices.Equal(got, []string{waiting.GetRun().GetRunId()}) {
		t.Errorf("got %q, want the waiting run", got)
	}
}

func TestANewSessionGetsTheDefaultAgent(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		send := func(id, agent, fallback string) (*statev1.StartRunResponse, error) {
			r := startOf(id)
			r.AgentType, r.DefaultAgentType, r.OnBusy = agent, fallback, statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
			return b.runs.StartRun(t.Context(), r)
		}
		_, err := send("s", "", "")
		b.refuses(err, fault.Invalid, "AGENT_REQUIRED") // there is none
		b.announce()
		started, err := send("s", "", "")
		b.must(err)
		if got := started.GetSession().GetAgentType(); got != "support" {
			t.Errorf("got the agent %q, want the only one", got)
		}
		b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "e2", Agents: []*statev1.Agent{{AgentType: "sales"}}})
		_, err = send("other", "", "")
		b.refuses(err, fault.Invalid, "AGENT_REQUIRED")
		_, err = send("other", "", "nobody")
		b.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		for i, want := range []struct{ session, agent, fallback, got string }{
			{"a", "", "sales", "sales"}, {"b", "support", "sales", "support"}, {"s", "", "sales", "support"}, {"s", "", "nobody", "support"}, {"s", "", "", "support"},
		} {
			started, err := send(want.session, want.agent, want.fallback)
			b.must(err)
			if got := started.GetSession().GetAgentType(); got != want.got || started.GetRun().GetAgentType() != want.got {
				t.Errorf("%d: got the agent %q, want %q", i, got, want.got)
			}
		}
	})
}

// The executor of the default agent must not receive the run of another agent.
func TestARunIsHandedToAnExecutorOfItsAgentWhateverTheDefault(t *testing.T) {
	t.Parallel()
	stagedOnEveryStore(t, func(b *bench, _ *stagedStore) {
		support := b.open("e1", 10)
		sales := b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "e2", Agents: []*statev1.Agent{{AgentType: "sales"}}, Credits: 10})
		for i, want := range []struct {
			session, agent string
			by             *stream
		}{{"a", "", sales}, {"b", "support", support}, {"b", "", support}, {"a", "", sales}} {
			b.waitUntilIdle("e1", "e2")
			r := startOf(want.session)
			r.AgentType, r.DefaultAgentType = want.agent, "sales"
			started := b.send(r)
			if got := b.status(want.session); got != runRunning {
				b.Errorf("%d: got a run that is %v, want it handed over", i, got)
			}
			claim := want.by.execute()
			if claim.GetRun().GetRunId() != started.GetRun().GetRunId() {
				b.Errorf("%d: got %v, want the started run", i, claim)
			}
			b.commit(endingStep(refTo(claim), claim.GetSession().GetStepCount()+1, completed))
		}
		b.waitUntilIdle("e1", "e2")
		if e1, e2 := b.freeCredits("e1"), b.freeCredits("e2"); e1 != 8 || e2 != 8 {
			b.Errorf("got %d and %d credits, want those of the runs taken alone", e1, e2)
		}
	})
}

func TestAnUnknownAnswerIsRefusedOnRequestIfItsMessageWouldWait(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		s.suspend("s", "c1")
		b.submits("s", answersTo("c1")...)
		ref := refTo(s.execute())
		r := startOf("s")
		r.AbandonCalls, r.OnBusy, r.RefuseUnknownAnswers = true, statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, true
		r.Answers = answersTo("c1", "server")
		_, err := b.runs.StartRun(t.Context(), r)
		b.refuses(err, fault.Conflict, "ANSWERS_UNKNOWN")
		if got := b.get("s").GetWaiting(); len(got) != 0 {
			t.Errorf("got %v, want nothing to wait", got)
		}
		b.planning(ref, 2, "early")
		r.Answers = answersTo("server", "early")
		_, err = b.runs.StartRun(t.Context(), r)
		b.refuses(err, fault.Unavailable, "CALL_NOT_OPEN") // before the unknown one
		r.Answers = answersTo("c1")
		if got := b.send(r); !got.GetWaiting() {
			t.Errorf("got %v, want it to wait: all calls are known", got)
		}
		r.Answers, r.RefuseUnknownAnswers = answersTo("server"), false
		if got := b.send(r); !got.GetWaiting() {
			t.Errorf("got %v, want it to wait: nothing is refused", got)
		}
		r.RefuseUnknownAnswers, r.OnBusy = true, statev1.BusyPolicy_BUSY_POLICY_REJECT
		_, err = b.runs.StartRun(t.Context(), r)
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
	})
}
