package gateway_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// newReplica starts another gateway for the same services.
func (h *fixture) newReplica(t *testing.T) *fixture {
	t.Helper()
	c := gateway.Config{}
	if err := config.Load(&c, nil); err != nil {
		t.Fatal(err)
	}
	c.StateAddress, c.StreamAddress = StateAddress, StreamAddress
	c.InsecureNoAuth, c.DefaultAgent, c.MessageMetadata, c.AISDK = true, "demo", false, 7
	service, err := gateway.New(t.Context(), c, gateway.Peers{Network: h.Network, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- service.Serve(ctx, listener, time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{World: h.World, service: service, url: "http://" + listener.Addr().String()}
}

// wasStopped is the error of calls and messages of a session that was stopped while it waited.
const wasStopped = "The session was stopped."

// openCalls returns the calls of the message that seem to wait or run.
func (c *uiClient) openCalls() []string {
	var open []string
	for _, p := range c.parts {
		if state, _ := p["state"].(string); p["toolCallId"] != nil && !strings.HasPrefix(state, "output-") {
			open = append(open, p["toolCallId"].(string)+" "+state)
		}
	}
	return open
}

// wantNoPendingCalls wants a failed message without pending calls.
func wantNoPendingCalls(t *testing.T, what string, c *uiClient) {
	t.Helper()
	if open := c.openCalls(); len(open) > 0 || c.failed != wasStopped {
		t.Errorf("%s: %v still seem to wait, and it ends with %q: %s", what, open, c.failed, c)
	}
}

// loadAnswers returns the first answer of the conversation from /messages and from /snapshot.
func (h *fixture) loadAnswers(t *testing.T, session string) map[string]*uiClient {
	t.Helper()
	all := map[string]*uiClient{}
	for _, path := range []string{"/messages?sessionId=", "/snapshot?sessionId="} {
		var page struct {
			Messages []struct {
				ID    string
				Role  string
				Parts []uiPart
			}
		}
		if err := json.Unmarshal([]byte(text(t, h.request(t, http.MethodGet, path+session, ""))), &page); err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if m.Role == "assistant" && all[path] == nil {
				all[path] = clientWith(m.ID, m.Parts...)
			}
		}
	}
	return all
}

func TestNoCallIsPendingAfterAnAbortOfASuspendedConversation(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	playAsk(run, 1, "c1", "y1")
	events := stream.rest()
	other := h.newReplica(t)
	if r := h.request(t, http.MethodPost, "/chat/s1/abort", ""); r.StatusCode != http.StatusAccepted {
		t.Fatalf("got %d", r.StatusCode)
	}
	for name, g := range map[string]*fixture{"the same gateway": h, "another one": other} {
		if got := g.request(t, http.MethodGet, "/chat/s1/stream", "").StatusCode; got != http.StatusNoContent {
			t.Errorf("%s: got %d", name, got)
		}
		c := &uiClient{}
		c.replay(t, g.resume(t, "/chat/s1/stream?fromSequence=0").rest())
		wantNoPendingCalls(t, name+", from the start", c)
		if slices.Contains(c.asked, "c1") {
			t.Errorf("%s: the tool of c1 would be run", name)
		}
		for i, e := range events {
			rest := g.resume(t, "/chat/s1/stream", "Last-Event-ID", e.id).rest()
			wantNoPendingCalls(t, name+", behind "+e.data, clientAfter(t, events[:i+1], rest))
		}
		again := &uiClient{}
		again.apply(t, g.chat(t, chatBody("s1", "hi")).rest())
		wantNoPendingCalls(t, name+", sent again", again)
		for path, c := range g.loadAnswers(t, "s1") {
			if open := c.openCalls(); len(open) > 0 || c.call("y1")["errorText"] != wasStopped || c.call("c1")["input"] == nil {
				t.Errorf("%s: %s: got %s", name, path, c)
			}
		}
	}
	// Another message does not restore them.
	second := h.begin(t, "s1", "and now?", run)
	second.Show(2, Started(), StepStarted(), Text("Yes."), StepCommitted(), Completed())
	second.Complete(AssistantMessage(2, "Yes."))
	for path, c := range h.loadAnswers(t, "s1") {
		if open := c.openCalls(); len(open) > 0 || len(c.parts) == 0 {
			t.Errorf("%s: got %s", path, c)
		}
	}
}

func TestAnAbortEndsThePendingCallsOfALiveReader(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		h := open(t, func(c *gateway.Config) { c.Heartbeat = 5 * time.Millisecond }) // two heartbeats detect a lost log
		stream := h.chat(t, chatBody("s1", "hi"))
		run := h.AwaitRun(t, "default", "s1", nil)
		stream.until("") // the start
		h.Stream.SetUnavailable(true)
		h.State.FailNext(1 << 20) // the gateway sees neither the step nor the stop
		waitFor(t, "no earlier call or read is in flight", func() bool { return h.State.InFlight() == 0 && h.Stream.OpenReads() == 0 })
		playAsk(run, 1, "c1", "y1")
		h.State.Abort("default", "s1")
		h.State.FailNext(0)
		if lost {
			h.Stream.LoseRecords("default", "s1")
		}
		h.Stream.SetUnavailable(false)
		c := &uiClient{}
		c.apply(t, append([]event{{data: `{"type":"start","messageId":"msg_run1"}`}}, stream.rest()...))
		wantNoPendingCalls(t, map[bool]string{true: "from the store", false: "from the log"}[lost], c)
		if lost && slices.Contains(c.asked, "c1") { // the log shows the call to readers from before the stop
			t.Error("the tool of c1 would be run")
		}
	}
}

func TestAnInterruptedConversationKeepsItsPendingCalls(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	_, c := startAsking(t, h, "c1", "y1")
	if r := h.request(t, http.MethodPost, "/chat/s1/interrupt", ""); r.StatusCode != http.StatusAccepted {
		t.Fatalf("got %d", r.StatusCode)
	}
	page := &uiClient{}
	page.replay(t, h.newReplica(t).resume(t, "/chat/s1/stream").rest())
	if page.String() != c.String() || page.reason != "tool-calls" {
		t.Errorf("got %s, want %s", page, c)
	}
	for path, c := range h.loadAnswers(t, "s1") {
		if open := c.openCalls(); !slices.Equal(open, []string{"c1 input-available", "y1 approval-requested"}) {
			t.Errorf("%s: got %v", path, open)
		}
	}
}

func TestWhatWasAnsweredBeforeTheStopStaysAnswered(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	playAsk(run, 1, "c1", "c2", "y1")
	stream.rest()
	for _, answer := range []string{
		`{"toolCallId":"c1","result":"mine"}`, `{"toolCallId":"y1","kind":"approval-response","approvalId":"a-y1","approved":true}`,
	} {
		if r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", answer); r.StatusCode != http.StatusOK {
			t.Fatalf("got %d: %s", r.StatusCode, text(t, r))
		}
	}
	if r := h.request(t, http.MethodPost, "/chat/s1/abort", ""); r.StatusCode != http.StatusAccepted {
		t.Fatalf("got %d", r.StatusCode)
	}
	told := &uiClient{}
	told.replay(t, h.resume(t, "/chat/s1/stream?fromSequence=0").rest())
	if told.failed != wasStopped {
		t.Errorf("the stream ends with %q", told.failed)
	}
	all := h.loadAnswers(t, "s1")
	all["the stream"] = told
	for name, c := range all {
		if c.call("c1")["state"] != "output-available" || c.call("c1")["output"] != "mine" {
			t.Errorf("%s: the answered call is %v", name, c.call("c1"))
		}
		if c.call("y1")["state"] != "approval-responded" {
			t.Errorf("%s: the call that was allowed, which the next run runs, is %v", name, c.call("y1"))
		}
		if c.call("c2")["state"] != "output-error" {
			t.Errorf("%s: the call that nobody answered is %v", name, c.call("c2"))
		}
	}
}
