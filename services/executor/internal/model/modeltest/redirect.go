package modeltest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// RunRedirect checks that a model with the default client follows no redirects. connect returns a model for baseURL and
// Key.
func RunRedirect(t *testing.T, connect func(t *testing.T, baseURL string) model.Model) {
	for _, status := range []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			var followed atomic.Bool
			other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
			t.Cleanup(other.Close)
			server := httptest.NewServer(http.RedirectHandler(other.URL+"/secret", status))
			t.Cleanup(server.Close)

			reply := Collect(t, connect(t, server.URL).Generate(t.Context(), NewRequest(Ended)))
			reply.expectError(t, model.Error{Code: model.CodeInvalidResponse, StatusCode: status})
			address, err := url.Parse(other.URL)
			if err != nil {
				t.Fatal(err)
			}
			if err := reply.Err; err == nil || !strings.Contains(err.Error(), address.Host) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got the error %v, want one with the host and without the path", err)
			}
			if followed.Load() {
				t.Error("the redirect was followed")
			}
		})
	}
}
