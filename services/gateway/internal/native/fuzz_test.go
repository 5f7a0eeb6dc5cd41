package native_test

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/gateway/internal/native"
)

func FuzzAStreamRequestIsReadOrRefused(f *testing.F) {
	f.Add("sessionId=s&runId=r&fromSequence=7", "")
	f.Add("sessionId=s&family=true", "9007199254740991")
	f.Add("sessionId=%00&family=x", "-1")
	f.Add("sessionId=s", "9007199254740992")
	f.Fuzz(func(t *testing.T, query, lastEventID string) {
		r := &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{}}
		if lastEventID != "" {
			r.Header.Set("Last-Event-ID", lastEventID)
		}
		got, err := native.ParseRequest(r, "acme")
		switch {
		case err != nil && !errors.Is(err, fault.Invalid):
			t.Errorf("%q, %q: %v", query, lastEventID, err)
		case err == nil && (got.SessionID == "" || got.Tenant != "acme" || got.OnlyRun == (got.RunID == "") || got.OnlyRun && got.Family || !position.Valid(got.After)):
			t.Errorf("%q, %q: got %+v", query, lastEventID, got)
		}
	})
}
