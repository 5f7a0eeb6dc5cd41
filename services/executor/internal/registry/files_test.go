package registry

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// follow loads the file, and returns a function that checks it once.
func follow(t *testing.T, path string) (r *Registry, look func() (bool, error)) {
	t.Helper()
	r = New()
	t.Cleanup(func() { _ = r.Close() })
	c := AgentsConfig{AgentsFiles: path, AgentsPoll: time.Second, ToolHosts: []string{allowed}}
	if err := r.Load(t.Context(), c, Peers{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return r, func() (bool, error) { return r.check(t.Context(), r.source()) }
}

func TestFilesWithAnUnavailableMCPServerAreRetriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var up atomic.Bool
	serving := mcpHandler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked.Add(1); up.Load() {
			serving.ServeHTTP(w, q)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "agents.yaml")
	agentsFile(t, path, "former")
	r, look := follow(t, path)
	wordsFile(t, path, server.URL, "x", "{mcp: words}")

	var tries, news int
	for range 190 {
		before := asked.Load()
		report, err := look()
		if report {
			news++
			if fault.ReasonOf(err) != "MCP_UNAVAILABLE" {
				t.Fatalf("look = %v, want MCP_UNAVAILABLE", err)
			}
		}
		if asked.Load() > before {
			tries++
		}
	}
	if news != 1 || tries < 8 || tries > 9 || !r.Has("yaml") { // at 2, 3, 5, 9, 17, 33, 65, 125 and 185 seconds
		t.Errorf("reported %d times, tried %d times, types %q; want 1, 8 or 9 and the former agents", news, tries, r.Types())
	}
	up.Store(true)
	for i := 0; !r.Has("talker"); i++ {
		if i > 60 {
			t.Fatal("the server is back, and its agents are not served")
		}
		if report, err := look(); report && err != nil {
			t.Fatal(err)
		}
	}
	before := asked.Load()
	for range 100 {
		if report, err := look(); report || err != nil {
			t.Fatalf("look = %v, %v, want no report", report, err)
		}
	}
	if asked.Load() > before+1 { // the session's own stream
		t.Error("what is served is read again")
	}
}

func TestIncompleteFilesAreNotLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, more := filepath.Join(dir, "agents.yaml"), filepath.Join(dir, "more.yaml")
	agentsFile(t, path, "first")
	r, look := follow(t, dir)
	if err := os.WriteFile(more, []byte("agents:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"  # a file\n", "  # that grows\n", "  - {name: more, model: scripted/demo}\n"} {
		if report, err := look(); report || err != nil {
			t.Fatalf("a file that grows is loaded: %v", err)
		}
		f, err := os.OpenFile(more, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(line)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	if report, _ := look(); report {
		t.Fatal("a file that was written since the last look is loaded")
	}
	if report, err := look(); !report || err != nil || !slices.Equal(r.Types(), []string{"more", "yaml"}) {
		t.Errorf("look = %v, %v, types %q, want the whole file", report, err, r.Types())
	}
}

func TestAnEmptyFileTakesNoAgentsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agentsFile(t, filepath.Join(dir, "agents.yaml"), "first")
	second := filepath.Join(dir, "second.yaml")
	if err := os.WriteFile(second, []byte("agents: [{name: second, model: scripted/demo}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, look := follow(t, dir)
	for _, text := range []string{"", "# nothing but words\n", "---\n"} {
		if err := os.WriteFile(second, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = look()
		_, err := look()
		if fault.ReasonOf(err) != "AGENTS_INVALID" || !strings.Contains(err.Error(), "second.yaml:1:1: no agents: the file is empty") || !r.Has("second") {
			t.Errorf("%q: look = %v, types %q, want a mistake and the former agents", text, err, r.Types())
		}
	}
}

func TestFilesThatAreLoadedWhileTheExecutorRunsAreFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, c := newRegistry(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			r.follow(ctx, slog.New(slog.DiscardHandler))
			close(ended)
		}()
		for _, name := range []string{"one.yaml", "other.yaml"} {
			time.Sleep(time.Minute)
			path := filepath.Join(t.TempDir(), name)
			agentsFile(t, path, "first")
			if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path, AgentsPoll: time.Second}, Peers{}); err != nil {
				t.Fatal(err)
			}
			agentsFile(t, path, "changed")
			time.Sleep(10 * time.Second)
			if a, err := resolve(t, c, "yaml"); err != nil || a.SystemPrompt != "changed" {
				t.Errorf("%s: prompt = %q, %v, want the changed one", name, a.SystemPrompt, err)
			}
		}
		stop()
		<-ended
	})
}
