package registry

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/outbound"
)

func TestAnOpenAPIDocumentIsKeptWhileItsServerIsDown(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	answer.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer.Load() == "" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprint(w, answer.Load())
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := "models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\n" +
		"agents: [{name: a, model: scripted/demo, tools: [{openapi: '" + server.URL + "/api'}, wait]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := New()
	c := AgentsConfig{AgentsFiles: file, ToolHosts: []string{"127.0.0.1"}}
	tools := func() string {
		a, _ := r.Get("a")
		var names []string
		for _, t := range a.Tools {
			names = append(names, t.Name)
		}
		return strings.Join(names, " ")
	}
	if err := r.Load(t.Context(), c, Peers{}); err != nil || tools() != "wait" {
		t.Fatalf("tools = %s, %v, want those without the document", tools(), err)
	}
	if problems := strings.Join(r.Diagnose(), "\n"); !strings.Contains(problems, "it cannot be fetched: its server answers with HTTP status 502") {
		t.Errorf("problems = %s", problems)
	}
	later := time.Now().Add(time.Hour)
	if !r.documents.isDue(later) {
		t.Error("the missing document is not fetched again")
	}
	answer.Store(`{"openapi": "3.1.0", "paths": {"/x": {"get": {"operationId": "one"}}}}`)
	if err := r.Reload(t.Context()); err != nil || tools() != "one wait" || len(r.Diagnose()) > 0 || r.documents.isDue(later) {
		t.Errorf("tools = %s, %v, %v", tools(), err, r.Diagnose())
	}
	answer.Store("")
	if err := r.Reload(t.Context()); err != nil || tools() != "one wait" || len(r.Diagnose()) > 0 {
		t.Errorf("tools = %s, %v, %v, want the former ones", tools(), err, r.Diagnose())
	}
}

func TestAMissingDocumentIsFetchedAgainAfterGrowingPauses(t *testing.T) {
	t.Parallel()
	d := newDocuments()
	now := time.Now()
	for _, seconds := range []int{2, 4, 8, 16, 32, 60, 60} {
		d.missing = true
		d.next(now)
		due := now.Add(time.Duration(seconds) * time.Second)
		if d.isDue(due.Add(-1)) || !d.isDue(due) {
			t.Errorf("it is due at %v, want after %d seconds", d.due.Sub(now), seconds)
		}
		now = due
	}
	if d.next(now); d.isDue(now.Add(time.Hour)) {
		t.Error("nothing is missing, and the agents are read again")
	}
}

func TestFetchedDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
			return
		}
		fmt.Fprint(w, strings.Repeat("x", 100))
	}))
	t.Cleanup(server.Close)
	d := newDocuments()
	policy := outbound.Policy{Hosts: []string{"127.0.0.1"}}
	for address, want := range map[string]string{
		server.URL: "more than the 99 bytes", server.URL + "/away": "not on the list of allowed hosts",
		"http://elsewhere.example/": "not on the list of allowed hosts", "https://user:pass@a.example/": "without credentials", "https://": "must be http",
	} {
		if _, err := d.fetch(t.Context(), policy, address, 99, slog.Default()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	for i := range maxKept + 10 {
		if _, err := d.fetch(t.Context(), policy, fmt.Sprintf("%s/%d", server.URL, i), 100, slog.Default()); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.kept) != maxKept || len(d.order) != maxKept || d.kept[server.URL+"/0"] != nil {
		t.Errorf("%d documents are kept, want the last %d", len(d.kept), maxKept)
	}
}
