// Package method calls methods of agents for clients of sessions, outside of runs.
package method

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/sessionstore"
)

// Caller calls methods. It implements executorv1.ExecutorServiceServer, and may be used by many goroutines.
type Caller struct {
	executorv1.UnimplementedExecutorServiceServer
	agents   catalog.Catalog
	sessions statev1.SessionServiceClient
	maxBytes int // of a value
	slots    chan struct{}
	log      *slog.Logger
}

// New returns a caller of methods: of calls at once, with values of maxBytes.
func New(agents catalog.Catalog, sessions statev1.SessionServiceClient, calls, maxBytes int, log *slog.Logger) *Caller {
	return &Caller{agents: agents, sessions: sessions, maxBytes: maxBytes, slots: make(chan struct{}, calls), log: log}
}

// Stream takes the responses to a call.
type Stream interface {
	Send(r *executorv1.CallMethodResponse) error
}

// CheckDefinition implements executorv1.ExecutorServiceServer.
func (c *Caller) CheckDefinition(
	ctx context.Context, r *executorv1.CheckDefinitionRequest,
) (*executorv1.CheckDefinitionResponse, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return nil, tooManyCalls(cap(c.slots))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	definition, t, err := c.agents.CheckStored(ctx, r.GetAgentType(), r.GetFile(), []byte(r.GetText()))
	if err != nil {
		return nil, err
	}
	return &executorv1.CheckDefinitionResponse{Definition: string(definition), Agent: catalog.Announced(t)}, nil
}

// checkTimeout bounds the check of a definition, which connects to its MCP servers.
const checkTimeout = 30 * time.Second

func tooManyCalls(limit int) error {
	return fault.New(fault.Exhausted, "TOO_MANY_CALLS", "%d methods are being called; HOLDFAST_EXECUTOR_METHOD_CALLS is the limit", limit)
}

// CallMethod implements executorv1.ExecutorServiceServer.
func (c *Caller) CallMethod(r *executorv1.CallMethodRequest, out executorv1.ExecutorService_CallMethodServer) error {
	return c.Call(out.Context(), r, out)
}

// Call calls a method: see the RPC.
func (c *Caller) Call(ctx context.Context, r *executorv1.CallMethodRequest, out Stream) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return tooManyCalls(cap(c.slots))
	}
	m, err := c.find(ctx, r)
	if err != nil {
		return err
	}
	h := &host{Caller: c, request: r, out: out, writing: make(chan struct{}, 1)}
	h.store = agent.NewStore(sessionstore.Reader{
		Sessions: c.sessions, Tenant: r.GetTenant(), SessionID: r.GetSessionId(), Caller: r.GetCaller(), Granted: h.granted(),
		MayBeMissing: true,
	})
	defer h.end()
	result, err := c.run(ctx, m, h)
	if _, isFault := fault.From(err); isFault || err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		c.log.ErrorContext(ctx, "method failed",
			"agent", r.GetAgentType(), "method", r.GetMethod(), "session", r.GetSessionId(), "error", err)
		return fault.New(fault.Conflict, "METHOD_FAILED", "The method has failed.")
	}
	text, err := h.encode(result)
	if err != nil {
		return err
	}
	h.end()
	if err := h.commitStore(ctx); err != nil {
		return err
	}
	return out.Send(&executorv1.CallMethodResponse{Event: &executorv1.CallMethodResponse_Result{Result: text}})
}

// find finds the method. NotFound (AGENT_NOT_FOUND, METHOD_NOT_FOUND), Denied (METHOD_NOT_CALLABLE).
func (c *Caller) find(ctx context.Context, r *executorv1.CallMethodRequest) (m agent.Method, err error) {
	a, err := c.agents.Resolve(ctx, catalog.For{AgentType: r.GetAgentType(), Tenant: r.GetTenant(), SessionID: r.GetSessionId()})
	if err != nil {
		return m, err
	}
	if i := slices.IndexFunc(a.Methods, func(m agent.Method) bool { return m.Name == r.GetMethod() }); i >= 0 {
		return a.Methods[i], nil
	}
	if slices.ContainsFunc(a.Tools, func(t agent.Tool) bool { return t.Name == r.GetMethod() }) {
		return m, fault.New(fault.Denied, "METHOD_NOT_CALLABLE", "%q is a tool of the agent %q; its model calls it", r.GetMethod(), a.Name)
	}
	return m, fault.New(fault.NotFound, "METHOD_NOT_FOUND", "the agent %q has no method %.100q", a.Name, r.GetMethod())
}

