package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/quota"
)

// withQuotas returns a change of a configuration.
func withQuotas(t *testing.T, text string) func(*Config) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "quotas.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	quotas, err := quota.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Quotas = quotas }
}

// startFor starts a run of a user.
func (b *bench) startFor(sessionID, userID string, change ...func(*statev1.StartRunRequest)) error {
	r := startOf(sessionID)
	r.UserId, r.RequestKey = userID, "key of "+sessionID
	for _, c := range change {
		c(r)
	}
	_, err := b.runs.StartRun(b.Context(), r)
	return err
}

// refusesQuota fails the test unless the error is of the quota.
func (b *bench) refusesQuota(err error, reason, limit, value string) {
	b.Helper()
	f := b.refuses(err, fault.Exhausted, reason)
	if f.Meta[fault.LimitName] != limit || f.Meta[fault.LimitValue] != value || f.RetryAfter() <= 0 {
		b.Errorf("got the metadata %v, want the limit %s of %s and a time", f.Meta, limit, value)
	}
}

func (b *bench) sessionMissing(id string) {
	b.Helper()
	_, err := b.sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: id})
	b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestStartsAboveTheRateAreRefusedUntilTimeHasPassed(t *testing.T) {
	t.Parallel()
	b := newBench(t, withQuotas(t, "tenant: {startsPerSecond: 0.01, burst: 3}\nuser: {startsPerSecond: 0.01, burst: 2}\n"))
	b.announce()
	b.must(b.startFor("s1", "u1"))
	b.must(b.startFor("s2", "u1"))
	b.refusesQuota(b.startFor("s3", "u1"), "QUOTA_STARTS", "user.startsPerSecond", "0.01")
	b.sessionMissing("s3")
	b.must(b.startFor("s1", "u1")) // a repetition
	b.must(b.startFor("s4", "u2"))
	b.refusesQuota(b.startFor("s5", "u2"), "QUOTA_STARTS", "tenant.startsPerSecond", "0.01")
	b.must(b.startFor("s6", "u2", func(r *statev1.StartRunRequest) { r.Tenant = "beta" }))
	b.advance(101 * time.Second)
	b.must(b.startFor("s3", "u1"))
	b.refusesQuota(b.startFor("s5", "u2"), "QUOTA_STARTS", "tenant.startsPerSecond", "0.01")
}

func TestQueuedRunsAboveTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withQuotas(t, "tenant: {queued: 4}\nuser: {queued: 2}\ntenants: {free: {tenant: {queued: 0}, user: {queued: 0}}}\n"))
		s := b.open("e1", 0)
		b.must(b.startFor("s1", "u1"))
		b.must(b.startFor("s1", "u1", func(r *statev1.StartRunRequest) { // it waits in its session
			r.RequestKey, r.OnBusy = "another", statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
		}))
		b.refusesQuota(b.startFor("s2", "u1"), "QUOTA_QUEUED", "user.queued", "2")
		b.sessionMissing("s2")
		b.refusesQuota(b.startFor("s1", "", func(r *statev1.StartRunRequest) { // the user of the session counts
			r.RequestKey, r.OnBusy = "a third", statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
		}), "QUOTA_QUEUED", "user.queued", "2")
		b.must(b.startFor("s1", "u1")) // a repetition
		b.must(b.startFor("s3", "u2"))
		b.must(b.startFor("s4", ""))
		b.refusesQuota(b.startFor("s5", ""), "QUOTA_QUEUED", "tenant.queued", "4")
		b.must(b.startFor("child", "u1", func(r *statev1.StartRunRequest) { // by an executor
			r.Parent = &statev1.Parent{SessionId: "s1", ToolCallId: "c", Mode: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT, Name: "n"}
		}))
		for i := range 6 {
			b.must(b.startFor(fmt.Sprint("f", i), "u1", func(r *statev1.StartRunRequest) { r.Tenant = "free" }))
		}
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 4}))
		for range 4 {
			s.execute()
		}
		b.must(b.startFor("s5", ""))
	})
}

