package cloudflare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// The texts of refused states, as clients know them.
const (
	readOnlyText = "Connection is readonly"
	rejectedText = "State update rejected"
)

// noState is the state of a session without one.
const noState = "{}"

// stateSync is what a client knows of the state.
type stateSync struct {
	known   digest // the state at the client
	version int64  // of the session; earlier readings are older than what the client knows
}

// stateOf returns the state of a new client; "" if the instance has none.
func (c *connection) stateOf(now *reading) string {
	state := now.GetSession().GetCustomState()
	switch {
	case now.GetSession() == nil:
		return c.address.initial
	case state == noState:
		return ""
	}
	return state
}

// greet sends the state to a new client.
func (s *stateSync) greet(c *connection, now *reading, state string) error {
	s.known, s.version = digestOf(cmp.Or(state, noState)), now.GetSession().GetVersion()
	if state == "" {
		return nil
	}
	return c.sendState(state)
}

// show sends the state if the client has another one.
func (s *stateSync) show(c *connection, now *reading) error {
	session := now.GetSession()
	if session != nil && session.GetVersion() < s.version {
		return nil // read before a write of this client
	}
	s.version = session.GetVersion()
	if session == nil || now.digest == s.known {
		return nil
	}
	s.known = now.digest
	return c.sendState(session.GetCustomState())
}

// sendState sends a state.
func (c *connection) sendState(state string) error {
	sent := c.seen.sent.Add(1)
	return c.conn.WriteBehindPing(stateFrame(state), func() { c.seen.receive(sent) })
}

// receipts counts the states that a client was sent and has received.
type receipts struct{ sent, received atomic.Int64 }

// receive notes that the client has the states up to a number. One goroutine calls it.
func (r *receipts) receive(number int64) { r.received.Store(number) }

// write stores a state of the client.
func (s *stateSync) write(c *connection, f received) error {
	if c.readOnly {
		return c.conn.Write(stateErrorFrame(readOnlyText))
	}
	version, err := c.saveState(retry.Request(c.ctx), f.State)
	if err != nil {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		c.Log.InfoContext(c.ctx, "state of a client rejected", "session", c.address.session, "error", err)
		return c.conn.Write(stateErrorFrame(rejectedText))
	}
	s.version, s.known = version, digestOf(string(f.State))
	if f.states != c.seen.sent.Load() { // the client may show a state under way to it
		s.known = digest{}
	}
	c.instance.changed(c.ctx)
	return nil
}

// saveState replaces the state, and creates the session with it if there is none. It returns the
// version of the session. Denied (SCOPE_MISSING), and the faults of SaveState.
func (c *connection) saveState(ctx context.Context, state json.RawMessage) (version int64, err error) {
	if caller, _ := auth.From(ctx); !c.address.open {
		if err := caller.Require(auth.Operate, `write the custom state of an agent whose state schema does not say "x-client-writable": true`); err != nil {
			return 0, err
		}
	}
	err = retry.Do(ctx, c.Sessions.Policy, func() error {
		saved, err := c.Sessions.Sessions.SaveState(ctx, &statev1.SaveStateRequest{
			Tenant: c.tenant, SessionId: c.address.session, CustomState: string(state),
		})
		version = saved.GetVersion()
		if !errors.Is(err, fault.NotFound) {
			return err
		}
		created, err := c.Sessions.Sessions.CreateSession(ctx, &statev1.CreateSessionRequest{
			Tenant: c.tenant, SessionId: c.address.session, AgentType: c.address.agent, CustomState: string(state),
		})
		version = created.GetSession().GetVersion()
		if fault.ReasonOf(err) == "SESSION_EXISTS" { // another client has created it meanwhile
			return fault.New(fault.Unavailable, "SESSION_CREATED", "the session was created meanwhile; write the state again")
		}
		return err
	})
	return version, err
}
