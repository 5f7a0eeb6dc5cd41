package gateway_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// postAsync sends a request whose answer takes a while.
func (h *fixture) postAsync(t *testing.T, path, body string) <-chan *reply {
	t.Helper()
	answered := make(chan *reply, 1)
	go func() {
		defer close(answered)
		answered <- h.request(t, http.MethodPost, path, body)
	}()
	return answered
}

func TestAStopIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"s1", "a/b ☃", "/"} {
		for path, kind := range map[string]statev1.StopKind{
			"/chat/" + url.PathEscape(id) + "/interrupt":     statev1.StopKind_STOP_KIND_INTERRUPT,
			"/chat/" + url.PathEscape(id) + "/abort":         statev1.StopKind_STOP_KIND_ABORT,
			"/interrupt?sessionId=" + url.QueryEscape(id):    statev1.StopKind_STOP_KIND_INTERRUPT,
			"/abort?wait=0&sessionId=" + url.QueryEscape(id): statev1.StopKind_STOP_KIND_ABORT,
		} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				h := open(t, nil)
				h.chat(t, chatBody(id, "hi"))
				run := h.AwaitRun(t, "default", id, nil)
				for body, reason := range map[string]string{"": "", " \n": "", `{"reason":"enough","runId":"run_1"}`: "enough"} {
					r := h.request(t, http.MethodPost, path, body)
					if got := text(t, r); r.StatusCode != http.StatusAccepted || got != `{"effect":"requested","runId":"run_1"}`+"\n" {
						t.Errorf("got %d %s", r.StatusCode, got)
					}
					stops := h.State.Stops()
					if last := stops[len(stops)-1]; last.GetKind() != kind || last.GetReason() != reason {
						t.Errorf("got %v", last)
					}
				}
				playAnswer(run)
				r := h.request(t, http.MethodPost, path, "")
				if got := text(t, r); r.StatusCode != http.StatusAccepted || got != `{"effect":"none","runId":"run_1"}`+"\n" {
					t.Errorf("when it is over: got %d %s", r.StatusCode, got)
				}
			})
		}
	}
}

func TestAStopThatIsWaitedForIsAnsweredWhenTheRunHasEnded(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Once"))
	stream.until("Once")
	answered := h.postAsync(t, "/chat/s1/interrupt?wait=60000", `{"reason":"enough"}`)
	waitFor(t, "the stop is asked for", func() bool { return len(h.State.Stops()) == 1 })
	run.Show(1, StepCommitted(), Interrupted())
	select {
	case got := <-answered:
		t.Fatalf("answered %v before the run has ended", got)
	default:
	}
	cut := AssistantMessage(1, "Once")
	cut.Metadata = map[string]string{"interrupted": "interrupt", "other": "x"}
	run.Interrupt(cut)
	if r := <-answered; r.StatusCode != http.StatusOK {
		t.Errorf("got %d", r.StatusCode)
	}
	want := `{"type":"text-end","id":"text-1-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"interrupted"}
[DONE]
`
	if got := dataLines(stream.rest()); got != want {
		t.Errorf("got %s", got)
	}
	message := `{"id":"msg_run1","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"Once","state":"done"}],"metadata":{"runId":"run_1","agentType":"demo","interrupted":"interrupt"}}`
	for _, path := range []string{"/messages?sessionId=s1", "/snapshot?sessionId=s1"} {
		if got := undated(text(t, h.request(t, http.MethodGet, path, ""))); !strings.Contains(got, message) {
			t.Errorf("%s: got %s", path, got)
		}
	}
}

func TestAStopThatIsNotSeenInTimeSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	wantFault(t, h.request(t, http.MethodPost, "/chat/s1/abort?wait=1", ""), http.StatusGatewayTimeout, "STOP_NOT_OBSERVED")
	for name, client := range clients(t, h) {
		_, err := client.Abort(t.Context(), &agentv1.AbortRequest{SessionId: "s1", WaitMs: 1})
		if got := connect.CodeOf(err); got != connect.CodeDeadlineExceeded || fault.ReasonOf(rpc.FromConnect(err)) != "STOP_NOT_OBSERVED" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	run.Fail("The run was stopped.", "framework_cancelled")
	for name, client := range clients(t, h) {
		if got, err := client.Interrupt(t.Context(), &agentv1.InterruptRequest{SessionId: "s1", WaitMs: 60_000}); err != nil || got.GetEffect() != "none" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestBadStopsAreTypedErrors(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	post := func(path, body string) *reply { return h.request(t, http.MethodPost, path, body) }
	wantFault(t, post("/chat/nobody/interrupt", ""), 404, "SESSION_NOT_FOUND")
	wantFault(t, post("/chat/s1/abort", `{"runId":"nobody"}`), 404, "RUN_NOT_FOUND")
	wantFault(t, post("/chat/s1/abort", `{"runId":"a\u0001"}`), 400, "ID_INVALID")
	wantFault(t, post("/chat/%ff/abort", ""), 400, "ID_INVALID")
	wantFault(t, post("/interrupt", ""), 400, "ID_INVALID")
	wantFault(t, post("/interrupt?sessionId=s1", `{"reason":1}`), 400, "BODY_INVALID")
	wantFault(t, post("/interrupt?sessionId=s1", `{`), 400, "BODY_INVALID")
	wantFault(t, post("/interrupt?sessionId=s1&wait=60001", ""), 400, "PARAMETER_INVALID")
	wantFault(t, post("/interrupt?sessionId=s1&wait=x", ""), 400, "PARAMETER_INVALID")
	wantFault(t, post("/abort?sessionId=s1", `{"reason":"`+strings.Repeat("x", 65<<10)+`"}`), 413, "BODY_TOO_LARGE")
	wantFault(t, h.request(t, http.MethodGet, "/abort?sessionId=s1", ""), 405, "METHOD_NOT_ALLOWED")
	wantFault(t, h.request(t, http.MethodPost, "/abort?sessionId=s1", "", "Origin", "https://evil.example"), 403, "ORIGIN_REFUSED")
	client := clients(t, h)["grpc"]
	for reason, r := range map[string]*agentv1.InterruptRequest{
		"ID_INVALID": {}, "WAIT_INVALID": {SessionId: "s1", WaitMs: 1 << 60}, "SESSION_NOT_FOUND": {SessionId: "nobody"},
	} {
		if _, err := client.Interrupt(t.Context(), r); fault.ReasonOf(rpc.FromConnect(err)) != reason {
			t.Errorf("got %v, want %s", err, reason)
		}
	}
	if got := len(h.State.Stops()); got != 0 {
		t.Errorf("%d stops were asked for", got)
	}
	playAnswer(run)
}

func TestStopsThatAreWaitedForCountAsStreams(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxStreams = 1 })
	h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	wantFault(t, h.request(t, http.MethodPost, "/chat/s1/abort?wait=1000", ""), 429, "TOO_MANY_STREAMS")
	if r := h.request(t, http.MethodPost, "/chat/s1/abort", ""); r.StatusCode != http.StatusAccepted {
		t.Errorf("got %d", r.StatusCode)
	}
	playAnswer(run)
}

func TestShutdownEndsStopsThatAreWaitedFor(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	h.AwaitRun(t, "default", "s1", nil)
	answered := h.postAsync(t, "/chat/s1/abort?wait=60000", "")
	waitFor(t, "the stop is asked for", func() bool { return len(h.State.Stops()) == 1 })
	began := time.Now()
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	wantFault(t, <-answered, http.StatusServiceUnavailable, "GATEWAY_STOPPING")
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestAChatThatAShutdownCutsBeforeItsAnswerIsToldToConnectAgain(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	reached, held := make(chan struct{}), make(chan struct{})
	h.State.HoldStarts(func(*statev1.StartRunRequest) { close(reached); <-held })
	t.Cleanup(func() { close(held) })
	answered := h.postAsync(t, "/chat", chatBody("s1", "hi"))
	<-reached
	go func() { _ = h.stop() }()
	wantFault(t, <-answered, http.StatusServiceUnavailable, "GATEWAY_STOPPING")
}
