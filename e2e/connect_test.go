package e2e

import (
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

func TestTheConnectAPI(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents()})
	for name, options := range map[string][]connect.ClientOption{
		"Connect":  nil,
		"gRPC-Web": {connect.WithGRPCWeb()},
	} {
		t.Run("starts and streams runs over "+name, func(t *testing.T) {
			t.Parallel()
			checkTypedTurn(t, s, agentClient(s, harness.Key, options...), "typed "+name)
		})
	}

	t.Run("gives typed errors", func(t *testing.T) {
		t.Parallel()
		client := agentClient(s, harness.Key)
		_, err := client.Get(t.Context(), &agentv1.GetRequest{SessionId: "nobody"})
		checkFault(t, err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = client.Start(t.Context(), &agentv1.StartRequest{SessionId: "a", AgentType: "nobody", Message: "hello"})
		checkFault(t, err, fault.NotFound, "AGENT_NOT_FOUND")
		_, err = client.Start(t.Context(), &agentv1.StartRequest{SessionId: "a", AgentType: "talker"})
		checkFault(t, err, fault.Invalid, "MESSAGE_INVALID")
		_, err = agentClient(s, "").Get(t.Context(), &agentv1.GetRequest{SessionId: "nobody"})
		checkFault(t, err, fault.Unauthenticated, "API_KEY_MISSING")
		_, err = agentClient(s, "wrong").Get(t.Context(), &agentv1.GetRequest{SessionId: "nobody"})
		checkFault(t, err, fault.Unauthenticated, "API_KEY_WRONG")
	})

	t.Run("starts one run for one request key", func(t *testing.T) {
		t.Parallel()
		client := agentClient(s, harness.Key)
		request := &agentv1.StartRequest{SessionId: "once", AgentType: "talker", Message: "hello", RequestKey: "k1"}
		first, err := client.Start(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		second, err := client.Start(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if !second.GetRepeated() || second.GetRunId() != first.GetRunId() {
			t.Errorf("the repetition started %v, want the first run of %v", second, first)
		}
		s.WaitStatus(t, "once", "completed")
		checkTranscript(t, s.Client, "once", "user:", textContent("hello"), "assistant:", textContent("You said: hello"))
	})
}

func checkTypedTurn(t *testing.T, s *harness.System, client agentv1connect.AgentServiceClient, session string) {
	t.Helper()
	started, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: session, AgentType: "talker", Message: "hello"})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{
		SessionId: session, RunId: started.GetRunId(), FromSequence: started.GetStartSequence(),
	})
	if err != nil {
		t.Fatalf("Stream: %v", err)
	}
	defer func() { _ = stream.Close() }()
	text, ends := "", 0
	for stream.Receive() {
		text += stream.Msg().GetChunk().GetChunk().GetTextDelta().GetDelta()
		if end := stream.Msg().GetEnd(); end != nil {
			ends++
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("Stream: %v", err)
	}
	if want := "You said: hello"; text != want || ends != 1 {
		t.Errorf("the stream says %q and ends %d times, want %q and once", text, ends, want)
	}
	s.WaitStatus(t, session, "completed")
	got, err := client.Get(t.Context(), &agentv1.GetRequest{SessionId: session})
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	if got.GetStatus() != "completed" || got.GetRunId() != started.GetRunId() || got.GetStepCount() != 1 || got.GetTurn() != 1 {
		t.Errorf("Get: got %v, want one completed step of run %s", got, started.GetRunId())
	}
}

func checkFault(t *testing.T, err error, kind fault.Kind, reason string) {
	t.Helper()
	err = rpc.FromConnect(err)
	if !errors.Is(err, kind) || fault.ReasonOf(err) != reason {
		t.Errorf("got %v, want %v (%s)", err, kind, reason)
	}
}

func agentClient(s *harness.System, key string, options ...connect.ClientOption) agentv1connect.AgentServiceClient {
	return agentv1connect.NewAgentServiceClient(&http.Client{Transport: bearer(key)}, s.URL, options...)
}

// bearer sends the API key with every request; an empty one sends none.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}
