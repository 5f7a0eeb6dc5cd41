package httpapi

import (
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

func TestATenantAndAUserHaveAsManyStreamsAsTheirLimits(t *testing.T) {
	t.Parallel()
	s := NewStreams(StreamLimits{All: 5, Tenant: 3, User: 2})
	open := func(tenant, user, refusal, limit string) (release func()) {
		t.Helper()
		_, release, err := s.Open(auth.With(t.Context(), auth.Identity{Tenant: tenant, Subject: user}), ProtocolSSE)
		f, _ := fault.From(err)
		switch {
		case refusal == "" && err != nil, refusal != "" && (f == nil || f.Kind != fault.Exhausted || f.Reason != refusal || f.Meta[fault.LimitName] != limit || f.RetryAfter() == 0):
			t.Fatalf("%s of %s: got %v, want %q", user, tenant, err, refusal)
		}
		return release
	}
	first := open("acme", "u1", "", "")
	open("acme", "u1", "", "")
	open("acme", "u1", "QUOTA_STREAMS", "user.streams")
	third := open("acme", "", "", "")
	open("acme", "", "QUOTA_STREAMS", "tenant.streams")
	open("acme", "u2", "QUOTA_STREAMS", "tenant.streams")
	open("beta", "u1", "", "")
	open("beta", "", "", "")
	open("beta", "", "TOO_MANY_STREAMS", "")
	first()
	first()
	open("acme", "u1", "", "")
	third()
	if s.Count() != 4 || len(s.owned.open) != 4 {
		t.Errorf("got %d streams of %v", s.Count(), s.owned.open)
	}
}

func TestATenantThatOpensAllStreamsLocksNoOtherOut(t *testing.T) {
	t.Parallel()
	s := NewStreams(StreamLimits{All: 30, SparePercent: 83})
	open := func(tenant string) (release func(), err error) {
		_, release, err = s.Open(auth.With(t.Context(), auth.Identity{Tenant: tenant}), ProtocolSSE)
		return release, err
	}
	opened := func(tenant string, tries int) (n int) {
		for range tries {
			switch _, err := open(tenant); {
			case err == nil:
				n++
			case fault.ReasonOf(err) != "TOO_MANY_STREAMS":
				t.Fatal(err)
			}
		}
		return n
	}
	last, err := open("noisy")
	if err != nil {
		t.Fatal(err)
	}
	if got := opened("noisy", 100); got != 29 {
		t.Errorf("the noisy tenant opened %d further streams, want all 29", got)
	}
	if got := opened("calm", 5); got != 2 {
		t.Errorf("a calm tenant opened %d streams, want its tenth of the spare ones: 2", got)
	}
	last()
	if got := opened("noisy", 1); got != 0 {
		t.Error("the noisy tenant took a spare stream")
	}
	all := 0
	for i := range 20 {
		all += opened(fmt.Sprint("tenant ", i), 3)
	}
	if all != 55-31 || s.Count() != 55 {
		t.Errorf("other tenants opened %d streams, and there are %d: want 24 and 55", all, s.Count())
	}
}
