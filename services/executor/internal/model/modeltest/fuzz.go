package modeltest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// canned answers each request with a stream of events.
type canned []byte

// RoundTrip implements http.RoundTripper.
func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Request: r,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(c)),
	}, nil
}

// FuzzReplies lets a provider answer with any bytes. The model must keep the contract that Collect checks, and
// give errors as *model.Error. The seeds are the files of replies in dir.
func FuzzReplies(f *testing.F, dir string, connect func(*http.Client) (model.Model, error)) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no replies in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := connect(&http.Client{Transport: canned(body)})
		if err != nil {
			t.Fatal(err)
		}
		got := Collect(t, m.Generate(t.Context(), NewRequest("m")))
		if _, typed := errors.AsType[*model.Error](got.Err); got.Err != nil && !typed {
			t.Errorf("the error %v (%T) is no model.Error", got.Err, got.Err)
		}
	})
}
