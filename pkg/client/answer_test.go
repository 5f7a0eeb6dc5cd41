package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func TestAnswersAreSentAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	o := &asking{}
	c := serveAsking(t, o)
	ctx := t.Context()
	call := client.Call{Session: "s/1", ID: "c1", Approval: "a1"}
	give := map[string]func() (*agentv1.SubmitToolResultResponse, error){
		`{"sessionId":"s/1","toolCallId":"c1","result":"{\"lat\":48.1}"}`: func() (*agentv1.SubmitToolResultResponse, error) {
			return c.SubmitResult(ctx, call, map[string]float64{"lat": 48.1})
		},
		`{"sessionId":"s/1","toolCallId":"c1","result":"null"}`: func() (*agentv1.SubmitToolResultResponse, error) {
			return c.SubmitResult(ctx, call, nil)
		},
		`{"sessionId":"s/1","toolCallId":"c1","result":"[1,2]"}`: func() (*agentv1.SubmitToolResultResponse, error) {
			return c.SubmitResult(ctx, call, json.RawMessage(`[1, 2]`))
		},
		`{"sessionId":"s/1","toolCallId":"c1","error":"no camera"}`: func() (*agentv1.SubmitToolResultResponse, error) {
			return c.SubmitError(ctx, call, "no camera")
		},
		`{"sessionId":"s/1","toolCallId":"c1","approval":{"approvalId":"a1","approved":true,"reason":"fine"}}`: func() (*agentv1.SubmitToolResultResponse, error) {
			return c.Approve(ctx, call, "fine")
		},
		`{"sessionId":"s/1","toolCallId":"c1","approval":{"approvalId":"a1"}}`: func() (*agentv1.SubmitToolResultResponse, error) {
			return c.Deny(ctx, call, "")
		},
	}
	for want, submit := range give {
		answer, err := submit()
		if err != nil || answer.GetStatus() != agentv1.SubmitToolResultResponse_STATUS_ACCEPTED || answer.GetRunId() != "run-2" {
			t.Errorf("got %v, %v", answer, err)
		}
		if got := o.last(); !proto.Equal(got, request(t, want)) {
			t.Errorf("sent %v, want %s", got, want)
		}
	}
}

func TestAnAnswerThatIsRefusedIsAFault(t *testing.T) {
	t.Parallel()
	c := serveAsking(t, &asking{})
	if _, err := c.SubmitResult(t.Context(), client.Call{Session: "s", ID: "nobody"}, 1); !errors.Is(err, fault.NotFound) || fault.ReasonOf(err) != "UNKNOWN_TOOL_CALL" {
		t.Errorf("an unknown call: got %v", err)
	}
	if _, err := c.SubmitResult(t.Context(), client.Call{Session: "s", ID: "c1"}, math.Inf(1)); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != "ANSWER_INVALID" {
		t.Errorf("a value without JSON: got %v", err)
	}
}

func ExampleClient_SubmitResult() {
	server := askingServer(&asking{})
	defer server.Close()

	holdfast := client.New(client.Config{URL: server.URL})
	ctx := context.Background()
	run, err := holdfast.Start(ctx, &agentv1.StartRequest{SessionId: "trip-1", Message: "What is near me?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for next := run.GetRunId(); next != ""; {
		var calls []client.Call
		for frame, err := range holdfast.Follow(ctx, &agentv1.StreamRequest{SessionId: "trip-1", RunId: next}) {
			if err != nil {
				fmt.Println(err)
				return
			}
			chunk := frame.GetChunk().GetChunk()
			fmt.Print(chunk.GetTextDelta().GetDelta())
			if start := chunk.GetToolStart(); start.GetAwaitsClient() {
				calls = append(calls, client.Call{Session: "trip-1", ID: start.GetToolCallId()})
			}
		}
		next = ""
		for _, call := range calls {
			answer, err := holdfast.SubmitResult(ctx, call, map[string]string{"city": "Munich"})
			if err != nil {
				fmt.Println(err)
				return
			}
			next = answer.GetRunId() // set by the last answer, which continues the session
		}
	}
	// Output: Munich it is.
}

func ExampleClient_Approve() {
	server := askingServer(&asking{})
	defer server.Close()

	holdfast := client.New(client.Config{URL: server.URL})
	call := client.Call{Session: "order-1", ID: "c1", Approval: "a1"} // from a ToolApprovalRequest chunk
	answer, err := holdfast.Approve(context.Background(), call, "it is within the budget")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.GetStatus(), answer.GetRunId())
	// Output: STATUS_ACCEPTED run-2
}

// asking is a session whose run-1 asks the client for its location; run-2 repeats it.
type asking struct {
	agentv1connect.UnimplementedAgentServiceHandler
	mu   sync.Mutex
	seen []*agentv1.SubmitToolResultRequest
}

func (a *asking) Start(_ context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	return &agentv1.StartResponse{SessionId: r.GetSessionId(), RunId: "run-1"}, nil
}

func (a *asking) Stream(_ context.Context, r *agentv1.StreamRequest, s *connect.ServerStream[agentv1.StreamResponse]) error {
	chunk, status := &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "c1", ToolName: "where_am_i", AwaitsClient: true}}}, "paused"
	if r.GetRunId() == "run-2" {
		chunk, status = &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "Munich it is."}}}, "completed"
	}
	if err := s.Send(&agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Chunk{Chunk: &agentv1.Chunk{Sequence: 1, Chunk: chunk}}}); err != nil {
		return err
	}
	return s.Send(&agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: &agentv1.End{Sequence: 2, Status: status}}})
}

func (a *asking) SubmitToolResult(_ context.Context, r *agentv1.SubmitToolResultRequest) (*agentv1.SubmitToolResultResponse, error) {
	if r.GetToolCallId() != "c1" {
		return nil, fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL", "there is no call %q", r.GetToolCallId())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, r)
	return &agentv1.SubmitToolResultResponse{
		Status: agentv1.SubmitToolResultResponse_STATUS_ACCEPTED, Continuation: agentv1.SubmitToolResultResponse_CONTINUATION_NEW_RUN, RunId: "run-2",
	}, nil
}

func (a *asking) last() *agentv1.SubmitToolResultRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[len(a.seen)-1]
}

// request decodes a request written as JSON.
func request(t *testing.T, text string) *agentv1.SubmitToolResultRequest {
	t.Helper()
	r := &agentv1.SubmitToolResultRequest{}
	if err := protojson.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func askingServer(a *asking) *httptest.Server {
	_, handler := agentv1connect.NewAgentServiceHandler(a, connect.WithInterceptors(rpc.ConnectInterceptor(nil)))
	return httptest.NewServer(handler)
}

func serveAsking(t *testing.T, a *asking) *client.Client {
	t.Helper()
	server := askingServer(a)
	t.Cleanup(server.Close)
	return client.New(client.Config{URL: server.URL, HTTP: server.Client()})
}
