package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/audit"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// ledger keeps entries as the state service does: each id once.
type ledger struct {
	statev1.AuditServiceClient
	mu      sync.Mutex
	away    bool
	entries []*statev1.TenantEvent
	ids     map[string]bool
}

func (l *ledger) RecordEvents(_ context.Context, r *statev1.RecordEventsRequest, _ ...grpc.CallOption) (*statev1.RecordEventsResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, errors.New("away")
	}
	if len(r.GetEvents()) > 200 {
		return nil, errors.New("too many events")
	}
	for _, e := range r.GetEvents() {
		if id := e.GetEvent().GetId(); !l.ids[id] {
			l.ids[id] = true
			l.entries = append(l.entries, e)
		}
	}
	return &statev1.RecordEventsResponse{}, nil
}

// ofAction returns the entries with the action.
func (l *ledger) ofAction(action string) (list []*statev1.TenantEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.GetEvent().GetAction() == action {
			list = append(list, e)
		}
	}
	return list
}

// reporting runs a test with reporters that share a ledger, in a bubble of fake time.
func reporting(t *testing.T, test func(t *testing.T, l *ledger, first, second *audit.Reporter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{ids: map[string]bool{}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var reporters [2]*audit.Reporter
		for i := range reporters {
			n := 0
			reporters[i] = &audit.Reporter{State: l, Now: time.Now, Log: slog.New(slog.DiscardHandler), NewID: func() string { n++; return fmt.Sprint(i, "-", n) }}
			wg.Go(func() { reporters[i].Run(ctx) })
		}
		test(t, l, reporters[0], reporters[1])
		cancel()
		wg.Wait()
	})
}

func TestRefusalsOfAMinuteAreOneEntryForEachCaller(t *testing.T) {
	t.Parallel()
	reporting(t, func(t *testing.T, l *ledger, r, _ *audit.Reporter) {
		for i := range 1000 {
			r.Record(t.Context(), auth.Event{Action: auth.CredentialRefused, Address: "192.0.2.1", Target: fmt.Sprint("/chat/", i)})
			r.Record(t.Context(), auth.Event{Action: auth.ScopeMissing, Tenant: "acme", Actor: "user:mia", Target: "GET /audit"})
		}
		time.Sleep(2 * time.Minute)
		refused, scopes := l.ofAction(auth.CredentialRefused), l.ofAction(auth.ScopeMissing)
		if len(refused) != 1 || len(scopes) != 1 {
			t.Fatalf("got %d and %d entries, want one of each", len(refused), len(scopes))
		}
		if e := refused[0].GetEvent(); e.GetActor() != "address:192.0.2.1" || e.GetOutcome() != "refused" || !strings.Contains(e.GetDetail(), `"count":1000`) || refused[0].GetTenant() != "" {
			t.Errorf("got %v", refused[0])
		}
		if e := scopes[0].GetEvent(); e.GetActor() != "user:mia" || e.GetTargetId() != "GET /audit" || scopes[0].GetTenant() != "acme" {
			t.Errorf("got %v", scopes[0])
		}
	})
}

func TestAFloodOfRefusalsIsBoundedAndCounted(t *testing.T) {
	t.Parallel()
	reporting(t, func(t *testing.T, l *ledger, r, _ *audit.Reporter) {
		const flood = 5000
		for i := range flood {
			r.Record(t.Context(), auth.Event{Action: auth.CredentialRefused, Address: fmt.Sprint("2001:db8::", i)})
		}
		r.Record(t.Context(), auth.Event{Action: auth.TokenMinted, Tenant: "acme", Actor: "key:k", Target: "mia"}) // not hidden by the flood
		time.Sleep(2 * time.Minute)
		if got := len(l.ofAction(auth.CredentialRefused)); got != audit.MaxRefusals {
			t.Errorf("got %d entries, want %d", got, audit.MaxRefusals)
		}
		if got := l.ofAction("audit.dropped"); len(got) != 1 || got[0].GetEvent().GetDetail() != fmt.Sprintf(`{"count":%d}`, flood-audit.MaxRefusals) {
			t.Errorf("got %v, want one entry with the number", got)
		}
		if got := l.ofAction(auth.TokenMinted); len(got) != 1 || got[0].GetEvent().GetTargetKind() != "token" {
			t.Errorf("got %v, want the token", got)
		}
	})
}

