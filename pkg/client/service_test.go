package client_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// drain reads a list to its end.
func drain[E any](list iter.Seq2[E, error]) (err error) {
	for _, err = range list {
	}
	return err
}

func second[A any](_ A, err error) error { return err }

// every calls each RPC of the service.
var every = map[string]func(context.Context, *client.Client) error{
	"Start": func(ctx context.Context, c *client.Client) error {
		return second(c.Start(ctx, &agentv1.StartRequest{}))
	},
	"Stream": func(ctx context.Context, c *client.Client) error {
		return drain(c.Follow(ctx, &agentv1.StreamRequest{RunId: "r"}))
	},
	"GetRun":   func(ctx context.Context, c *client.Client) error { return second(c.Run(ctx, "s", "r")) },
	"ListRuns": func(ctx context.Context, c *client.Client) error { return drain(c.Runs(ctx, "s")) },
	"WaitRun":  func(ctx context.Context, c *client.Client) error { return second(c.Wait(ctx, "s", "r")) },
	"Resume": func(ctx context.Context, c *client.Client) error {
		return second(c.Resume(ctx, &agentv1.ResumeRequest{}))
	},
	"CanResume": func(ctx context.Context, c *client.Client) error { return second(c.CanResume(ctx, "s")) },
	"Interrupt": func(ctx context.Context, c *client.Client) error {
		return second(c.Interrupt(ctx, &agentv1.InterruptRequest{}))
	},
	"Abort": func(ctx context.Context, c *client.Client) error {
		return second(c.Abort(ctx, &agentv1.AbortRequest{}))
	},
	"Get":        func(ctx context.Context, c *client.Client) error { return second(c.Get(ctx, "s")) },
	"GetSession": func(ctx context.Context, c *client.Client) error { return second(c.Session(ctx, "s")) },
	"ListSessions": func(ctx context.Context, c *client.Client) error {
		return drain(c.Sessions(ctx, &agentv1.ListSessionsRequest{}))
	},
	"UpdateSession": func(ctx context.Context, c *client.Client) error {
		return second(c.UpdateSession(ctx, &agentv1.UpdateSessionRequest{}))
	},
	"ReadStore": func(ctx context.Context, c *client.Client) error {
		return second(c.ReadStore(ctx, &agentv1.ReadStoreRequest{}))
	},
	"DeleteStoreEntries": func(ctx context.Context, c *client.Client) error { return c.DeleteStoreEntries(ctx, "s", "k") },
	"MergeState": func(ctx context.Context, c *client.Client) error {
		return second(c.MergeState(ctx, &agentv1.MergeStateRequest{}))
	},
	"SetStatus": func(ctx context.Context, c *client.Client) error {
		return second(c.SetStatus(ctx, &agentv1.SetStatusRequest{}))
	},
	"PutSubSession": func(ctx context.Context, c *client.Client) error {
		return c.PutSubSession(ctx, "s", &agentv1.SubSession{})
	},
	"RecordUsage":    func(ctx context.Context, c *client.Client) error { return c.RecordUsage(ctx, "s", "r") },
	"DeleteSession":  func(ctx context.Context, c *client.Client) error { return second(c.DeleteSession(ctx, "s")) },
	"ListMessages":   func(ctx context.Context, c *client.Client) error { return drain(c.Messages(ctx, "s")) },
	"AppendMessages": func(ctx context.Context, c *client.Client) error { return second(c.AppendMessages(ctx, "s")) },
	"AddContext": func(ctx context.Context, c *client.Client) error {
		return second(c.AddContext(ctx, &agentv1.AddContextRequest{SessionId: "s"}))
	},
	"TruncateMessages": func(ctx context.Context, c *client.Client) error { return second(c.TruncateMessages(ctx, "s", 1)) },
	"ListCheckpoints":  func(ctx context.Context, c *client.Client) error { return drain(c.Checkpoints(ctx, "s")) },
	"GetCheckpoint":    func(ctx context.Context, c *client.Client) error { return second(c.Checkpoint(ctx, "s", "")) },
	"Branch": func(ctx context.Context, c *client.Client) error {
		return second(c.Branch(ctx, &agentv1.BranchRequest{}))
	},
	"Rewind":           func(ctx context.Context, c *client.Client) error { return second(c.Rewind(ctx, "s", "cp")) },
	"SubmitToolResult": func(ctx context.Context, c *client.Client) error { return second(c.Approve(ctx, client.Call{}, "")) },
	"ListPendingCalls": func(ctx context.Context, c *client.Client) error {
		return drain(c.PendingCalls(ctx, &agentv1.ListPendingCallsRequest{}))
	},
	"GetUsage":  func(ctx context.Context, c *client.Client) error { return second(c.Usage(ctx, "s", "")) },
	"ListUsage": func(ctx context.Context, c *client.Client) error { return drain(c.UsageEntries(ctx, "s")) },
	"QueryUsage": func(ctx context.Context, c *client.Client) error {
		return second(c.QueryUsage(ctx, &agentv1.QueryUsageRequest{}))
	},
	"EraseUser":   func(ctx context.Context, c *client.Client) error { return second(c.EraseUser(ctx, "u")) },
	"EraseTenant": func(ctx context.Context, c *client.Client) error { return second(c.EraseTenant(ctx)) },
	"ListAuditEvents": func(ctx context.Context, c *client.Client) error {
		return drain(c.AuditEvents(ctx, &agentv1.ListAuditEventsRequest{}))
	},
	"CreateToken": func(ctx context.Context, c *client.Client) error {
		return second(c.CreateToken(ctx, &agentv1.CreateTokenRequest{}))
	},
	"ListKeys":   func(ctx context.Context, c *client.Client) error { return second(c.Keys(ctx)) },
	"ListAgents": func(ctx context.Context, c *client.Client) error { return second(c.Agents(ctx)) },
	"PutAgent": func(ctx context.Context, c *client.Client) error {
		return second(c.PutAgent(ctx, &agentv1.PutAgentRequest{AgentType: "a"}))
	},
	"GetAgent":    func(ctx context.Context, c *client.Client) error { return second(c.StoredAgent(ctx, "a")) },
	"DeleteAgent": func(ctx context.Context, c *client.Client) error { return c.DeleteAgent(ctx, "a", nil) },
}

