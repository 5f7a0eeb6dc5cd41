package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// limit bounds every wait of a test.
const limit = 3 * time.Minute

// running is a `holdfast dev` in this process.
type running struct {
	url    string
	output string // its welcome
	teller *teller
	stop   context.CancelFunc
	ended  chan error
}

// start runs dev on a free port and waits until it is up.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith is start with an environment.
func startWith(t *testing.T, environ []string, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, ended: make(chan error, 1), teller: &teller{welcome: make(chan string, 1)}}
	go func() {
		err := run(ctx, append([]string{"dev", "--listen", "127.0.0.1:0"}, args...), environ, r.teller, io.Discard)
		close(r.teller.welcome)
		r.ended <- err
	}()
	select {
	case r.output = <-r.teller.welcome:
	case <-time.After(limit):
	}
	found := regexp.MustCompile(`http://[0-9.:]+`).FindString(r.output)
	if found == "" {
		stop()
		t.Fatalf("it did not say where it is: %q, %v", r.output, <-r.ended)
	}
	r.url = found
	t.Cleanup(func() { r.end(t) })
	return r
}

// teller passes on the first write, the welcome, and keeps the others.
type teller struct {
	welcome chan string
	mu      sync.Mutex
	told    bool
	later   strings.Builder
}

func (w *teller) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told {
		return w.later.Write(p)
	}
	w.told = true
	w.welcome <- string(p)
	return len(p), nil
}

// lines returns what was written after the welcome.
func (w *teller) lines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.later.String()
}

// end stops the process like Ctrl-C. It may be called twice.
func (r *running) end(t *testing.T) {
	t.Helper()
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	select {
	case err := <-r.ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(limit):
		t.Error("it does not end")
	}
}

func (r *running) do(t *testing.T, method, path, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var curlLine = regexp.MustCompile(`curl -N (http://[^/]+)(/\S+) -d '([^']+)'`)

func TestTheQuickstartStreamsAnAnswerThatEnds(t *testing.T) {
	t.Parallel()
	r := start(t, "--data", t.TempDir())
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"the README": string(readme), "the welcome": r.output} {
		line := curlLine.FindStringSubmatch(text)
		if line == nil {
			t.Fatalf("%s has no curl line", where)
		}
		body := strings.Replace(line[3], "hello-1", "hello-"+strings.ReplaceAll(where, " ", "-"), 1)
		got := r.do(t, http.MethodPost, line[2], body)
		for _, want := range []string{`"output":{"value":42}`, `{"type":"finish"`, "data: [DONE]\n\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("the curl line of %s: no %s in\n%s", where, want, got)
			}
		}
		if !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("the answer to the curl line of %s does not end with [DONE]", where)
		}
	}
}

func TestConversationsSurviveARestart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := start(t, "--data", data)
	const ask = `{"id":"kept","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"What did I say?"}]}]}`
	first.do(t, http.MethodPost, "/chat", ask)
	before := first.do(t, http.MethodGet, "/messages?sessionId=kept", "")
	first.end(t)

	second := start(t, "--data", data)
	if after := second.do(t, http.MethodGet, "/messages?sessionId=kept", ""); after != before || !strings.Contains(after, "You said") {
		t.Errorf("after the restart\ngot  %s\nwant %s", after, before)
	}
	const more = `{"id":"kept","messages":[{"id":"m2","role":"user","parts":[{"type":"text","text":"Please remember."}]}]}`
	second.do(t, http.MethodPost, "/chat", more)
	if got, want := second.do(t, http.MethodGet, "/messages?sessionId=kept", ""), "You said: What did I say? · Please remember."; !strings.Contains(got, want) {
		t.Errorf("the second turn does not know the first: no %q in %s", want, got)
	}
}

func TestTwoProcessesDoNotShareADataFolder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	start(t, "--data", data)
	err := run(t.Context(), []string{"dev", "--listen", "127.0.0.1:0", "--data", data}, nil, io.Discard, io.Discard)
	if fault.ReasonOf(err) != "DATA_IN_USE" {
		t.Errorf("got %v, want DATA_IN_USE", err)
	}
}

