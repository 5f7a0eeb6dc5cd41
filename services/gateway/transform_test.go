package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// Middleware that compresses answers holds a stream back until it ends, unless its headers forbid it.
func TestNoStreamMayBeTransformedOnItsWay(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	check := func(name string, header http.Header) {
		t.Helper()
		if got := header.Get("Cache-Control"); !strings.Contains(got, "no-transform") {
			t.Errorf("%s: the Cache-Control is %q, want no-transform in it", name, got)
		}
	}
	check("POST /chat", h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi")).Header)
	for _, path := range []string{"/chat/s1/stream", "/sse?sessionId=s1", "/audit/export"} {
		check(path, h.request(t, http.MethodGet, path, "").Header)
	}
	for name, client := range clients(t, h) {
		stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		stream.Receive()
		check(name, stream.ResponseHeader())
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
}