func TestTheClientHasEveryRPCAndItsFailuresAreFaults(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(refusing())
	t.Cleanup(server.Close)
	c := client.New(client.Config{URL: server.URL, HTTP: server.Client()})
	methods := agentv1.File_holdfast_agent_v1_agent_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		if every[name] == nil {
			t.Errorf("the client has no %s", name)
			continue
		}
		if err := every[name](t.Context(), c); fault.ReasonOf(err) != "REFUSED" || !strings.Contains(err.Error(), "/"+name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// refusing refuses every request, and names its path.
func refusing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = connect.NewErrorWriter().Write(w, r, rpc.ConnectError(fault.New(fault.Denied, "REFUSED", "%s", r.URL.Path)))
	})
}

func TestReadsAreRepeatedInAnOutageAndWritesAreNot(t *testing.T) {
	t.Parallel()
	writes := []string{
		"Start", "Resume", "Interrupt", "Abort", "UpdateSession", "DeleteSession", "AppendMessages", "AddContext", "TruncateMessages", "Branch",
		"Rewind", "SubmitToolResult", "EraseUser", "EraseTenant", "CreateToken", "MergeState", "SetStatus", "RecordUsage", "DeleteStoreEntries",
		"DeleteAgent",
	}
	for name, method := range every {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 1 {
					_ = connect.NewErrorWriter().Write(w, r, rpc.ConnectError(fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "an outage")))
					return
				}
				refusing().ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			want := "REFUSED"
			if slices.Contains(writes, name) {
				want = "STORE_UNAVAILABLE"
			}
			if err := method(t.Context(), client.New(client.Config{URL: server.URL, HTTP: server.Client()})); fault.ReasonOf(err) != want {
				t.Errorf("got %v after %d calls, want %s", err, calls.Load(), want)
			}
		})
	}
}

// pages is a gateway with 5 sessions, two on a page, and an outage before each second request.
type pages struct {
	agentv1connect.UnimplementedAgentServiceHandler
	mu    sync.Mutex
	calls int
	keys  []string
}

func (p *pages) fail() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls++; p.calls%2 == 0 {
		return fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "an outage")
	}
	return nil
}

func (p *pages) ListSessions(_ context.Context, r *agentv1.ListSessionsRequest) (*agentv1.ListSessionsResponse, error) {
	if err := p.fail(); err != nil {
		return nil, err
	}
	from := 0
	_, _ = fmt.Sscan(r.GetCursor(), &from)
	answer := &agentv1.ListSessionsResponse{}
	for i := from; i < min(from+2, 5); i++ {
		answer.Sessions = append(answer.Sessions, &agentv1.Session{SessionId: fmt.Sprint("s", i), UserId: r.GetUserId()})
	}
	if from+2 < 5 {
		answer.NextCursor = fmt.Sprint(from + 2)
	}
	return answer, nil
}

func (p *pages) ListMessages(_ context.Context, r *agentv1.ListMessagesRequest) (*agentv1.ListMessagesResponse, error) {
	answer := &agentv1.ListMessagesResponse{Total: 5, HasMore: r.GetOffset()+2 < 5}
	for i := r.GetOffset(); i < min(r.GetOffset()+2, 5); i++ {
		answer.Messages = append(answer.Messages, &agentv1.StoredMessage{Ordinal: i, Message: &eventv1.Message{Id: fmt.Sprint("m", i)}})
	}
	return answer, nil
}

func (p *pages) ListAuditEvents(_ context.Context, r *agentv1.ListAuditEventsRequest) (*agentv1.ListAuditEventsResponse, error) {
	if err := p.fail(); err != nil {
		return nil, err
	}
	from := 0
	_, _ = fmt.Sscan(r.GetCursor(), &from)
	answer := &agentv1.ListAuditEventsResponse{HasMore: from+2 < 5}
	for i := from; i < min(from+2, 5); i++ {
		answer.Events = append(answer.Events, &eventv1.AuditEvent{Action: fmt.Sprint(r.GetAction(), i), Cursor: fmt.Sprint(i + 1)})
	}
	return answer, nil
}

