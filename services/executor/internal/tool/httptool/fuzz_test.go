package httptool_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

func FuzzAnyResponseIsAResultOrAnError(f *testing.F) {
	f.Add(200, "application/json", `{"n":9007199254740993}`)
	f.Add(200, "text/plain; charset=utf-16", "a\xffb")
	f.Add(404, "application/problem+json; =", `{"a"`)
	f.Add(204, "", "")
	var mu sync.Mutex
	var status int
	var kind, body string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	f.Cleanup(web.Close)
	tool, err := httptool.New(agent.Tool{}, httptool.Config{URL: web.URL, MaxBytes: 1 << 10}, peers())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, code int, contentType, text string) {
		if code < 200 || code > 599 {
			return
		}
		mu.Lock()
		status, kind, body = code, contentType, text
		mu.Unlock()
		value, err := tool.Execute(t.Context(), &agent.Call{IdempotencyKey: "k", Input: json.RawMessage(`{}`)})
		switch v := value.(type) {
		case json.RawMessage:
			if !json.Valid(v) {
				t.Errorf("%d %q %q: %q is not JSON", code, contentType, text, v)
			}
		case string:
			if !utf8.ValidString(v) || len(v) > 3<<10 {
				t.Errorf("%d %q %q: got %q", code, contentType, text, v)
			}
		}
		if err != nil && (strings.TrimSpace(err.Error()) == "" || len(err.Error()) > 8<<10) {
			t.Errorf("%d %q: got an error of %d bytes", code, contentType, len(err.Error()))
		}
	})
}
