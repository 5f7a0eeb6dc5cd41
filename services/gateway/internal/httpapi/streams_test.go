package httpapi

import (
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
