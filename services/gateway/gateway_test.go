package gateway_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// fixture is a gateway that serves on loopback, with its World.
type fixture struct {
	*gatewaytest.World
	url     string
	service *gateway.Service
	stop    func() error // ends Serve
}

// open starts a gateway. Its executor announces the agents, or else demo and other.
func open(t testing.TB, change func(*gateway.Config), agents ...*statev1.Agent) *fixture {
	t.Helper()
	return openOn(t, listen(t), change, agents...)
}

// listen listens on loopback.
func listen(t testing.TB) net.Listener {
	t.Helper()
	var listening net.ListenConfig
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func openOn(t testing.TB, listener net.Listener, change func(*gateway.Config), agents ...*statev1.Agent) *fixture {
	t.Helper()
	world := gatewaytest.New(t, agents...)
	serveChecker(t, world)
	return openOver(t, listener, world, func(c *gateway.Config) {
		c.Executors = []string{checker}
		if change != nil {
			change(c)
		}
	})
}

// openOver starts a gateway on services that run already.
func openOver(t testing.TB, listener net.Listener, world *gatewaytest.World, change func(*gateway.Config)) *fixture {
	t.Helper()
	return openWith(t, listener, world, gateway.Peers{}, change)
}

// openWith is openOver with peers.
func openWith(t testing.TB, listener net.Listener, world *gatewaytest.World, p gateway.Peers, change func(*gateway.Config)) *fixture {
	t.Helper()
	c := gateway.Config{}
	if err := config.Load(&c, nil); err != nil {
		t.Fatal(err)
	}
	c.StateAddress, c.StreamAddress = gatewaytest.StateAddress, gatewaytest.StreamAddress
	c.InsecureNoAuth, c.DefaultAgent, c.MessageMetadata = true, "demo", false // other tests check the metadata
	c.AISDK = 7                                                               // other tests check other versions
	if change != nil {
		change(&c)
	}
	p.Network, p.Log = world.Network, cmp.Or(p.Log, slog.New(slog.DiscardHandler))
	service, err := gateway.New(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- service.Serve(ctx, listener, time.Second) }()
	h := &fixture{World: world, service: service, url: "http://" + listener.Addr().String()}
	h.stop = func() error {
		cancel()
		err := <-served
		served <- err
		return err
	}
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
		waitFor(t, "no call to the stream service is left open", func() bool { return world.Stream.OpenReads() == 0 })
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(gatewaytest.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("still waiting: %s", what)
}

func (h *fixture) request(t testing.TB, method, path, body string, headers ...string) *reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*gatewaytest.Patience) // for the request and the whole answer
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &reply{response}
}

// reply is a response whose body is closed at the end of the test.
type reply struct{ *http.Response }

// disconnect closes the only stream of a session, and waits until the gateway has noticed.
func (h *fixture) disconnect(t testing.TB, response *reply) {
	t.Helper()
	waitFor(t, "the stream is read", func() bool { return h.Stream.OpenReads() == 1 })
	_ = response.Body.Close()
	waitFor(t, "the reader is gone", func() bool { return h.Stream.OpenReads() == 0 })
}

func text(t *testing.T, r *reply) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// undated removes the times of creation from JSON.
func undated(json string) string { return createdAt.ReplaceAllString(json, "") }

var createdAt = regexp.MustCompile(`,"createdAt":[0-9]+`)

// wantFault checks a fault, and that the answer has no internals.
func wantFault(t *testing.T, r *reply, status int, code string) {
	t.Helper()
	b := text(t, r)
	body := struct{ Error, Code, Detail string }{b, r.Header.Get("X-Holdfast-Error-Code"), r.Header.Get("X-Holdfast-Error-Detail")}
	if body.Code == "" { // the error is JSON
		if err := json.Unmarshal([]byte(b), &body); err != nil {
			t.Fatalf("%d %s: %v", r.StatusCode, b, err)
		}
	}
	if r.StatusCode != status || body.Code != code || body.Error == "" {
		t.Errorf("got %d %s, want %d %s", r.StatusCode, b, status, code)
	}
}