func TestConcurrentStartsKeepTheLimitOfQueuedRuns(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		const limit, starts = 5, 40
		b := open(withQuotas(t, fmt.Sprintf("tenant: {queued: %d}", limit)))
		b.announce()
		var wg sync.WaitGroup
		for i := range starts {
			wg.Go(func() {
				if err := b.startFor(fmt.Sprint("s", i), ""); err != nil && fault.ReasonOf(err) != "QUOTA_QUEUED" {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		queued, err := b.store.PendingRuns(t.Context(), "acme", "", 100)
		if b.must(err); queued > limit || queued == 0 {
			t.Errorf("got %d queued runs, want some, and at most %d", queued, limit)
		}
	})
}

func TestStoredBytesAboveTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, withQuotas(t, "tenant: {bytes: 1000}\n"))
	b.announce()
	b.must(b.startFor("s1", ""))
	put := func(size int) error {
		return b.upload("text/plain", string(make([]byte, size)))
	}
	b.must(put(500))
	b.refusesQuota(put(600), "QUOTA_BYTES", "tenant.bytes", "1000")
	b.must(put(200))
	b.refusesQuota(b.startFor("s2", "", func(r *statev1.StartRunRequest) {
		r.Messages = append(r.Messages, userMessage(string(slices.Repeat([]byte("x"), 700))))
	}), "QUOTA_BYTES", "tenant.bytes", "1000")
	appended := func(size int) error {
		_, err := b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{
			Tenant: "acme", SessionId: "s1", Messages: []*eventv1.Message{userMessage(string(slices.Repeat([]byte("x"), size)))},
		})
		return err
	}
	b.refusesQuota(appended(700), "QUOTA_BYTES", "tenant.bytes", "1000")
	_, err := b.sessions.WriteStore(t.Context(), &statev1.WriteStoreRequest{
		Tenant: "acme", SessionId: "s1", Writes: []*statev1.StoreWrite{putting("k", `"`+strings.Repeat("x", 700)+`"`)},
	})
	b.refusesQuota(err, "QUOTA_BYTES", "tenant.bytes", "1000")
	b.must(b.startFor("s1", ""))
	if _, err := b.sessions.DeleteSession(t.Context(), &statev1.DeleteSessionRequest{Tenant: "acme", SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
}

func TestATenantAtItsCapDelaysNoOtherAndItsRunsBeginAsOthersEnd(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(withQuotas(t, "tenants: {noisy: {tenant: {inFlight: 2}}}\n"), func(c *Config) { c.Scheduler.Poll = time.Hour })
		s := b.open("e1", 20)
		for i := range 5 {
			b.must(b.startFor(fmt.Sprint("n", i), "", func(r *statev1.StartRunRequest) { r.Tenant = "noisy" }))
		}
		running := []*statev1.Claim{s.execute(), s.execute()}
		b.must(b.startFor("calm", ""))
		calm := s.execute()
		if got := calm.GetSession().GetTenant(); got != "acme" {
			t.Fatalf("got a run of %s, want the calm tenant's", got)
		}
		for range 3 { // without a poll
			s.finish(refTo(running[0]))
			running = append(running[1:], s.execute())
			if got := running[1].GetSession().GetTenant(); got != "noisy" {
				t.Errorf("got a run of %s, want the next one", got)
			}
		}
	})
}

func TestTwoReplicasKeepACapTogether(t *testing.T) {
	t.Parallel()
	first, second := replicas(t)
	quotas := withQuotas(t, "user: {inFlight: 3}\n")
	var config Config
	quotas(&config)
	for _, b := range []*bench{first, second} { // before any claim
		b.server.scheduler.Caps = config.Quotas.Caps
	}
	a, z := first.open("a", 10), second.open("z", 10)
	for i := range 8 {
		b := []*bench{first, second}[i%2]
		b.must(b.startFor(fmt.Sprint("s", i), "u1"))
	}
	var running []*statev1.Claim
	for ended := 0; ended < 8; {
		var answer *statev1.ClaimRunsResponse
		select {
		case answer = <-a.got:
		case answer = <-z.got:
		case <-time.After(testTimeout):
			t.Fatalf("%d runs run and %d have ended, and no other begins", len(running), ended)
		}
		if running = append(running, answer.GetExecute()); len(running) > 3 {
			t.Fatalf("%d runs run at once, want at most 3", len(running))
		}
		for len(running) == 3 || len(running) > 0 && ended+len(running) == 8 {
			first.finish(refTo(running[0]))
			running, ended = running[1:], ended+1
		}
	}
}

func TestAHigherPriorityBeginsFirst(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 0)
		for i, priority := range []int32{0, 0, -100, 100} {
			b.must(b.startFor(fmt.Sprint(i), "", func(r *statev1.StartRunRequest) { r.Priority = priority }))
		}
		var got []string
		for range 4 {
			b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
			claim := s.execute()
			got = append(got, claim.GetSession().GetSessionId())
			s.finish(refTo(claim))
		}
		if want := []string{"3", "0", "1", "2"}; !slices.Equal(got, want) {
			t.Errorf("got the order %q, want %q", got, want)
		}
		for _, priority := range []int32{-101, 101} {
			b.refuses(b.startFor("s", "", func(r *statev1.StartRunRequest) { r.Priority = priority }), fault.Invalid, "PRIORITY_INVALID")
		}
	})
}

// upload stores a file.
func (b *bench) upload(mediaType, content string) error {
	b.Helper()
	stream, err := b.files.PutFile(context.WithoutCancel(b.Context()))
	b.must(err)
	b.must(stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: "acme", MediaType: mediaType}}}))
	_ = stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: []byte(content)}}) // it may be refused already
	_, err = stream.CloseAndRecv()
	return err
}