// run calls the method. A panic is an error.
func (c *Caller) run(ctx context.Context, m agent.Method, h *host) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the method panicked: %v\n%s", p, debug.Stack())
		}
	}()
	session, err := h.load(ctx)
	if err != nil {
		return nil, err
	}
	args := make([]json.RawMessage, len(h.request.GetArguments()))
	for i, a := range h.request.GetArguments() {
		args[i] = json.RawMessage(a)
	}
	return m.Call(ctx, &agent.MethodCall{
		Tenant: h.request.GetTenant(), SessionID: h.request.GetSessionId(), AgentType: h.request.GetAgentType(),
		ParentSessionID: session.GetParentSessionId(), UserID: session.GetUserId(), Tags: session.GetTags(), Metadata: session.GetMetadata(),
		Args: args, Host: h,
	})
}

// host implements agent.MethodHost for one call.
type host struct {
	*Caller
	request *executorv1.CallMethodRequest
	out     Stream
	store   *agent.Store

	writing chan struct{} // holds an element during a write or a Send: gRPC allows one Send at a time
	ended   bool          // guarded by writing
}

// end waits for the write or Send in progress, and refuses later ones.
func (h *host) end() {
	h.writing <- struct{}{}
	h.ended = true
	<-h.writing
}

// exclusively calls f while nothing else is written or sent. Conflict (CALL_ENDED).
func (h *host) exclusively(ctx context.Context, f func() error) error {
	select {
	case h.writing <- struct{}{}:
		defer func() { <-h.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.ended {
		return fault.New(fault.Conflict, "CALL_ENDED", "the call of the method has ended")
	}
	return f()
}

// granted returns the option of calls to the state service, with the grant of the method's call.
func (h *host) granted() grpc.CallOption { return grant.Attach(h.request.GetGrant()) }

// State implements agent.MethodHost.
func (h *host) State(ctx context.Context) (agent.State, error) {
	session, err := h.load(ctx)
	if err != nil {
		return nil, err
	}
	return agent.ParseState([]byte(session.GetCustomState()))
}

// load returns the stored session; nil if there is none.
func (h *host) load(ctx context.Context) (*statev1.Session, error) {
	got, err := h.sessions.GetSession(ctx, &statev1.GetSessionRequest{
		Tenant: h.request.GetTenant(), SessionId: h.request.GetSessionId(), Caller: h.request.GetCaller(),
	}, h.granted())
	if err != nil && !errors.Is(err, fault.NotFound) {
		return nil, err
	}
	return got.GetSession(), nil
}

// maxUpdates is how often an update is tried while the session changes. The longest wait between two tries
// grows by updatePause to maxUpdatePause.
const (
	maxUpdates     = 20
	updatePause    = 10 * time.Millisecond
	maxUpdatePause = 100 * time.Millisecond
)

// Update implements agent.MethodHost.
func (h *host) Update(ctx context.Context, change func(draft agent.State) error) error {
	if h.request.GetReadOnly() {
		return fault.New(fault.Denied, "CONNECTION_READONLY", "Connection is readonly")
	}
	for try := 1; ; try++ {
		retry, err := h.update(ctx, change)
		if !retry || try == maxUpdates {
			return err
		}
		if err := wait(ctx, try); err != nil {
			return err
		}
	}
}

// wait waits before the next try: for a random time, so that concurrent updates do not meet again.
func wait(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(min(time.Duration(try)*updatePause, maxUpdatePause)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// update changes the state once. retry reports that the session has changed since it was read.
func (h *host) update(ctx context.Context, change func(draft agent.State) error) (retry bool, err error) {
	session, err := h.load(ctx)
	if err != nil {
		return false, err
	}
	state, err := agent.ParseState([]byte(session.GetCustomState()))
	if err != nil {
		return false, err
	}
	draft, err := state.Clone()
	if err != nil {
		return false, err
	}
	if err := change(draft); err != nil {
		return false, err
	}
	if draft, err = draft.Clone(); err != nil { // as JSON has it
		return false, err
	}
	if len(agent.Diff(state, draft)) == 0 {
		return false, nil
	}
	err = h.exclusively(ctx, func() error { // the call does not end between a write and its announcement
		if err := h.write(ctx, session.GetVersion(), draft); err != nil {
			retry = errors.Is(err, fault.Stale) || fault.ReasonOf(err) == "SESSION_EXISTS"
			return err
		}
		return h.out.Send(&executorv1.CallMethodResponse{Event: &executorv1.CallMethodResponse_StateChanged{StateChanged: true}})
	})
	return retry, err
}

// write stores the state of a session of the version.
func (h *host) write(ctx context.Context, version int64, state agent.State) error {
	text, err := json.Marshal(state)
	if err != nil { // cannot happen: it came from JSON
		return err
	}
	if version == 0 {
		_, err = h.sessions.CreateSession(ctx, &statev1.CreateSessionRequest{
			Tenant: h.request.GetTenant(), SessionId: h.request.GetSessionId(), AgentType: h.request.GetAgentType(), CustomState: string(text),
			Caller: h.request.GetCaller(),
		}, h.granted())
		return err
	}
	_, err = h.sessions.SaveState(ctx, &statev1.SaveStateRequest{
		Tenant: h.request.GetTenant(), SessionId: h.request.GetSessionId(), CustomState: string(text), ExpectedVersion: version,
		Caller: h.request.GetCaller(),
	}, h.granted())
	return err
}

// Store returns the private store of the session.
func (h *host) Store() *agent.Store { return h.store }

// commitStore stores what the method has written to the private store, in a session that it creates if needed.
func (h *host) commitStore(ctx context.Context) error {
	writes := h.store.End()
	if len(writes) == 0 {
		return nil
	}
	if h.request.GetReadOnly() {
		return fault.New(fault.Denied, "CONNECTION_READONLY", "Connection is readonly")
	}
	request := &statev1.WriteStoreRequest{
		Tenant: h.request.GetTenant(), SessionId: h.request.GetSessionId(), Writes: sessionstore.Writes(writes), Caller: h.request.GetCaller(),
	}
	_, err := h.sessions.WriteStore(ctx, request, h.granted())
	if fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		return err
	}
	if err := h.write(ctx, 0, agent.State{}); err != nil && fault.ReasonOf(err) != "SESSION_EXISTS" {
		return err
	}
	_, err = h.sessions.WriteStore(ctx, request, h.granted())
	return err
}

// Send implements agent.MethodHost.
func (h *host) Send(ctx context.Context, value any) error {
	text, err := h.encode(value)
	if err != nil {
		return err
	}
	return h.exclusively(ctx, func() error {
		return h.out.Send(&executorv1.CallMethodResponse{Event: &executorv1.CallMethodResponse_Value{Value: text}})
	})
}

// encode encodes a value of the method. TooLarge (RESULT_TOO_LARGE), Conflict (METHOD_FAILED).
func (h *host) encode(value any) (string, error) {
	text, err := json.Marshal(value)
	switch {
	case err != nil:
		h.log.Error("a method has returned a value without JSON",
			"agent", h.request.GetAgentType(), "method", h.request.GetMethod(), "error", err)
		return "", fault.New(fault.Conflict, "METHOD_FAILED", "The method has failed.")
	case len(text) > h.maxBytes:
		return "", fault.New(
			fault.TooLarge,
			"RESULT_TOO_LARGE",
			"a value of a method may have at most %d bytes; this one has %d",
			h.maxBytes,
			len(text),
		)
	}
	return string(text), nil
}
