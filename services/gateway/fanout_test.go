package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestThreeHundredReadersOfASessionAreOneCallUpstream(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	first := run.Show(1, Started())
	second := run.Show(1, Text("1"))
	live, _ := h.Stream.Reads()
	var streams []*reader
	for i := range 300 {
		stream := h.resume(t, fmt.Sprint("/sse?sessionId=s1&fromSequence=", []int64{0, first, second}[i%3]))
		streams = append(streams, stream)
	}
	for _, stream := range streams {
		stream.until("{}")
	}
	waitFor(t, "the readers' own calls have ended", func() bool { return h.Stream.OpenReads() == 1 })
	if now, _ := h.Stream.Reads(); now != live+1 {
		t.Errorf("got %d calls that follow, want one", now-live)
	}
	run.Show(1, Text("2"))
	run.Complete()
	for i, stream := range streams {
		if got := names(stream.rest()); got != "chunk 1.33.3, chunk 1.committed, chunk 1.last, end 1.ended" {
			t.Errorf("reader %d: got %s", i, got)
		}
	}
}

// readerResult has the sequences of the chunks that a reader received, in order.
type readerResult struct {
	chunks []int64
	text   string
	ended  bool
}

// readerFunc reads like a client that resumes after each drop. It calls begun when the server has
// begun to answer.
type readerFunc func(t *testing.T, h *fixture, begun func()) (readerResult, error)

// Readers of all kinds, early and late, through upstream cuts: each receives everything once.
func TestReadersOfAllKindsReceiveEverythingOnceThroughCuts(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted())
	kinds := map[string]readerFunc{"sse": sseTally, "ws": wsTally, "chat": chatTally, "connect": connectTally}
	type result struct {
		kind string
		readerResult
		err error
	}
	results := make(chan result)
	readers := 0
	var late sync.WaitGroup // without an answer yet
	begin := func() {
		for kind, read := range kinds {
			readers++
			late.Add(1)
			go func() {
				begun := sync.OnceFunc(late.Done)
				defer begun()
				got, err := read(t, h, begun)
				results <- result{kind, got, err}
			}()
		}
	}
	want := readerResult{ended: true}
	begin()
	child := run.Child("child")
	for i := range 120 {
		word := fmt.Sprint(i, " ")
		run.Show(1, Text(word))
		want.text += word
		switch rand.IntN(12) {
		case 0:
			h.Stream.DropReads()
		case 1:
			child.Show(1, Text("below"))
		case 2:
			child.Complete()
			child = run.Child(fmt.Sprint("child-", i))
		}
		if i%40 == 20 {
			begin()
		}
	}
	late.Wait() // no client resumes a chat that has ended
	run.Show(1, StepCommitted(), Completed())
	run.Complete()
	for range readers {
		got := <-results
		if !slices.IsSorted(got.chunks) || len(slices.Compact(got.chunks)) != len(got.chunks) {
			t.Errorf("%s: the positions do not rise: %v", got.kind, got.chunks)
		}
		got.chunks = nil
		if got.err != nil || fmt.Sprint(got.readerResult) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, %v; want %v", got.kind, got.readerResult, got.err, want)
		}
	}
}

func sseTally(t *testing.T, h *fixture, begun func()) (readerResult, error) {
	response, err := get(t, h, "/sse?sessionId=s1")
	if err != nil {
		return readerResult{}, err
	}
	begun()
	defer response.Body.Close()
	events, err := streamOf(t, &reply{response}).all()
	var got readerResult
	for _, e := range events {
		got.event(e.name, e.id, e.data)
	}
	return got, err
}

func (got *readerResult) event(name, id, data string) {
	var sequence int64
	_, _ = fmt.Sscan(id, &sequence)
	switch {
	case name == "chunk" && !strings.Contains(data, `"sessionId"`):
		got.chunks = append(got.chunks, sequence)
		got.text += delta(data)
	case name == "end":
		got.ended = true
	}
}

