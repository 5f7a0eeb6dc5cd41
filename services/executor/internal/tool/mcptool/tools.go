package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

// maxTools limits the tools of one server.
const maxTools = 1000

// maxToolName is the length limit of an agent's tool names.
const maxToolName = 64

// allTools stands for every tool in a list of names.
const allTools = "*"

// Metadata keys of a call.
const (
	metaKey     = "holdfast.run/idempotencyKey"
	metaContext = "holdfast.run/context" // see Config.Context
)

// toolsOf lists the tools of a server. It omits unusable tools, and logs each once.
func (s *Server) toolsOf(ctx context.Context, session *session) ([]agent.Tool, error) {
	listed, known, err := s.listTools(ctx, session)
	if err != nil {
		return nil, s.unavailable(err)
	}
	session.names = known
	tools, unusable := []agent.Tool{}, map[string]string{}
	for _, name := range known {
		if s.takes(name) && !slices.ContainsFunc(listed, func(t *mcp.Tool) bool { return t.Name == name }) {
			unusable[name] = "an x-mcp-header in its input schema is not valid"
		}
	}
	for _, t := range listed {
		if !s.takes(t.Name) {
			continue
		}
		tool, err := s.tool(t)
		if err == nil {
			err = checkTool(tool)
		}
		if err == nil && slices.ContainsFunc(tools, func(other agent.Tool) bool { return other.Name == tool.Name }) {
			err = fmt.Errorf("two tools have the name %q; exclude one of them", tool.Name)
		}
		if err != nil {
			unusable[t.Name] = detail(err)
			continue
		}
		tools = append(tools, tool)
	}
	for _, name := range s.absentNames(known) {
		unusable[name] = "the server has no such tool"
	}
	s.noteUnusable(unusable)
	slices.SortFunc(tools, func(a, b agent.Tool) int { return strings.Compare(a.Name, b.Name) })
	return tools, nil
}

// noteUnusable logs unusable tools, except those of the last listing.
func (s *Server) noteUnusable(now map[string]string) {
	s.mu.Lock()
	before := s.unusable
	s.unusable = now
	s.mu.Unlock()
	for name, reason := range now {
		if before[name] != reason {
			s.log.Warn("MCP tool cannot be used", "tool", name, "error", reason)
		}
	}
}

// listTools returns the tools that the library can read, and the names of all.
func (s *Server) listTools(ctx context.Context, session *session) (listed []*mcp.Tool, known []string, err error) {
	cursor := ""
	for {
		page, err := session.client.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, nil, err
		}
		listed = append(listed, page.Tools...)
		names, _ := page.Meta[namesKey].([]any)
		for _, name := range names {
			known = append(known, fmt.Sprint(name))
		}
		if len(known) > maxTools {
			return nil, nil, fmt.Errorf("it has more than %d tools", maxTools)
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return listed, known, nil
		}
		cursor = page.NextCursor
	}
}

// detail returns the detail of a fault, and the text of any other error.
func detail(err error) string {
	if f, ok := fault.From(err); ok {
		return f.Detail
	}
	return err.Error()
}