func TestAgentsOfOnesOwnTakeThePlaceOfTheDemo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	err := os.WriteFile(file, []byte(`
models:
  scripted:
    script: |
      models:
        parrot: {rules: [{reply: "{{.LastUser}}!"}]}
agents: [{name: parrot, model: scripted/parrot}]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "--data", t.TempDir(), "--agents", file)
	if got := r.do(t, http.MethodPost, "/chat", `{"id":"p","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`); !strings.Contains(got, "hello!") {
		t.Errorf("no hello! in %s", got)
	}
}

func TestAnAgentThatIsNewAtARestartAnswersAsSoonAsTheProcessIsUp(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, name := range []string{"parrot", "raven", "jay", "crow"} {
		file := filepath.Join(t.TempDir(), "agents.yaml")
		text := fmt.Sprintf("models: {scripted: {script: '{models: {m: {chunk: whole, rules: [{reply: I am %[1]s}]}}}'}}\nagents: [{name: %[1]s, model: scripted/m}]\n", name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, "--data", data, "--agents", file)
		if got := r.do(t, http.MethodPost, "/chat", fmt.Sprintf(`{"id":"%[1]s","agentType":"%[1]s","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`, name)); !strings.Contains(got, "I am "+name) {
			t.Errorf("got %s", got)
		}
		if got := r.do(t, http.MethodGet, "/readyz", ""); got != `{"status":"ok"}`+"\n" {
			t.Errorf("got %s", got)
		}
		r.end(t)
	}
}

func TestTheDemoShowsAnOutputWithASchemaAndAStateThatStays(t *testing.T) {
	t.Parallel()
	r := start(t, "--data", t.TempDir())
	ask := func(session, agentType, text string) string {
		t.Helper()
		return r.do(t, http.MethodPost, "/chat", fmt.Sprintf(`{"id":%q,"agentType":%q,"messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":%q}]}]}`, session, agentType, text, text))
	}
	status := func(session string) string {
		t.Helper()
		return r.do(t, http.MethodGet, "/status?sessionId="+session, "")
	}
	ask("mail", "ticket", "The printer burns, come right now")
	if got := status("mail"); !strings.Contains(got, `"status":"completed"`) || !strings.Contains(got, "printer burns") {
		t.Errorf("the ticket's session stands so: %s", got)
	}
	ask("list", "shopper", "Please add milk.")
	if got := ask("list", "shopper", "I need two eggs!"); !strings.Contains(got, `Your shopping list: milk, two eggs.`) {
		t.Errorf("the list is not kept: %s", got)
	}
	if got := r.do(t, http.MethodGet, "/messages?sessionId=list", ""); !strings.Contains(got, "milk, two") {
		t.Errorf("the conversation does not say the list: %s", got)
	}
}

// parrot writes a file with an agent that repeats its input and adds a text.
func parrot(t *testing.T, path, name, more string) {
	t.Helper()
	err := os.WriteFile(path, []byte(`
models:
  `+name+`:
    provider: scripted
    script: |
      models:
        parrot: {rules: [{reply: "{{.LastUser}}`+more+`"}]}
agents: [{name: `+name+`, model: `+name+`/parrot}]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfAgentsAreFollowedWhileTheyAreServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, folder := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	parrot(t, one, "one", "?")
	parrot(t, filepath.Join(folder, "two.yaml"), "two", "!")
	r := startWith(t, []string{"HOLDFAST_EXECUTOR_AGENTS_POLL=20ms"}, "--data", t.TempDir(), "--agents", one, "--agents", folder)
	hears := func(session, agentType, want string) bool {
		t.Helper()
		got := r.do(t, http.MethodPost, "/chat", `{"id":"`+session+`","agentType":"`+agentType+`","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`)
		return strings.Contains(got, want)
	}
	if !hears("1", "one", "hello?") || !hears("2", "two", "hello!") {
		t.Fatal("the agents of a file and of a folder do not both answer")
	}
	parrot(t, one, "one", " changed")
	parrot(t, filepath.Join(folder, "three.yaml"), "three", "...")
	deadline := time.Now().Add(limit)
	for i := 0; !hears(fmt.Sprint("c", i), "one", "hello changed") || !strings.Contains(r.do(t, http.MethodGet, "/agents", ""), `"three"`); i++ {
		if time.Now().After(deadline) {
			t.Fatal("the change is not served")
		}
	}
	if !hears("3", "three", "hello...") {
		t.Error("the new agent does not answer")
	}
}

func TestWhatCannotStartSaysWhatToChange(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for reason, args := range map[string][]string{
		"COMMAND_UNKNOWN":  {"run"},
		"ARGUMENT_UNKNOWN": {"dev", "now"},
		"FLAG_INVALID":     {"dev", "--port", "80"},
		"LISTEN_FAILED":    {"dev", "--listen", taken.Addr().String(), "--data", t.TempDir()},
		"INSECURE_LISTEN":  {"dev", "--listen", "0.0.0.0:0", "--data", t.TempDir()},
		"AGENTS_NOT_FOUND": {"dev", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--agents", "no-such-file.yaml"},
		"TENANT_MISSING":   {"keys", "new"},
		"TENANT_INVALID":   {"keys", "new", "--tenant", "a\nb"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := run(ctx, args, nil, io.Discard, io.Discard)
			if f, ok := fault.From(err); !ok || f.Reason != reason || f.Detail == "" {
				t.Errorf("got %v, want %s with a detail", err, reason)
			}
			if reason == "INSECURE_LISTEN" && !strings.Contains(err.Error(), `--listen is "0.0.0.0:0"`) {
				t.Errorf("got %v, want it to name the option", err)
			}
		})
	}
}

func TestAKeysFileHoldsHashesAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	var key bytes.Buffer
	if err := os.WriteFile(file, []byte("# ours"), 0o600); err != nil { // an editor omitted the last newline
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "other"} {
		key.Reset()
		if err := run(t.Context(), []string{"keys", "new", "--tenant", tenant, "--file", file}, nil, &key, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	hashes, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if secret := strings.TrimSpace(key.String()); len(secret) < 26 || strings.Contains(string(hashes), secret) {
		t.Errorf("the key %q must be long, and the file must hold hashes alone: %s", secret, hashes)
	}
	for _, tenant := range []string{"acme", "other"} {
		if !strings.Contains(string(hashes), "tenant: "+tenant) {
			t.Errorf("no key of %s in\n%s", tenant, hashes)
		}
	}
	if want := "# ours\n- name: "; !strings.HasPrefix(string(hashes), want) {
		t.Errorf("the file begins %.20q, want %q", hashes, want)
	}
}