func delta(data string) string {
	_, rest, _ := strings.Cut(data, `"delta":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

func wsTally(t *testing.T, h *fixture, begun func()) (readerResult, error) {
	conn, _, err := h.upgrade(t, "/ws?sessionId=s1", nil) //nolint:bodyclose // the body is the socket
	if err != nil {
		return readerResult{}, err
	}
	begun()
	defer func() { _ = conn.CloseNow() }()
	s := &socket{conn, t}
	var got readerResult
	for {
		f, err := s.next()
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got.event(f.Type, fmt.Sprint(f.Sequence), f.text)
	}
}

func chatTally(t *testing.T, h *fixture, begun func()) (readerResult, error) {
	response, err := get(t, h, "/chat/s1/stream")
	if err != nil {
		return readerResult{}, err
	}
	begun()
	defer response.Body.Close()
	if response.StatusCode == http.StatusNoContent {
		return readerResult{}, errors.New("nothing to resume")
	}
	events, err := streamOf(t, &reply{response}).all()
	var got readerResult
	for _, e := range events {
		if strings.Contains(e.data, `"text-delta"`) {
			got.text += delta(e.data)
		}
		got.ended = got.ended || e.data == "[DONE]"
	}
	return got, err
}

func connectTally(t *testing.T, h *fixture, begun func()) (readerResult, error) {
	stream, err := clients(t, h)["connect"].Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1"})
	if err != nil {
		return readerResult{}, err
	}
	begun()
	defer func() { _ = stream.Close() }()
	var got readerResult
	for stream.Receive() {
		if chunk := stream.Msg().GetChunk(); chunk != nil {
			got.chunks = append(got.chunks, chunk.GetSequence())
			got.text += chunk.GetChunk().GetTextDelta().GetDelta()
		}
		got.ended = got.ended || stream.Msg().GetEnd() != nil
	}
	return got, stream.Err()
}

func get(t *testing.T, h *fixture, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestATopicLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started())
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/sse?sessionId=s1", nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				return // it left before the answer
			}
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
		})
	}
	waitFor(t, "all are there", func() bool { return h.service.OpenStreams() == 20 && h.Stream.OpenReads() == 1 })
	leave()
	group.Wait()
	waitFor(t, "the topic has ended", func() bool { return h.service.OpenStreams() == 0 && h.Stream.OpenReads() == 0 })
	if got := h.State.Newest("default", "s1").GetEndPosition(); got > 0 {
		t.Error("the run was ended by its readers")
	}
	run.Complete()
	if got := names(h.resume(t, "/sse?sessionId=s1").rest()); got != "chunk 1.stored.1, chunk 1.committed, chunk 1.last, end 1.ended" {
		t.Errorf("got %s", got)
	}
}

// The test counts the goroutines of the process, so it runs alone.
func TestNoGoroutineIsLeftOfReaders(t *testing.T) { //nolint:paralleltest // see above
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	for range 5 {
		stream := h.resume(t, "/sse?sessionId=s1")
		s := h.socket(t, "/ws?sessionId=s1")
		s.until("caught-up")
		_ = s.CloseNow()
		stream.until("{}")
	}
	run.Complete()
	waitFor(t, "no goroutine of a reader is left", func() bool {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		return !strings.Contains(stacks.String(), "/internal/follow.") && !strings.Contains(stacks.String(), "/internal/native.")
	})
}

func TestOnlyAFamilyReadReceivesTheSessionsBelow(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted())
	all, one := h.resume(t, "/sse?sessionId=s1"), h.resume(t, "/sse?sessionId=s1&runId=run_1")
	root := h.resume(t, "/sse?sessionId=s1&family=false")
	chat := h.resume(t, "/chat/s1/stream")
	below := run.Child("c1")
	own := h.resume(t, "/sse?sessionId=c1")
	for _, r := range []*reader{all, one, own, root} {
		r.until("{}") // what follows is live
	}
	at := below.Show(1, Started(), Text("a"))
	below.Show(1, Text("void"))
	own.until("void")
	all.until("void")
	late := h.resume(t, "/sse?sessionId=s1")
	late.until("void")
	below.Rewind(at)
	below.Show(1, Text("b"))
	below.Complete()
	run.Show(1, Text("mine"))
	run.Complete(AssistantMessage(1, "mine"))
	rest := all.rest()
	const parent = "chunk 1.33.3, chunk 1.committed, chunk 1.last, end 1.ended"
	if got := names(rest); !strings.HasPrefix(got, "rewound, chunk, ") || !strings.HasSuffix(got, parent) {
		t.Fatalf("the family: got %s, want it to end with %s", got, parent)
	}
	if rest[0].data != `{"at":0,"sessionId":"c1"}` || !strings.HasSuffix(rest[1].data, `,"sessionId":"c1"}`) || strings.Contains(rest[len(rest)-1].data, "sessionId") {
		t.Errorf("got %s", dataLines(rest))
	}
	// Only this reader receives caught-up there.
	if got, want := strings.TrimPrefix(dataLines(late.rest()), "{}\n"), dataLines(rest); got != want {
		t.Errorf("late: got %s, want %s", got, want)
	}
	for who, r := range map[string]*reader{"one run": one, "the root": root} {
		if got := names(r.rest()); got != parent {
			t.Errorf("%s: got %s, want %s", who, got, parent)
		}
	}
	if got := names(own.rest()); !strings.HasPrefix(got, "rewound, chunk 1.34.1, ") || !strings.HasSuffix(got, "end 1.ended") {
		t.Errorf("the child: got %s", got)
	}
	if got := dataLines(chat.rest()); strings.Contains(got, "void") || !strings.Contains(got, "mine") || strings.Count(got, `"start"`) != 1 || !strings.HasSuffix(got, "[DONE]\n") {
		t.Errorf("chat: got %s", got)
	}
}

// Clients resume with the last id, so a sub-agent's frame must have none.
func TestAReaderThatDropsAfterASubAgentsFrameLosesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), StepStarted(), Text("One"), StepCommitted())
	run.Show(2, StepStarted())
	stream := h.resume(t, "/sse?sessionId=s1")
	events := stream.until("{}")
	child := run.Child("c1")
	for step := range int32(3) {
		child.Show(step+1, StepStarted(), Text("below"))
		if step < 2 {
			child.Show(step+1, StepCommitted())
		}
	}
	socket := h.socket(t, "/ws?sessionId=s1")
	var last event // as EventSource keeps it: an event without an id changes nothing
	for _, e := range append(append(events, stream.until("below")...), stream.until("below")...) {
		if strings.Contains(e.data, "sessionId") && e.id != "" {
			t.Errorf("a frame of the sub-agent has an id: %v", e)
		}
		if e.id != "" {
			last = e
		}
	}
	for _, f := range socket.until("caught-up") {
		if f.Type == "rewound" && f.Sequence > 0 {
			t.Errorf("a rewound of the sub-agent has a sequence for the root: %s", f.text)
		}
	}
	run.Show(2, Text("Two"), StepCommitted())
	run.Show(3, StepStarted(), Text("Three"), StepCommitted(), Completed())
	run.Complete()
	rest := dataLines(h.resume(t, "/sse?sessionId=s1", "Last-Event-ID", last.id).rest())
	for _, want := range []string{`"delta":"Two"`, `"delta":"Three"`} {
		if !strings.Contains(rest, want) {
			t.Errorf("after %s: got %s, want %s", placeOfID(last.id), rest, want)
		}
	}
}
