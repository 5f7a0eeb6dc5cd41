// Package rolling_test upgrades a system under load: it replaces one process after the other while clients talk.
package rolling_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// restarts is how many processes are replaced, the services in turn. make torture replaces 50.
var restarts = flag.Int("rolling.restarts", 8, "how many processes are replaced under load")

const (
	clients = 6
	// turnsPerRestart is how many turns end between two replacements, so each replacement meets new turns.
	turnsPerRestart = 3
	// limit is how long the test may take for each restart.
	limit = time.Minute
)

func TestMain(m *testing.M) { harness.Main(m, 0) }

// A turn calls a tool without a guard against repetition, and streams its answer word by word.
const agents = `
models:
  scripted:
    script: |
      models:
        clerk:
          rules:
            - when: {toolResult: note, lastUser: '^note '}
              reply: [{text: 'ANSWER', chunk: 1 word, delay: 20ms}]
            - when: {lastUser: '^note (?P<word>\S+)$'}
              reply: [{call: {name: note, arguments: {text: '{{.Group.word}}', beforeMs: 100, afterMs: 100}}}]
agents:
  - {name: clerk, description: Takes notes., model: scripted/clerk, tools: [note]}
`

const answer = "It is noted and will be kept with care until somebody asks for it again."

func TestARollingUpgradeFailsNoRequestAndRepeatsNoRecordedCall(t *testing.T) {
	t.Parallel()
	var talking sync.WaitGroup
	defer talking.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*restarts+5)*limit)
	defer cancel()
	u := startUpgrade(t)
	turns := make([]int, clients)
	for i := range clients {
		talking.Go(func() { turns[i] = u.talk(ctx, i) })
	}
	for i := range *restarts {
		u.awaitTurns(ctx)
		u.replace(u.services[i%len(u.services)])
	}
	u.awaitTurns(ctx)
	close(u.replaced)
	talking.Wait()
	for i, n := range turns {
		u.check(i, n)
	}
	t.Logf("%d processes replaced during %d turns; the clients' requests were repeated after %d refusals with 503 and %d lost connections",
		*restarts, u.turns.Load(), u.refused.Load(), u.lost.Load())
}

// upgrade is a system whose clients and services reach each other through proxies.
type upgrade struct {
	t        *testing.T
	system   *harness.System
	client   harness.Client
	services []*service
	replaced chan struct{} // closed after the last replacement

	turns, refused, lost atomic.Int64
	ended                chan struct{} // a turn has ended; room for one, so at most one is older than the wait
}

// service is the current process of a service, and the proxy before it.
type service struct {
	process *harness.Process
	front   *harness.Proxy // nil for an executor, which nobody calls
}

func startUpgrade(t *testing.T) *upgrade {
	t.Helper()
	s := harness.Start(t, harness.Options{
		Agents: strings.ReplaceAll(agents, "ANSWER", answer), NATS: harness.StartNATS(t, 1), Fronts: true, LogLevel: "info",
		StateEnv: []string{harness.PatientState},
		// A step in flight may end, as with the default.
		ExecutorEnv: []string{"HOLDFAST_EXECUTOR_DRAIN_GRACE=5s"},
	})
	front := harness.StartProxy(t, s.Gateway.Address)
	u := &upgrade{t: t, system: s, replaced: make(chan struct{}), ended: make(chan struct{}, 1)}
	u.client = harness.Client{URL: front.URL, Key: harness.Key, OnRetry: u.count}
	u.services = []*service{{s.State, s.StateFront}, {s.Stream, s.GatewayFront}, {s.Executors[0], nil}, {s.Gateway, front}}
	return u
}

// count records a failure that a client retries. A refusal has to say that the gateway stops.
func (u *upgrade) count(err error) {
	code, body, refused := harness.Refusal(err)
	switch {
	case !refused:
		u.lost.Add(1)
	case code == http.StatusNoContent: // the answer has ended: the same request replays it
	case code == http.StatusServiceUnavailable && strings.Contains(body, "GATEWAY_STOPPING"):
		u.refused.Add(1)
	default:
		u.t.Errorf("a request was refused: %v", err)
	}
}

// talk has one turn after the other and returns how many.
func (u *upgrade) talk(ctx context.Context, client int) int {
	for n := 0; ; n++ {
		select {
		case <-u.replaced:
			return n
		default:
		}
		m, err := u.client.Converse(ctx, session(client), "clerk", "note "+word(client, n))
		if err != nil {
			u.t.Errorf("turn %d of client %d: %v", n, client, err)
			return n
		}
		if got := m.Text(); got != answer {
			u.t.Errorf("turn %d of client %d: the answer is %q, want %q", n, client, got, answer)
		}
		u.turns.Add(1)
		select {
		case u.ended <- struct{}{}:
		default: // a client does not wait for the upgrade
		}
	}
}

// awaitTurns waits until some more turns have ended.
func (u *upgrade) awaitTurns(ctx context.Context) {
	u.t.Helper()
	for range turnsPerRestart {
		select {
		case <-u.ended:
		case <-ctx.Done():
			u.t.Fatalf("no turn ends: %v", ctx.Err())
		}
	}
}

// replace starts the next process of a service, leads new connections to it, and only then stops the old one.
func (u *upgrade) replace(s *service) {
	u.t.Helper()
	next := s.process.Successor(u.t)
	next.Start()
	if s.front != nil {
		s.front.Switch(next.Address)
	}
	took := s.process.Stop(harness.StopLimit)
	u.t.Logf("%s is replaced; the old process took %v to stop", s.process.Name, took.Round(time.Millisecond))
	s.process = next
}

// check checks that the conversation is whole and that each tool call ran once.
func (u *upgrade) check(client, turns int) {
	u.t.Helper()
	var got, want []string
	for _, m := range u.client.Messages(u.t, session(client)) {
		got = append(got, m.Role+": "+m.Text())
	}
	for n := range turns {
		want = append(want, "user: note "+word(client, n), "assistant: "+answer)
		if effects := u.system.Effects.Lines(word(client, n)); len(effects) != 1 {
			u.t.Errorf("the call of turn %d of client %d ran %d times, want once: %q", n, client, len(effects), effects)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		u.t.Errorf("the conversation of client %d is\n%q\nwant\n%q", client, got, want)
	}
}

func session(client int) string { return fmt.Sprintf("rolling/%d", client) }

// word is unique, and no word is part of another.
func word(client, turn int) string { return fmt.Sprintf("note-%d-%04d", client, turn) }
