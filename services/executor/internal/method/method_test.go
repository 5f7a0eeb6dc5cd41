package method_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/method"
	"github.com/holdfast-run/holdfast/services/state"
)

// system has a state service with a store in memory. It needs a synctest bubble.
type system struct {
	t        *testing.T
	sessions statev1.SessionServiceClient
	log      *slog.Logger
}

func newSystem(t *testing.T) *system {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var c state.Config
	must(t, config.Load(&c, []string{"HOLDFAST_STATE_STORE=memory"}))
	service, err := state.New(ctx, c, state.Peers{Log: log})
	must(t, err)
	server, err := rpc.NewServer(rpc.ServerConfig{Log: log})
	must(t, err)
	service.Register(server)
	network := rpc.NewProcess()
	listener, err := network.Listen(ctx, "state")
	must(t, err)
	conn, err := rpc.Dial(network, "state", rpc.ClientConfig{})
	must(t, err)
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = rpc.Serve(ctx, server, listener, time.Second) })
	tasks.Go(func() { _ = service.Run(ctx) })
	t.Cleanup(func() {
		stop()
		tasks.Wait()
		_, _ = conn.Close(), service.Close()
	})
	claims, err := statev1.NewWorkServiceClient(conn).ClaimRuns(ctx) // sessions of unknown agents are refused
	must(t, err)
	must(t, claims.Send(&statev1.ClaimRunsRequest{ExecutorId: "registrar", Agents: []*statev1.Agent{{AgentType: "demo"}}}))
	must(t, claims.CloseSend())
	_, _ = claims.Recv() // io.EOF, once the announcement is stored
	return &system{t: t, sessions: statev1.NewSessionServiceClient(conn), log: log}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// caller returns a caller of one method, which the tests call by the name act.
func (s *system) caller(calls int, act func(ctx context.Context, call *agent.MethodCall) (any, error)) *method.Caller {
	agents := catalog.Static{{Agent: agent.Agent{Name: "demo", Methods: []agent.Method{{Name: "act", Call: act}}}}}
	return method.New(agents, s.sessions, calls, 1000, s.log)
}

var request = &executorv1.CallMethodRequest{Tenant: "acme", SessionId: "s", AgentType: "demo", Method: "act"}

// state returns the stored custom state.
func (s *system) state() string {
	s.t.Helper()
	got, err := s.sessions.GetSession(s.t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"})
	must(s.t, err)
	return got.GetSession().GetCustomState()
}

// stream collects responses. As gRPC, it does not allow two Sends at once.
type stream struct {
	t         *testing.T
	sending   atomic.Bool
	responses []*executorv1.CallMethodResponse
}

func (s *stream) Send(r *executorv1.CallMethodResponse) error {
	if s.sending.Swap(true) {
		s.t.Error("Send was called during another Send")
	}
	time.Sleep(time.Millisecond)
	s.responses = append(s.responses, r)
	s.sending.Store(false)
	return nil
}

// increment counts the calls in the custom state.
func increment(draft agent.State) error {
	count, ok := draft["count"].(json.Number)
	if !ok {
		count = "0"
	}
	n, err := count.Int64()
	draft["count"] = n + 1
	return err
}

func TestAMethodReachesTheSessionsOfItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		c := s.caller(1, func(ctx context.Context, call *agent.MethodCall) (any, error) {
			state, err := call.State(ctx)
			if err != nil || len(state) > 0 {
				return state, err
			}
			return nil, call.Update(ctx, increment)
		})
		called := func(user string) (*stream, error) {
			r, out := proto.CloneOf(request), &stream{t: t}
			r.Caller = &statev1.Caller{Actor: "user:" + user, Owner: user}
			return out, c.Call(t.Context(), r, out)
		}
		_, err := called("alice")
		must(t, err)
		got, err := s.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"})
		if err != nil || got.GetSession().GetUserId() != "alice" {
			t.Errorf("got %v, %v; want a session of alice", got, err)
		}
		out, err := called("alice")
		if n := len(out.responses); err != nil || n != 1 || out.responses[0].GetResult() != `{"count":1}` {
			t.Errorf("the owner: got %v, %v", out.responses, err)
		}
		if out, err := called("bob"); fault.ReasonOf(err) != "SESSION_NOT_FOUND" || len(out.responses) > 0 || s.state() != `{"count":1}` {
			t.Errorf("another user: got %v, %v and state %s; want no access", out.responses, err, s.state())
		}
	})
}

func TestAMethodKnowsTheSessionOfItsCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		var got agent.MethodCall
		c := s.caller(1, func(_ context.Context, call *agent.MethodCall) (any, error) {
			got = *call
			got.Host = nil
			return nil, nil
		})
		r := proto.CloneOf(request)
		r.Arguments = []string{`{"UserID":"root","user":"root"}`}
		want := agent.MethodCall{
			Tenant: "acme", SessionID: "s", AgentType: "demo", Args: []json.RawMessage{json.RawMessage(r.GetArguments()[0])},
		}
		must(t, c.Call(t.Context(), r, &stream{t: t}))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("without a session: got %+v, want %+v", got, want)
		}
		_, err := s.sessions.CreateSession(t.Context(), &statev1.CreateSessionRequest{
			Tenant: "acme", SessionId: "s", AgentType: "demo", UserId: "alice", Tags: []string{"vip"}, Metadata: map[string]string{"plan": "gold"},
		})
		must(t, err)
		want.UserID, want.Tags, want.Metadata = "alice", []string{"vip"}, map[string]string{"plan": "gold"}
		must(t, c.Call(t.Context(), r, &stream{t: t}))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with a session: got %+v, want %+v", got, want)
		}
	})
}

func TestAMethodSendsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		c := s.caller(1, func(ctx context.Context, call *agent.MethodCall) (any, error) {
			var tasks sync.WaitGroup
			for range 3 {
				tasks.Go(func() {
					if err := call.Send(ctx, "progress"); err != nil {
						t.Error(err)
					}
				})
			}
			err := call.Update(ctx, increment)
			tasks.Wait()
			return "done", err
		})
		out := &stream{t: t}
		must(t, c.Call(t.Context(), request, out))
		if n := len(out.responses); n != 5 || out.responses[n-1].GetResult() != `"done"` {
			t.Errorf("got %v, want three values, a change of the state and the result", out.responses)
		}
	})
}

func TestAnEndedCallSendsAndWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		ended, errs := make(chan struct{}), make(chan error)
		c := s.caller(1, func(ctx context.Context, call *agent.MethodCall) (any, error) {
			ctx = context.WithoutCancel(ctx)
			go func() {
				<-ended
				errs <- call.Send(ctx, "late")
			}()
			go func() {
				errs <- call.Update(ctx, func(draft agent.State) error {
					<-ended
					return increment(draft)
				})
			}()
			synctest.Wait()
			return "done", nil
		})
		out := &stream{t: t}
		must(t, c.Call(t.Context(), request, out))
		close(ended)
		for range 2 {
			if err := <-errs; fault.ReasonOf(err) != "CALL_ENDED" || fault.KindOf(err) != fault.Conflict {
				t.Errorf("after the end of the call: got %v, want CALL_ENDED", err)
			}
		}
		if len(out.responses) != 1 {
			t.Errorf("got %v, want the result alone", out.responses)
		}
		if _, err := s.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"}); fault.KindOf(err) != fault.NotFound {
			t.Errorf("GetSession = %v, want no session", err)
		}
	})
}

func TestAMethodWritesToTheStoreWhenItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		fails := errors.New("no")
		var readOnly bool
		call := func(then error) error {
			r := proto.CloneOf(request)
			r.ReadOnly = readOnly
			return s.caller(1, func(ctx context.Context, call *agent.MethodCall) (any, error) {
				var calls int
				if _, err := call.Store().Get(ctx, "calls", &calls); err != nil {
					return nil, err
				}
				if err := call.Store().Add("calls", 1); err != nil {
					return nil, err
				}
				return calls, then
			}).Call(t.Context(), r, &stream{t: t})
		}
		stored := func() string {
			t.Helper()
			got, err := s.sessions.ReadStore(t.Context(), &statev1.ReadStoreRequest{Tenant: "acme", SessionId: "s", Keys: []string{"calls"}})
			must(t, err)
			return got.GetEntries()[0].GetValue()
		}
		must(t, call(nil)) // creates the session
		if got := stored(); got != "1" || s.state() != "{}" {
			t.Errorf("got %s calls and the state %s, want 1 and an empty state", got, s.state())
		}
		must(t, call(nil))
		if err := call(fails); fault.ReasonOf(err) != "METHOD_FAILED" {
			t.Errorf("got %v, want METHOD_FAILED", err)
		}
		readOnly = true
		if err := call(nil); fault.ReasonOf(err) != "CONNECTION_READONLY" {
			t.Errorf("got %v, want CONNECTION_READONLY", err)
		}
		if got := stored(); got != "2" {
			t.Errorf("got %s calls, want the 2 that succeeded", got)
		}
	})
}

