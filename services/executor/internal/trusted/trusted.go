// Package trusted describes a call to programs outside of the executor: whose session it is, its run and its ids. All values
// come from the runtime. No argument of a model, message of a user or custom state changes them.
package trusted

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Context is the context of a call, as endpoints and MCP servers receive it.
type Context struct {
	Agent   string  `json:"-"` // its type
	Tenant  string  `json:"tenant"`
	User    *User   `json:"user"` // nil without a user
	Session Session `json:"session"`
	Run     *Run    `json:"run,omitempty"` // nil outside of runs: for a method
	// Step is the step of the session; 0 outside of steps.
	Step int   `json:"step"`
	Call *Call `json:"call,omitempty"` // of a tool
	// Deadline is when the caller stops waiting, in UTC. Deadline and Traceparent are of one request, so whoever makes the
	// request sets them.
	Deadline    time.Time `json:"deadline,omitzero"`
	Traceparent string    `json:"traceparent,omitempty"`
}

// User is the user of a session.
type User struct {
	ID string `json:"id"`
}

// Session is the session of a call. Tags and Metadata are never nil.
type Session struct {
	ID       string            `json:"id"`
	ParentID *string           `json:"parentId"` // nil for a session that a client began
	Tags     []string          `json:"tags"`
	Metadata map[string]string `json:"metadata"`
}

// Run is the run of a call. Turn is its number in the session, from 1.
type Run struct {
	ID   string `json:"id"`
	Turn int    `json:"turn"`
}

// Call is the call of a tool.
type Call struct {
	ID             string `json:"id"`
	IdempotencyKey string `json:"idempotencyKey"`
	// Attempt counts the requests for the call; whoever makes them sets it.
	Attempt int `json:"attempt,omitempty"`
	// Callback is where another system may post the result; nil unless the tool may answer later.
	Callback *Callback `json:"callback,omitempty"`
}

// Callback is the address for the result of one call, until a time in UTC.
type Callback struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// Of returns the context of a tool's call.
func Of(c *agent.Call) Context {
	context := OfRun(&agent.RunView{
		Tenant: c.Tenant, SessionID: c.SessionID, ParentSessionID: c.ParentSessionID, RunID: c.RunID, AgentType: c.AgentType,
		UserID: c.UserID, Tags: c.Tags, Metadata: c.Metadata, Turn: c.Turn, Step: c.Step,
	})
	context.Call = &Call{ID: c.ID, IdempotencyKey: c.IdempotencyKey}
	if c.Callback.URL != "" {
		context.Call.Callback = &Callback{URL: c.Callback.URL, Expires: c.Callback.Expires.UTC()}
	}
	return context
}

// OfHook returns the context of a hook.
func OfHook(h *agent.HookCall) Context {
	return OfRun(&agent.RunView{
		Tenant: h.Tenant, SessionID: h.SessionID, ParentSessionID: h.ParentSessionID, RunID: h.RunID, AgentType: h.AgentType,
		UserID: h.UserID, Tags: h.Tags, Metadata: h.Metadata, Turn: h.Turn, Step: h.Step,
	})
}

// OfMethod returns the context of a method's call.
func OfMethod(c *agent.MethodCall) Context {
	context := OfRun(&agent.RunView{
		Tenant: c.Tenant, SessionID: c.SessionID, ParentSessionID: c.ParentSessionID, AgentType: c.AgentType, UserID: c.UserID,
		Tags: c.Tags, Metadata: c.Metadata,
	})
	context.Run = nil
	return context
}

// OfRun returns the context of another function of an agent.
func OfRun(r *agent.RunView) Context {
	context := Context{
		Agent:   r.AgentType,
		Tenant:  r.Tenant,
		Session: Session{ID: r.SessionID, Tags: slices.Clone(r.Tags), Metadata: maps.Clone(r.Metadata)},
		Run:     &Run{ID: r.RunID, Turn: r.Turn},
		Step:    r.Step,
	}
	if r.UserID != "" {
		context.User = &User{ID: r.UserID}
	}
	if r.ParentSessionID != "" {
		context.Session.ParentID = &r.ParentSessionID
	}
	if context.Session.Tags == nil {
		context.Session.Tags = []string{}
	}
	if context.Session.Metadata == nil {
		context.Session.Metadata = map[string]string{}
	}
	return context
}