func (p *pages) Start(_ context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	p.mu.Lock()
	p.keys = append(p.keys, r.GetSessionId()+" "+r.GetRequestKey())
	p.mu.Unlock()
	return &agentv1.StartResponse{SessionId: r.GetSessionId(), RunId: "run-1"}, p.fail()
}

func (p *pages) WaitRun(_ context.Context, r *agentv1.WaitRunRequest) (*agentv1.WaitRunResponse, error) {
	if err := p.fail(); err != nil {
		return nil, err
	}
	run := &agentv1.Run{RunId: r.GetRunId(), SessionId: r.GetSessionId(), Status: "running"}
	switch p.mu.Lock(); {
	case r.GetRunId() == "failed":
		run.Status, run.Failure = "failed", &agentv1.Failure{Error: "It failed.", Code: "provider_error"}
	case r.GetRunId() == "asking":
		run.Status = "suspended_client_tool"
	case p.calls > 4:
		run.Status, run.Output = "completed", `"42"`
	}
	p.mu.Unlock()
	answer := &agentv1.WaitRunResponse{Run: run, Done: run.GetStatus() != "running"}
	if run.GetStatus() == "suspended_client_tool" {
		answer.PendingCalls = []*agentv1.PendingCall{{SessionId: "below", ToolCallId: "c1", ApprovalId: "a1"}}
	}
	return answer, nil
}

func servePages(t testing.TB) (*pages, *client.Client) {
	p := &pages{}
	_, handler := agentv1connect.NewAgentServiceHandler(p, connect.WithInterceptors(rpc.ConnectInterceptor(nil)))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return p, client.New(client.Config{URL: server.URL, HTTP: server.Client()})
}

func TestAListHasTheEntriesOfAllPagesThroughOutages(t *testing.T) {
	t.Parallel()
	_, c := servePages(t)
	var ids []string
	for s, err := range c.Sessions(t.Context(), &agentv1.ListSessionsRequest{UserId: "ada"}) {
		if err != nil || s.GetUserId() != "ada" {
			t.Fatalf("got %v, %v", s, err)
		}
		ids = append(ids, s.GetSessionId())
	}
	for m, err := range c.Messages(t.Context(), "s") {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, m.GetId()); m.GetId() == "m3" {
			break
		}
	}
	for e, err := range c.AuditEvents(t.Context(), &agentv1.ListAuditEventsRequest{Action: "a"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.GetAction())
	}
	if want := []string{"s0", "s1", "s2", "s3", "s4", "m0", "m1", "m2", "m3", "a0", "a1", "a2", "a3", "a4"}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

func TestAskWaitsForTheAnswerThroughOutagesAndStartsOnce(t *testing.T) {
	t.Parallel()
	p, c := servePages(t)
	p.calls = 1 // the start fails first
	answer, err := c.Ask(t.Context(), &agentv1.StartRequest{Message: "What is 6 times 7?"})
	if err != nil || answer.Text != "42" || string(answer.Output) != `"42"` || answer.Run.GetRunId() != "run-1" {
		t.Errorf("got %+v, %v", answer, err)
	}
	if len(p.keys) != 2 || p.keys[0] != p.keys[1] || answer.Session+" " == p.keys[0] {
		t.Errorf("started with %q, want the same session and key twice", p.keys)
	}
	_, err = c.Wait(t.Context(), "s", "failed")
	if f, _ := fault.From(err); f == nil || f.Reason != "RUN_FAILED" || f.Meta["code"] != "provider_error" {
		t.Errorf("a failed run: got %v", err)
	}
	asking, err := c.Wait(t.Context(), "s", "asking")
	if err != nil || len(asking.Calls) != 1 || asking.Calls[0] != (client.Call{Session: "below", ID: "c1", Approval: "a1"}) || asking.Output != nil {
		t.Errorf("a run that waits: got %+v, %v", asking, err)
	}
}

func ExampleClient_Ask() {
	server := exampleAnswers()
	defer server.Close()
	holdfast := client.New(client.Config{URL: server.URL})
	answer, err := holdfast.Ask(context.Background(), &agentv1.StartRequest{AgentType: "demo", Message: "What is 6 times 7?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Text)
	// Output: 42
}

func ExampleClient_Sessions() {
	server := exampleAnswers()
	defer server.Close()
	holdfast := client.New(client.Config{URL: server.URL})
	for session, err := range holdfast.Sessions(context.Background(), &agentv1.ListSessionsRequest{UserId: "ada"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(session.GetSessionId(), " ")
	}
	// Output: s0 s1 s2 s3 s4
}

func exampleAnswers() *httptest.Server {
	_, handler := agentv1connect.NewAgentServiceHandler(&pages{}, connect.WithInterceptors(rpc.ConnectInterceptor(nil)))
	return httptest.NewServer(handler)
}