// staleSessions refuses every write of a state.
type staleSessions struct {
	statev1.SessionServiceClient
}

func (staleSessions) SaveState(context.Context, *statev1.SaveStateRequest, ...grpc.CallOption) (*statev1.SaveStateResponse, error) {
	return nil, fault.New(fault.Stale, "VERSION_STALE", "the session has changed")
}

func TestAnErrorOfAChangeIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		want, changes := fault.New(fault.Stale, "SESSION_EXISTS", "of the method"), 0
		var got error
		c := s.caller(1, func(ctx context.Context, call *agent.MethodCall) (any, error) {
			got = call.Update(ctx, func(agent.State) error {
				changes++
				return want
			})
			return nil, nil
		})
		must(t, c.Call(t.Context(), request, &stream{t: t}))
		if changes != 1 || got != error(want) {
			t.Errorf("got %v after %d changes, want the error of the change after one", got, changes)
		}
	})
}

func TestAnUpdateWaitsBetweenItsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		must(t, s.caller(1, update(nil)).Call(t.Context(), request, &stream{t: t}))
		s.sessions = staleSessions{s.sessions}
		changes, begin := 0, time.Now()
		err := s.caller(1, update(func() { changes++ })).Call(t.Context(), request, &stream{t: t})
		if fault.ReasonOf(err) != "VERSION_STALE" || changes != 20 || time.Since(begin) == 0 {
			t.Errorf("got %v after %d changes in %v, want VERSION_STALE after 20 with waits", err, changes, time.Since(begin))
		}
	})
}

// update returns a method that counts its calls in the custom state. It calls before, if not nil, after it has read
// the state and before it writes it.
func update(before func()) func(ctx context.Context, call *agent.MethodCall) (any, error) {
	return func(ctx context.Context, call *agent.MethodCall) (any, error) {
		return nil, call.Update(ctx, func(draft agent.State) error {
			if before != nil {
				before()
			}
			return increment(draft)
		})
	}
}

// callAtOnce makes calls at once and waits for their ends.
func (s *system) callAtOnce(c *method.Caller, calls int) {
	s.t.Helper()
	var tasks sync.WaitGroup
	for range calls {
		tasks.Go(func() {
			if err := c.Call(s.t.Context(), request, &stream{t: s.t}); err != nil {
				s.t.Error(err)
			}
		})
	}
	tasks.Wait()
}

func TestConcurrentUpdatesAreAllStored(t *testing.T) {
	t.Parallel()
	const calls = 3
	for name, exists := range map[string]bool{"of a new session": false, "of an old session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t)
				want := `{"count":3}`
				if exists {
					must(t, s.caller(1, update(nil)).Call(t.Context(), request, &stream{t: t}))
					want = `{"count":4}`
				}
				var changes atomic.Int32
				s.callAtOnce(s.caller(calls, update(func() {
					if changes.Add(1) <= calls {
						time.Sleep(time.Second) // all have read the same state then
					}
				})), calls)
				if got := s.state(); got != want {
					t.Errorf("got the state %s, want %s", got, want)
				}
				if n := changes.Load(); n < 2*calls-1 {
					t.Errorf("got %d changes, want the stale ones repeated", n)
				}
			})
		})
	}
}

func TestMoreCallsThanSlotsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		finish, called := make(chan struct{}), 0
		c := s.caller(1, func(context.Context, *agent.MethodCall) (any, error) {
			called++
			<-finish
			return nil, nil
		})
		first := make(chan error)
		go func() { first <- c.Call(t.Context(), request, &stream{t: t}) }()
		synctest.Wait()
		if err := c.Call(t.Context(), request, &stream{t: t}); fault.ReasonOf(err) != "TOO_MANY_CALLS" || called != 1 {
			t.Errorf("got %v and %d calls, want TOO_MANY_CALLS and one", err, called)
		}
		close(finish)
		must(t, <-first)
		must(t, c.Call(t.Context(), request, &stream{t: t}))
	})
}