// chatBody returns the body of a POST /chat.
func chatBody(session, text string) string {
	b, err := json.Marshal(map[string]any{"id": session, "trigger": "submit-message", "extra": 1,
		"messages": []any{map[string]any{"id": "u-" + text, "role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// event is one event of a stream.
type event struct{ id, name, data string }

// reader reads the events of a response.
type reader struct {
	t     *testing.T
	lines *bufio.Reader
}

func (h *fixture) chat(t *testing.T, body string, headers ...string) *reader {
	t.Helper()
	return streamOf(t, h.request(t, http.MethodPost, "/chat", body, headers...))
}

func (h *fixture) resume(t *testing.T, path string, headers ...string) *reader {
	t.Helper()
	return streamOf(t, h.request(t, http.MethodGet, path, "", headers...))
}

func streamOf(t *testing.T, r *reply) *reader {
	t.Helper()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", r.StatusCode, text(t, r))
	}
	if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("content type: got %q", got)
	}
	return &reader{t, bufio.NewReader(r.Body)}
}

// next returns the next event. It skips comments.
func (r *reader) next() (event, error) {
	var e event
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); {
		case line == "" && e != event{}:
			return e, nil
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		}
	}
}

// until reads events up to the one whose data contains the text.
func (r *reader) until(part string) []event {
	r.t.Helper()
	var events []event
	for {
		e, err := r.next()
		if err != nil {
			r.t.Fatalf("waiting for %s after %v: %v", part, events, err)
		}
		events = append(events, e)
		if strings.Contains(e.data, part) {
			return events
		}
	}
}

// rest reads to the end of the body, which must be clean.
func (r *reader) rest() []event {
	r.t.Helper()
	events, err := r.all()
	if err != nil {
		r.t.Fatalf("the body breaks off after %v: %v", events, err)
	}
	return events
}

func (r *reader) all() ([]event, error) {
	var events []event
	for {
		e, err := r.next()
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

// placeName returns a readable position: step, attempt and number of the chunk, or the name of a
// boundary.
func placeName(sequence int64) string {
	p := position.Of(sequence)
	switch {
	case sequence == 0:
		return "0"
	case sequence == position.Committed(p.Step):
		return fmt.Sprint(p.Step, ".committed")
	case sequence == position.Ended(p.Step):
		return fmt.Sprint(p.Step, ".ended")
	case sequence == position.Ended(p.Step)-1:
		return fmt.Sprint(p.Step, ".last")
	case p.Attempt == position.Stored:
		return fmt.Sprint(p.Step, ".stored.", p.N)
	case p.N == position.MaxN:
		return fmt.Sprint(p.Step, ".outside")
	case p.N == position.MaxN-1:
		return fmt.Sprint(p.Step, ".outside-1")
	case p.N == position.MaxN-2:
		return fmt.Sprint(p.Step, ".outside-2")
	default:
		return fmt.Sprint(p.Step, ".", p.Attempt, ".", p.N)
	}
}

// placeOfID is placeName of an event's id.
func placeOfID(id string) string {
	if id == "" {
		return ""
	}
	if strings.HasSuffix(id, ".start") {
		return "start"
	}
	whole, parts, within := strings.Cut(id, ".")
	var sequence int64
	_, _ = fmt.Sscan(whole, &sequence)
	if within {
		return placeName(sequence) + ":" + parts
	}
	return placeName(sequence)
}

// mergeDeltas joins the text deltas in the data of events, and drops the deltas of arguments, as in
// a stored step.
func mergeDeltas(datas string) string {
	var lines []string
	for line := range strings.Lines(datas) {
		var p, before struct{ Type, ID, Delta string }
		_ = json.Unmarshal([]byte(line), &p)
		if p.Type == "tool-input-delta" {
			continue
		}
		if n := len(lines) - 1; n >= 0 && strings.HasSuffix(p.Type, "-delta") {
			_ = json.Unmarshal([]byte(lines[n]), &before)
			if before.Type == p.Type && before.ID == p.ID {
				lines[n] = fmt.Sprintf("{%q:%q,%q:%q,%q:%q}\n", "type", p.Type, "id", p.ID, "delta", before.Delta+p.Delta)
				continue
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// dataLines returns the data of events, one per line.
func dataLines(events []event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, e.data)
	}
	return b.String()
}
