package client_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func TestAnUploadedFileIsForAMessage(t *testing.T) {
	t.Parallel()
	file := bytes.Repeat([]byte("x"), 20<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method+r.URL.Path != "POST/files" || r.Header.Get("Authorization") != "Bearer "+key || r.Header.Get("Content-Type") != "text/csv" || !bytes.Equal(body, file) {
			t.Errorf("got %s %s %v with %d bytes, %v", r.Method, r.URL.Path, r.Header, len(body), err)
		}
		_, _ = io.WriteString(w, `{"id":"file_1","url":"https://agents.example.com/files/file_1","mediaType":"text/csv","size":1}`)
	}))
	t.Cleanup(server.Close)
	c := client.New(client.Config{URL: server.URL + "/", Key: key, HTTP: server.Client()})
	got, err := c.Upload(t.Context(), "text/csv", "sums.csv", bytes.NewReader(file))
	want := &eventv1.FilePart{MediaType: "text/csv", Url: "https://agents.example.com/files/file_1", Filename: "sums.csv"}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestARefusedUploadIsAFault(t *testing.T) {
	t.Parallel()
	status, body := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	c := client.New(client.Config{URL: server.URL, HTTP: server.Client()})
	for _, tc := range []struct {
		status int
		body   string
		kind   fault.Kind
		reason string
	}{
		{http.StatusRequestEntityTooLarge, `{"error":"The file is too large.","code":"FILE_TOO_LARGE","detail":"20 MiB"}`, fault.TooLarge, "FILE_TOO_LARGE"},
		{http.StatusTooManyRequests, `{"error":"Wait.","code":"TOO_MANY_FILES"}`, fault.Exhausted, "TOO_MANY_FILES"},
		{http.StatusServiceUnavailable, "<html>", fault.Unavailable, "UNKNOWN"},
		{http.StatusTeapot, "", fault.Internal, "UNKNOWN"},
	} {
		status, body = tc.status, tc.body
		_, err := c.Upload(t.Context(), "", "", strings.NewReader("x"))
		if fault.KindOf(err) != tc.kind || fault.ReasonOf(err) != tc.reason {
			t.Errorf("%d %s: got %v", tc.status, tc.body, err)
		}
	}
	server.Close()
	if _, err := c.Upload(t.Context(), "", "", strings.NewReader("x")); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("without a gateway: got %v", err)
	}
}
