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

	"github.com/holdfast-run/holdfast/pkg/agent"
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

func TestAnMCPServerThatComesBackIsServedWithoutARestart(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	serving := mcpHandler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if up.Load() {
			serving.ServeHTTP(w, q)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "agents.yaml")
	wordsFile(t, path, server.URL, "x", "{mcp: words}, calculate")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(file) + "  - {name: waiter, model: scripted/demo, tools: [{mcp: words, required: true}]}\n" +
		"  - {name: picky, model: scripted/demo, tools: [{mcp: words, required: true, tools: [say_nothing]}]}\n" +
		"  - {name: stopper, model: scripted/demo, tools: [{mcp: words, tools: [say_shout, say_nothing]}], stopWhen: {tool: say_shout}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, look := follow(t, path)
	c, err := NewCatalog(r, agent.Hooks{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Types(), []string{"stopper", "talker"}; !slices.Equal(got, want) {
		t.Fatalf("types = %q, want %q: the others require the server", got, want)
	}
	if a, err := resolve(t, c, "talker"); err != nil || !slices.Equal(toolNames(a), []string{"calculate"}) {
		t.Errorf("tools = %q, %v, want those that need no server", toolNames(a), err)
	}
	_, _ = c.Types(), c.Problems() // as announced
	changed := c.Changed()
	c.refresh(t.Context(), slog.New(slog.DiscardHandler))
	select {
	case <-changed:
		t.Error("an outage that goes on is announced again")
	default:
	}
	up.Store(true)
	deadline := time.After(90 * time.Second)
	for !slices.Equal(r.Types(), []string{"stopper", "talker", "waiter"}) {
		select {
		case <-deadline:
			t.Fatalf("the server is back, and the types are %q", r.Types())
		case <-time.After(time.Millisecond):
		}
	}
	c.refresh(t.Context(), slog.New(slog.DiscardHandler))
	select {
	case <-changed:
	default:
		t.Error("the agents that are served again are not announced")
	}
	if a, err := resolve(t, c, "talker"); err != nil || !slices.Equal(toolNames(a), []string{"calculate", "say_shout", "say_whisper"}) {
		t.Errorf("tools = %q, %v, want those of the server too", toolNames(a), err)
	}
	var names []string
	for _, p := range r.Problems() {
		names = append(names, p.Kind+" "+p.Name+" of "+p.Agent)
	}
	if want := []string{"agent picky of ", "tool say_nothing of picky", "tool say_nothing of stopper"}; !slices.Equal(names, want) {
		t.Errorf("problems = %q, want %q", names, want)
	}
	if report, err := look(); report || err != nil {
		t.Errorf("look = %v, %v, want no report: the files have not changed", report, err)
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
		report, err := look()
		got := strings.Join(r.Diagnose(), "\n")
		if !report || err != nil || !strings.Contains(got, "second.yaml:1:1: no agents: the file is empty") || !r.Has("second") {
			t.Errorf("%q: look = %v, %v, problems %s, types %q; want a mistake and the former agents", text, report, err, got, r.Types())
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
