package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestAFrameThatIsTooLargeClosesItsSocketOnly(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes = 4096 })
	large, other := h.talk(t), h.talk(t)
	other.say(sendFrame("r1", "s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	frame := sendFrame("r1", "s2", strings.Repeat("x", 4096-len(sendFrame("r1", "s2", ""))))
	large.say(resumeFrame("r1", "s1"), `{"type":"abort","requestId":"r1","x":"`+strings.Repeat("x", 4096-len(`{"type":"abort","requestId":"r1","x":""}`))+`"}`)
	_ = large.Write(t.Context(), websocket.MessageText, []byte(frame))
	large.drop(websocket.StatusMessageTooBig, "")
	run.Complete()
	other.until(`"end"`)
}

func TestTheRequestsOfASocketAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxSocketChats = 2 })
	s := h.talk(t)
	var runs []*Run
	for _, id := range []string{"s1", "s2"} {
		s.say(sendFrame(id, id, "hi"))
		runs = append(runs, h.AwaitRun(t, "default", id, nil))
	}
	s.say(sendFrame("s3", "s3", "hi"))
	if got := s.until("s3"); !strings.Contains(got, `"error"`) || !strings.Contains(got, "TOO_MANY_REQUESTS") {
		t.Errorf("got %s", got)
	}
	if h.State.Has("default", "s3") {
		t.Error("a refused request has begun a session")
	}
	playAnswer(runs[0])
	s.until(`"end"`)
	s.say(sendFrame("s3", "s3", "hi"))
	h.AwaitRun(t, "default", "s3", nil).Complete()
	s.until(`{"type":"end","requestId":"s3"}`)
	playAnswer(runs[1])
	s.until(`"end"`)
}

func TestADeliveryReleasesTheFrameOfItsRequest(t *testing.T) {
	h := open(t, nil)
	s := h.talk(t)
	const requests, size = 6, 6 << 20
	var runs []*Run
	before, _ := memoryInUse() // of the process, so no test may run in parallel
	for i := range requests {
		id := fmt.Sprint("s", i)
		large := `{"id":"a-1","role":"assistant","parts":[{"type":"data-x","data":"` + strings.Repeat("x", size) + `"}]},`
		s.say(strings.Replace(sendFrame(id, id, "hi"), `"messages":[`, `"messages":[`+large, 1))
		run := h.AwaitRun(t, "default", id, nil)
		run.Show(1, Started(), StepStarted(), Text("Once "))
		s.until("Once ")
		runs = append(runs, run)
	}
	waitFor(t, "the frames are let go of", func() bool {
		now, _ := memoryInUse()
		return now-before < requests*size/2
	})
	for _, run := range runs {
		run.Complete()
		s.until(`"end"`)
	}
}

func TestRequestsOfASocketCountAsStreams(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxStreams = 2 })
	s := h.talk(t)
	s.say(sendFrame("r1", "s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	s.say(resumeFrame("r2", "s1"))
	if got := s.until("r2"); !strings.Contains(got, "TOO_MANY_STREAMS") {
		t.Errorf("got %s", got)
	}
	if _, response, err := h.upgrade(t, "/chat/ws", nil); err == nil || response.StatusCode != http.StatusTooManyRequests { //nolint:bodyclose // the body is the socket
		t.Errorf("one socket more: got %v, %v", response, err)
	}
	playAnswer(run)
	s.until(`"end"`)
}

func TestADrainedGatewayDropsItsChatSockets(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, idle, silent := h.talk(t), h.talk(t), h.talk(t) // the client of silent answers nothing, not even the close
	s.say(sendFrame("r1", "s1", "hi"))
	h.AwaitRun(t, "default", "s1", nil).Show(1, Started(), StepStarted(), Text("Once "))
	s.until("Once ")
	stopped := make(chan error, 1) // room for its one result
	began := time.Now()
	go func() { stopped <- h.stop() }()
	for _, socket := range []*talk{s, idle} {
		for _, f := range socket.drop(websocket.StatusServiceRestart, "GATEWAY_STOPPING") {
			t.Errorf("got %s before the close", f.text)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("the stop took %v", took)
	}
	_ = silent.CloseNow()
}

func TestASlowSocketIsCutAndOthersAreNot(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.WriteTimeout, c.Heartbeat = 10*time.Second, time.Hour })
	slow, fast := h.talk(t), h.talk(t)
	fast.SetReadLimit(8 << 20)
	fast.say(sendFrame("r1", "s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Once "))
	all := fast.until("Once ")
	slow.say(resumeFrame("r1", "s1"))
	waitFor(t, "both are told", func() bool { return h.service.OpenStreams() == 4 })
	const times, size = 48, 1 << 19 // more than the kernel buffers for a stalled reader
	for i := range times {
		run.Show(1, Text(strings.Repeat("x", size)+fmt.Sprint(i, "!")))
		all += fast.until(fmt.Sprint(i, "!"))
	}
	waitFor(t, "the slow one is cut", func() bool { return h.service.OpenStreams() == 2 })
	run.Complete(AssistantMessage(1, "Once ")) // the step is smaller than what was shown of it
	if got := partsOf(t, "r1", all+fast.until(`"end"`)); len(got) < times*size {
		t.Errorf("the fast one got %d bytes", len(got))
	}
}

func TestAChatSocketThatDoesNotAnswerPingsIsLeft(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat, c.WriteTimeout = 50*time.Millisecond, 8*time.Second })
	answers := h.talk(t)
	left := make(chan error, 1) // room for its one result
	go func() {
		_, err := answers.next()
		left <- err
	}()
	h.talk(t) // its client does not read, so it sends no pong
	waitFor(t, "there are two", func() bool { return h.service.OpenStreams() == 2 })
	waitFor(t, "the gateway has left one", func() bool { return h.service.OpenStreams() == 1 })
	answers.say(resumeFrame("r1", "nobody"))
	if err := <-left; err != nil {
		t.Errorf("the one that answers: %v", err)
	}
}

func TestAClientThatClosesItsChatSocketStopsNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for i, leave := range []func(*talk){
		func(s *talk) { _ = s.Close(websocket.StatusNormalClosure, "") },
		func(s *talk) { _ = s.CloseNow() },
	} {
		id := fmt.Sprint("s", i)
		s := h.talk(t)
		s.say(sendFrame("r1", id, "hi"))
		run := h.AwaitRun(t, "default", id, nil)
		leave(s)
		waitFor(t, "the gateway has noticed", func() bool { return h.service.OpenStreams() == 0 && h.Stream.OpenReads() == 0 })
		playAnswer(run)
		again := h.talk(t)
		again.say(resumeFrame("r1", id))
		again.until(`"end"`)
		_ = again.CloseNow()
		waitFor(t, "that one is gone, too", func() bool { return h.service.OpenStreams() == 0 })
	}
}