// checkNames refuses a server at first if it lacks a tool that the configuration excludes or lets a human approve. It
// may have the tool under another name.
func (s *Server) checkNames(known []string) error {
	for _, name := range slices.Concat(s.config.Exclude, s.config.Approve) {
		if name != allTools && !slices.Contains(known, name) {
			return s.invalid("it has no tool %q, which the configuration excludes or approves; it has %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// absentNames returns the other configured names without a tool.
func (s *Server) absentNames(known []string) []string {
	return slices.DeleteFunc(slices.Concat(s.config.Include, s.config.Safe, s.config.ReadOnly), func(name string) bool {
		return name == allTools || slices.Contains(known, name)
	})
}

func (s *Server) takes(name string) bool {
	return (len(s.config.Include) == 0 || names(s.config.Include, name)) && !names(s.config.Exclude, name)
}

func names(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, allTools)
}

// tool converts a tool of the server.
func (s *Server) tool(t *mcp.Tool) (agent.Tool, error) {
	if problem, ok := t.Meta[problemKey].(string); ok {
		return agent.Tool{}, errors.New(problem)
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return agent.Tool{}, fmt.Errorf("its input schema is no JSON: %w", err)
	}
	if _, err := agent.CompileSchema(schema); err != nil {
		return agent.Tool{}, fmt.Errorf("its input schema: %w", err)
	}
	tool := agent.Tool{
		Name:        s.config.Prefix + safeName(t.Name),
		Description: t.Description,
		InputSchema: schema,
		Retry:       agent.RetryNever,
		Timeout:     s.config.Timeout,
		Dynamic:     true,
		Approval:    names(s.config.Approve, t.Name),
	}
	if len(tool.Name) > maxToolName {
		return agent.Tool{}, fmt.Errorf("the name %q has more than %d characters", tool.Name, maxToolName)
	}
	var hints mcp.ToolAnnotations
	if s.config.TrustHints && t.Annotations != nil {
		hints = *t.Annotations
	}
	tool.ReadOnly = hints.ReadOnlyHint || names(s.config.ReadOnly, t.Name)
	if tool.ReadOnly || hints.IdempotentHint || names(s.config.Safe, t.Name) {
		tool.Retry = agent.RetrySafe
	}
	name := t.Name
	tool.Execute = func(ctx context.Context, call *agent.Call) (any, error) {
		value, err := s.call(ctx, name, call)
		return value, hideConnection(err)
	}
	return tool, nil
}

// hideConnection keeps from users why a server is not available: the reason may name addresses or quote output.
func hideConnection(err error) error {
	if errors.Is(err, fault.Unavailable) {
		return agent.PublicError(err, "The tool's server is not available.")
	}
	return err
}

// checkTool says why no agent could have the tool, like Agent.Check.
func checkTool(t agent.Tool) error {
	for _, p := range (agent.Agent{Tools: []agent.Tool{t}}).Problems() {
		if strings.HasPrefix(p.Field, "tools[") {
			return errors.New(p.Text)
		}
	}
	return nil
}

// safeName returns a name with characters accepted by every provider.
func safeName(name string) string {
	return strings.Map(func(r rune) rune {
		if notOfNames(r) {
			return '_'
		}
		return r
	}, name)
}

// call calls a tool of the server. Errors are for the model. It returns at the end of ctx; Close waits until the
// server has been notified.
func (s *Server) call(ctx context.Context, name string, call *agent.Call) (any, error) {
	if s.running.Add(1) > maxCalls {
		s.running.Add(-1)
		return nil, s.unavailable(fmt.Errorf("it already has %d calls in flight; this call was not made", maxCalls))
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		s.running.Add(-1)
		return nil, err
	}
	type end struct {
		value any
		err   error
	}
	ends := make(chan end, 1) // buffered, so a late call can end
	go func() {               // done reports its end to Close
		defer done()
		defer s.running.Add(-1)
		defer func() {
			if p := recover(); p != nil { // a panic of the library; the tool runner recovers only its own goroutine
				s.log.Error("MCP call panicked", "tool", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				ends <- end{err: errors.New("the tool has crashed")}
			}
		}()
		value, err := s.send(ctx, name, call)
		ends <- end{value, err}
	}()
	select {
	case e := <-ends:
		return e.value, e.err
	case <-ctx.Done():
	}
	select {
	case e := <-ends: // ctx may have ended because the call has
		return e.value, e.err
	default:
		return nil, ctx.Err()
	}
}

// maxUnsent is the number of sessions that may refuse one call.
const maxUnsent = 3

// send makes a call. If a session ends before the server accepts the call, the next session receives it. A call
// that the server may have accepted is not repeated here: see Repeating.
func (s *Server) send(ctx context.Context, name string, call *agent.Call) (any, error) {
	params := s.paramsOf(ctx, name, call)
	unsent := 0
	denied := false // an error said that the server does not know the session
	for {
		session, err := s.ensureSession(ctx)
		if err != nil {
			return nil, err
		}
		var sent delivery
		result, err := session.callTool(context.WithValue(ctx, deliveryKey{}, &sent), params)
		refused := isRefusal(err, int(sent.status.Load()))
		if refused || err == nil {
			session.unanswered.Store(0)
		}
		switch {
		case err == nil:
			return resultOf(result)
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			session.probe(s.connectTimeout()) //nolint:contextcheck // ctx has ended: but for Close, nobody waits for this call any more
			return nil, ctx.Err()
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !denied && s.config.URL != "" && deniesCall(err):
			denied = true // a second time it is the tool's own error
			session.end(errForgotten)
			continue
		case !sent.written.Load() && (session.life.Err() != nil || isSessionEnd(err)):
			reason := errDeaf
			if errors.Is(err, mcp.ErrSessionMissing) {
				reason = errForgotten
			}
			session.end(reason) // connected waits for its end
			if unsent++; unsent == maxUnsent {
				return nil, s.unavailable(fmt.Errorf("%w; the call was not made", cmp.Or(session.cause(), reason)))
			}
			continue
		case session.cause() != nil:
			return nil, s.unavailable(fmt.Errorf("its session ended during the call: %w; "+unknownOutcome, session.cause()))
		case isSessionEnd(err):
			return nil, s.unavailable(errors.New("its session ended during the call; " + unknownOutcome))
		case refused:
			return nil, agent.PublicError(fmt.Errorf("the MCP server %q: %w", s.config.Name, err), "The tool's server refused the call.")
		case !sent.written.Load():
			return nil, s.unavailable(fmt.Errorf("it could not be reached: %w; the call was not made", err))
		}
		return nil, s.unavailable(fmt.Errorf("it did not answer the call: %w; "+unknownOutcome, err))
	}
}

const unknownOutcome = "it is not known whether the call took effect"

// isRefusal reports whether a server has answered a call with an error. status is the status of an HTTP response, 0
// without one.
func isRefusal(err error, status int) bool {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return false // it may answer later
	case status >= 400:
		return true
	}
	refusal, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && !slices.Contains([]int64{codeClientClosing, codeServerClosing, codeNotSent}, refusal.Code)
}

// The codes of JSON-RPC errors for messages of an unknown session.
const (
	codeServerError     = -32000
	codeSessionNotFound = -32001
	codeInvalidRequest  = -32600
)

// The codes of errors that the library makes itself: its connection is closing, or its transport has failed.
const (
	codeClientClosing = -32003
	codeServerClosing = -32004
	codeNotSent       = -32005
)

// deniesCall reports whether a server has answered a call with an error that says that it does not know the session. It
// has not made the call then.
func deniesCall(err error) bool {
	refusal, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || !namesSession(refusal.Message) {
		return false
	}
	return refusal.Code == codeServerError || refusal.Code == codeSessionNotFound || refusal.Code == codeInvalidRequest
}

// paramsOf returns a call with its idempotency key, its trace and, if configured, its context as metadata.
func (s *Server) paramsOf(ctx context.Context, name string, call *agent.Call) *mcp.CallToolParams {
	params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: name, Arguments: call.Input}
	if call.IdempotencyKey != "" {
		params.Meta[metaKey] = call.IdempotencyKey
	}
	if traceparent, _ := telemetry.Traceparent(ctx); traceparent != "" {
		params.Meta["traceparent"] = traceparent
	}
	if s.config.Context {
		params.Meta[metaContext] = trusted.Of(call)
	}
	if len(call.Input) == 0 {
		params.Arguments = json.RawMessage("{}")
	}
	return params
}

// isSessionEnd reports whether a call failed because its session ended. It does not tell whether the server accepted
// the call: when the server refuses one call with ErrSessionMissing, the library fails all calls in flight with
// the same error.
func isSessionEnd(err error) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) ||
		errors.Is(err, io.EOF) || errors.Is(err, errUnwritten)
}
