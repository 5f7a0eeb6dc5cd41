package server

import (
	"testing"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// queuedReason returns the reason of the session's run, from all reads, which must agree.
func (b *bench) queuedReason(sessionID string) *statev1.QueuedReason {
	b.Helper()
	run := b.get(sessionID).GetCurrentRun()
	one, err := b.runs.GetRun(b.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: sessionID, RunId: run.GetRunId()})
	b.must(err)
	list, err := b.runs.ListRuns(b.Context(), &statev1.ListRunsRequest{Tenant: "acme", SessionId: sessionID})
	b.must(err)
	reason := run.GetQueuedReason()
	for read, other := range map[string]*statev1.QueuedReason{"GetRun": one.GetRun().GetQueuedReason(), "ListRuns": list.GetRuns()[0].GetQueuedReason()} {
		if other.GetReason() != reason.GetReason() || other.GetSince() != reason.GetSince() {
			b.Errorf("%s: got %v, and GetSession %v", read, other, reason)
		}
	}
	return reason
}

// expectReason fails the test unless the session's run is queued for the reason, since its creation.
func (b *bench) expectReason(sessionID string, want statev1.QueuedReason_Reason, detail string) {
	b.Helper()
	got := b.queuedReason(sessionID)
	since := b.get(sessionID).GetCurrentRun().GetCreatedAt()
	if got.GetReason() != want || got.GetDetail() != detail || got.GetSince() != since {
		b.Errorf("%s: got %v, want %v since %d: %s", sessionID, got, want, since, detail)
	}
}

func TestAQueuedRunSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withQuotas(t, "tenant: {inFlight: 2}\nuser: {inFlight: 1}\n"), func(c *Config) { c.Scheduler.Poll = 5 * time.Millisecond })
		s := b.open("e1", 0)
		b.must(b.startFor("s1", "u1"))
		if got := b.queuedReason("s1"); got != nil {
			t.Errorf("got %v of a run that was just queued", got)
		}
		b.advance(time.Second)
		b.expectReason("s1", statev1.QueuedReason_REASON_NO_FREE_SLOT, `the executors that serve the agent "support" have no free slot`)
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 9}))
		s.execute()
		if got := b.queuedReason("s1"); got != nil {
			t.Errorf("got %v of a running run", got)
		}
		b.must(b.startFor("s2", "u1"))
		b.advance(2 * time.Second)
		b.expectReason("s2", statev1.QueuedReason_REASON_USER_IN_FLIGHT, "1 runs of the user are running, as many as the quota inFlight allows")
		b.must(b.startFor("s3", "u2"))
		s.execute()
		b.expectReason("s2", statev1.QueuedReason_REASON_TENANT_IN_FLIGHT, "2 runs of the tenant are running, as many as its quota inFlight allows")
	})
}

func TestARunWithoutAnExecutorOfItsAgentSaysSo(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.start("a")
		b.must(b.store.Announce(t.Context(), "e1", nil, b.millis()))
		if _, err := b.store.UnregisterSilent(t.Context(), b.millis()+1); err != nil {
			t.Fatal(err)
		}
		b.advance(time.Minute)
		b.expectReason("a", statev1.QueuedReason_REASON_NO_EXECUTOR, `no executor serves the agent "support"`)
	})
}

func TestARunThatAnExecutorGaveBackSaysWhenItMayBegin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	b.start("a")
	claim := s.execute()
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: refTo(claim), DelayMs: time.Minute.Milliseconds()})
	b.must(err)
	b.advance(2 * time.Second)
	got := b.queuedReason("a")
	if got.GetReason() != statev1.QueuedReason_REASON_DELAYED || got.GetSince() < claim.GetRun().GetStartedAt() {
		t.Errorf("got %v", got)
	}
}
