package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

func TestADeletedSessionTakesItsFamilyAlong(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.Family = 5 })
		s := b.open("e1", 10)
		b.start("root")
		ref := refTo(s.execute())
		b.createChild("root", "a")
		b.createChild("a", "aa")
		b.createChild("root", "b")
		b.createChild("root", "c")
		b.create("stranger")
		gone, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "root"}) // five, the limit
		if err != nil || gone.GetDeleted() != 5 {
			t.Errorf("got %v, %v; want five", gone, err)
		}
		for _, id := range []string{"root", "a", "aa", "b", "c"} {
			_, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: id})
			b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		}
		_, err = b.work.CommitStep(t.Context(), step(ref, 1))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.get("stranger")
	})
}

func TestAFamilyThatIsTooLargeChangesNothing(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Limits.Family = 3 })
		b.announce()
		b.create("root")
		for i := range 3 {
			b.createChild("root", fmt.Sprint("child", i))
		}
		before := b.get("root")
		_, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "root"})
		b.refuses(err, fault.Conflict, "FAMILY_TOO_LARGE")
		if after := b.get("root"); !proto.Equal(before, after) {
			t.Errorf("got %v, want it as it was", after)
		}
		gone, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "child0"})
		if err != nil || gone.GetDeleted() != 1 {
			t.Errorf("got %v, %v; want a branch deleted", gone, err)
		}
	})
}

func TestAFailedParentEndsItsChildren(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("root")
		root := refTo(s.execute())
		child := startOf("child")
		child.Parent = &statev1.Parent{SessionId: "root", Mode: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT, Name: "helper"}
		_, err := b.runs.StartRun(t.Context(), child)
		b.must(err)
		running := refTo(s.execute())
		if ref := b.get("root").GetSubSessions()[0]; ref.GetName() != "helper" || ref.GetMode() != statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT || ref.GetAgentType() != "support" {
			t.Errorf("got %v", ref)
		}
		b.createChild("child", "deep")
		b.commit(endingStep(root, 1, failed))
		for _, id := range []string{"child", "deep"} {
			if got := b.get(id).GetSession(); got.GetStatus() != sessionKO || got.GetFailure().GetFailureReason() != "parent_failed" || got.GetRootSessionId() != "root" {
				t.Errorf("got %v, want it failed with its parent", got)
			}
		}
		_, err = b.work.CommitStep(t.Context(), step(running, 1))
		b.refuses(err, fault.Stale, "EPOCH_STALE")
	})
}

func TestExpiryMarksExpiredSessionsAndCountsThem(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.SuspendedTTL, c.Limits.Family = time.Hour, 3 })
		s := b.open("e1", 10)
		s.suspend("waits", "c1")
		b.create("root", func(r *statev1.CreateSessionRequest) { r.ExpiresAt = b.now().Add(time.Minute).UnixMilli() })
		b.createChild("root", "child")
		b.create("kept")
		b.create("stuck", func(r *statev1.CreateSessionRequest) { r.ExpiresAt = b.now().Add(time.Minute).UnixMilli() })
		for i := range 3 {
			b.createChild("stuck", fmt.Sprint("stuck", i))
		}
		expire := func(limit int32) *statev1.ExpireSessionsResponse {
			got, err := b.operator.ExpireSessions(t.Context(), &statev1.ExpireSessionsRequest{Limit: limit})
			b.must(err)
			return got
		}
		if got := expire(0); !proto.Equal(got, &statev1.ExpireSessionsResponse{}) {
			t.Errorf("got %v, want nothing yet", got)
		}
		b.advance(2 * time.Minute)
		if got, want := expire(0), (&statev1.ExpireSessionsResponse{Detected: 2, Marked: 1, Errors: 1}); !proto.Equal(got, want) {
			t.Errorf("got %v, want %v: one has too large a family", got, want)
		}
		b.advance(2 * time.Hour)
		if got, want := expire(2), (&statev1.ExpireSessionsResponse{Detected: 2, Marked: 1, Errors: 1}); !proto.Equal(got, want) {
			t.Errorf("got %v, want %v: a stuck session delays no other", got, want)
		}
		for id, reason := range map[string]string{"waits": "session_expired", "root": "session_expired", "child": "parent_failed", "kept": "", "stuck": ""} {
			if got := b.get(id); got.GetSession().GetFailure().GetFailureReason() != reason || len(got.GetCalls()) != 0 {
				t.Errorf("%s: got %v, want reason %q", id, got, reason)
			}
		}
	})
}

func TestASessionThatIsResumedDoesNotExpire(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.SuspendedTTL = time.Hour })
	s := b.open("e1", 10)
	s.suspend("s", "c1")
	b.submit("s", "c1", result(`1`))
	if got := b.get("s").GetSession().GetExpiresAt(); got != 0 {
		t.Errorf("got %d, want no expiry", got)
	}
	became, err := b.server.overdue.expireSession(t.Context(), session.Key{Tenant: "acme", SessionID: "s"})
	if err != nil || became != session.ExpiryNotDue {
		t.Errorf("got %v, %v; want it not due", became, err)
	}
}

// writeCounter counts writes and their targets.
type writeCounter struct {
	store.Store
	writes, targets atomic.Int64
}

// parts returns the store with its wrapped parts.
func (c *writeCounter) parts() store.Store {
	s := c.Store
	s.Updater = c
	return s
}

func (c *writeCounter) Update(ctx context.Context, targets []session.Target, bytes int, decide store.Decide) error {
	c.writes.Add(1)
	c.targets.Add(int64(len(targets)))
	if bytes <= 0 {
		return errors.New("a command without a size")
	}
	return c.Store.Update(ctx, targets, bytes, decide)
}

func TestAStepThatEndsNothingIsOneWriteOfOneSession(t *testing.T) {
	t.Parallel()
	c := &writeCounter{Store: sqlitetest.Open(t)}
	b := newBenchOn(t, c.parts())
	s := b.open("e1", 10)
	b.start("root")
	s.execute()
	child := startOf("child")
	child.Parent = &statev1.Parent{SessionId: "root"}
	_, err := b.runs.StartRun(t.Context(), child)
	b.must(err)
	ref := refTo(s.execute())
	writes, targets := c.writes.Load(), c.targets.Load()
	b.commit(step(ref, 1))
	b.commit(step(ref, 2))
	if c.writes.Load() != writes+2 || c.targets.Load() != targets+2 {
		t.Errorf("got %d writes of %d sessions for two steps", c.writes.Load()-writes, c.targets.Load()-targets)
	}
	b.commit(endingStep(ref, 3, completed))
	if c.writes.Load() != writes+4 || c.targets.Load() != targets+5 {
		t.Errorf("got %d writes of %d sessions more for the end; want one that asks for the parent, and one of both", c.writes.Load()-writes-2, c.targets.Load()-targets-2)
	}
}
