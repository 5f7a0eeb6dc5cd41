package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

const key = "a-key"

// gateway serves a run of `chunks` pieces of text and breaks each connection after `cut` frames.
type gateway struct {
	agentv1connect.UnimplementedAgentServiceHandler

	chunks int64
	cut    int64
	opened atomic.Int64
	newest atomic.Int64 // raised by every connection
	second func()       // called for the second connection; may be nil
}

func (g *gateway) Start(_ context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	if r.GetMessage() == "" {
		return nil, fault.New(fault.Invalid, "MESSAGE_INVALID", "say something")
	}
	return &agentv1.StartResponse{SessionId: r.GetSessionId(), RunId: "run-0"}, nil
}

func (g *gateway) Get(_ context.Context, r *agentv1.GetRequest) (*agentv1.GetResponse, error) {
	if r.GetSessionId() == "unknown" {
		return nil, fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", r.GetSessionId())
	}
	return &agentv1.GetResponse{SessionId: r.GetSessionId(), RunId: fmt.Sprintf("run-%d", g.newest.Load())}, nil
}

func (g *gateway) Stream(_ context.Context, r *agentv1.StreamRequest, s *connect.ServerStream[agentv1.StreamResponse]) error {
	if g.opened.Add(1) == 2 && g.second != nil {
		g.second()
	}
	g.newest.Add(1)
	if r.GetRunId() != "run-0" {
		return fault.New(fault.NotFound, "RUN_NOT_FOUND", "there is no run %q", r.GetRunId())
	}
	for n := r.GetFromSequence() + 1; n <= g.chunks; n++ {
		if n > r.GetFromSequence()+g.cut {
			return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "cut")
		}
		if err := s.Send(text(n)); err != nil {
			return err
		}
	}
	return s.Send(&agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: &agentv1.End{Status: "completed"}}})
}

func text(n int64) *agentv1.StreamResponse {
	return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Chunk{Chunk: &agentv1.Chunk{
		Sequence: n,
		Chunk: &eventv1.Chunk{AgentId: "run-0", Event: &eventv1.Chunk_TextDelta{
			TextDelta: &eventv1.TextDelta{Delta: fmt.Sprint(n)},
		}},
	}}}
}

func serve(t testing.TB, g *gateway) *client.Client {
	mux := http.NewServeMux()
	path, handler := agentv1connect.NewAgentServiceHandler(g, connect.WithInterceptors(rpc.ConnectInterceptor(nil)))
	mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return client.New(client.Config{URL: server.URL + "/", Key: key, HTTP: server.Client()})
}

func TestAFollowedRunIsWholeWhereverItsConnectionsBreak(t *testing.T) {
	t.Parallel()
	const chunks = 6
	for cut := int64(2); cut <= chunks+1; cut++ {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			g := &gateway{chunks: chunks, cut: cut}
			var got string
			var last *agentv1.StreamResponse
			for frame, err := range serve(t, g).Follow(t.Context(), &agentv1.StreamRequest{SessionId: "s"}) {
				if err != nil {
					t.Fatal(err)
				}
				got += frame.GetChunk().GetChunk().GetTextDelta().GetDelta()
				last = frame
			}
			if want := "123456"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if last.GetEnd().GetStatus() != "completed" {
				t.Errorf("the last frame is %v, want the end", last)
			}
			if opened, want := g.opened.Load(), (chunks+cut)/cut; opened > want {
				t.Errorf("opened %d connections, want at most %d", opened, want)
			}
		})
	}
}

func TestAGatewayThatSaysNothingNewIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts int
		c := client.New(client.Config{URL: "http://gateway.test", HTTP: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			attempts++
			time.Sleep(20 * time.Second) // the gateway waits for an absent service
			return nil, errors.New("broken")
		})}})
		begin := time.Now()
		var last error
		for _, err := range c.Follow(t.Context(), &agentv1.StreamRequest{SessionId: "s", RunId: "run-0"}) {
			last = err
		}
		if last == nil || time.Since(begin) > 2*client.DefaultPatience || attempts < 2 {
			t.Errorf("given up with %v after %v and %d attempts; want an error within twice the patience", last, time.Since(begin), attempts)
		}
	})
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAConsumerThatStopsIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	c := serve(t, &gateway{chunks: 6, cut: 2})
	var frames int
	for range c.Follow(t.Context(), &agentv1.StreamRequest{SessionId: "s"}) {
		if frames++; frames == 3 {
			break
		}
	}
	if frames != 3 {
		t.Errorf("got %d frames, want 3", frames)
	}
}

func TestWhatTryingAgainDoesNotCureEndsAFollowAtOnce(t *testing.T) {
	t.Parallel()
	for reason, r := range map[string]*agentv1.StreamRequest{
		"SESSION_NOT_FOUND": {SessionId: "unknown"},
		"RUN_NOT_FOUND":     {SessionId: "s", RunId: "no-such-run"},
	} {
		var errs []error
		for _, err := range serve(t, &gateway{chunks: 1, cut: 2}).Follow(t.Context(), r) {
			errs = append(errs, err)
		}
		if len(errs) != 1 || fault.ReasonOf(errs[0]) != reason {
			t.Errorf("got %v, want one %s", errs, reason)
		}
	}
}

func TestAFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := &gateway{chunks: 1, cut: 0}
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	g.second = cancel
	c := serve(t, g)
	for _, err := range c.Follow(ctx, &agentv1.StreamRequest{SessionId: "s"}) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("got %v, want the context's error", last)
	}
}

func TestAFaultOfTheGatewayArrivesAsOne(t *testing.T) {
	t.Parallel()
	_, err := serve(t, &gateway{}).Start(t.Context(), &agentv1.StartRequest{SessionId: "s"})
	if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != "MESSAGE_INVALID" {
		t.Errorf("got %v, want Invalid MESSAGE_INVALID", err)
	}
}

func ExampleClient_Follow() {
	server := exampleGateway()
	defer server.Close()

	holdfast := client.New(client.Config{URL: server.URL})
	ctx := context.Background()
	run, err := holdfast.Start(ctx, &agentv1.StartRequest{SessionId: "hello-1", Message: "Count."})
	if err != nil {
		fmt.Println(err)
		return
	}
	for frame, err := range holdfast.Follow(ctx, &agentv1.StreamRequest{SessionId: run.GetSessionId(), RunId: run.GetRunId()}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(frame.GetChunk().GetChunk().GetTextDelta().GetDelta(), " ")
	}
	// Output: 1 2 3
}

func exampleGateway() *httptest.Server {
	_, handler := agentv1connect.NewAgentServiceHandler(&gateway{chunks: 3, cut: 9})
	return httptest.NewServer(handler)
}