func TestTheNoiseOfOneTenantHidesNothingOfAnother(t *testing.T) {
	t.Parallel()
	reporting(t, func(t *testing.T, l *ledger, r, _ *audit.Reporter) {
		away := func(is bool) { l.mu.Lock(); l.away = is; l.mu.Unlock() }
		away(true)
		noise := func() {
			for i := range 2 * audit.MaxEvents {
				r.Record(t.Context(), auth.Event{Action: auth.TokenMinted, Tenant: "noisy", Actor: "key:n", Target: fmt.Sprint("user", i)})
				r.Record(t.Context(), auth.Event{Action: auth.ScopeMissing, Tenant: "noisy", Actor: fmt.Sprint("user:", i), Target: "/tenant"})
				r.Record(t.Context(), auth.Event{Action: auth.CredentialRefused, Address: fmt.Sprint("2001:db8::", i)})
			}
		}
		for range 3 { // minutes
			noise()
			time.Sleep(time.Minute)
		}
		noise()
		own := []auth.Event{
			{Action: auth.TokenMinted, Tenant: "calm", Actor: "key:k", Target: "mia"},
			{Action: auth.ScopeMissing, Tenant: "calm", Actor: "user:mia", Target: "/tenant"},
			{Action: auth.ActionDenied, Tenant: "calm", Actor: "user:mia", Target: "SubmitCallRequest", Detail: map[string]string{"session_id": "s", "tool_call_id": "c"}},
			{Action: auth.AuditExported, Tenant: "calm", Actor: "key:root", Target: "calm"},
			{Action: auth.KeyAdded, Tenant: "calm", Target: "admin", Detail: map[string]string{auth.KeysFile: "digest"}},
			{Action: auth.KeyAdded, Tenant: "noisy", Target: "another admin", Detail: map[string]string{auth.KeysFile: "digest"}},
			{Action: auth.KeyRemoved, Tenant: "noisy", Target: "admin", Detail: map[string]string{auth.KeysFile: "digest"}},
		}
		for _, e := range own {
			r.Record(t.Context(), e)
		}
		time.Sleep(2 * time.Minute)
		away(false)
		time.Sleep(2 * time.Minute)
		for _, e := range own {
			found := slices.ContainsFunc(l.ofAction(e.Action), func(got *statev1.TenantEvent) bool {
				return got.GetTenant() == e.Tenant && got.GetEvent().GetTargetId() == e.Target
			})
			if !found {
				t.Errorf("%s of %s at %s has no entry", e.Action, e.Tenant, e.Target)
			}
		}
		for _, e := range l.ofAction("audit.dropped") {
			if e.GetTenant() == "calm" {
				t.Errorf("got %v", e)
			}
		}
		if got := len(l.ofAction(auth.TokenMinted)); got > 2*(audit.MaxEvents+audit.MaxRefusals) {
			t.Errorf("got %d tokens, which are to be bounded", got)
		}
	})
}

func TestGatewaysThatSeeTheSameChangeOfTheKeysWriteOneEntry(t *testing.T) {
	t.Parallel()
	reporting(t, func(t *testing.T, l *ledger, first, second *audit.Reporter) {
		for i, r := range []*audit.Reporter{first, second} {
			for _, file := range []string{"digest 1", "digest 2"} {
				r.Record(t.Context(), auth.Event{Action: auth.KeyAdded, Tenant: "acme", Target: "ci", Detail: map[string]string{auth.KeysFile: file}})
				time.Sleep(2 * time.Second)
			}
			r.Record(t.Context(), auth.Event{Action: auth.KeyRemoved, Tenant: "acme", Target: fmt.Sprint("other", i), Detail: map[string]string{auth.KeysFile: "digest 1"}})
		}
		time.Sleep(2 * time.Second)
		added, removed := l.ofAction(auth.KeyAdded), l.ofAction(auth.KeyRemoved)
		if len(added) != 2 || len(removed) != 2 {
			t.Fatalf("got %d and %d entries, want 2 and 2", len(added), len(removed))
		}
		if e := added[0].GetEvent(); e.GetActor() != "gateway" || e.GetTargetId() != "ci" || e.GetTargetKind() != "key" || e.GetOutcome() != "done" {
			t.Errorf("got %v", e)
		}
	})
}

func TestEventsOfAnOutageAreSentAfterIt(t *testing.T) {
	t.Parallel()
	reporting(t, func(t *testing.T, l *ledger, r, _ *audit.Reporter) {
		away := func(is bool) { l.mu.Lock(); l.away = is; l.mu.Unlock() }
		away(true)
		for i := range 10 * audit.MaxEvents {
			if i%audit.MaxEvents == 0 {
				time.Sleep(time.Minute)
			}
			r.Record(t.Context(), auth.Event{Action: auth.TokenMinted, Tenant: "acme", Actor: "key:k", Target: fmt.Sprint("user", i)})
		}
		away(false)
		time.Sleep(5 * time.Minute)
		kept, dropped := len(l.ofAction(auth.TokenMinted)), 0
		for _, e := range l.ofAction("audit.dropped") {
			var n int
			if _, err := fmt.Sscanf(e.GetEvent().GetDetail(), `{"count":%d}`, &n); err != nil {
				t.Error(err)
			}
			dropped += n
		}
		if kept < audit.MaxEvents || kept > 2*(audit.MaxEvents+audit.MaxRefusals) || dropped == 0 {
			t.Errorf("got %d entries and %d dropped, want a bounded number, and the rest counted", kept, dropped)
		}
	})
}

func TestHostileTextsBecomeValidIDs(t *testing.T) {
	t.Parallel()
	reporting(t, func(t *testing.T, l *ledger, r, _ *audit.Reporter) {
		r.Record(t.Context(), auth.Event{Action: auth.CredentialRefused, Address: "192.0.2.1", Target: "/\x00\xff" + strings.Repeat("é\n", 300), Detail: map[string]string{"why\x00": strings.Repeat("x", 9000)}})
		time.Sleep(2 * time.Minute)
		got := l.ofAction(auth.CredentialRefused)
		if len(got) != 1 {
			t.Fatalf("got %d entries", len(got))
		}
		if e := got[0].GetEvent(); len(e.GetTargetId()) > 256 || !utf8.ValidString(e.GetTargetId()) || strings.ContainsAny(e.GetTargetId(), "\x00\n") || len(e.GetDetail()) > 4096 {
			t.Errorf("got %q, %d bytes of detail", e.GetTargetId(), len(e.GetDetail()))
		}
	})
}
