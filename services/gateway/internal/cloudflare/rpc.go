package cloudflare

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/holdfast-run/holdfast/pkg/fault"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

const typeRPC = "rpc"

// rpcFrame is the answer to a call of a method, or a value before it.
type rpcFrame struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Success bool            `json:"success"`
	Done    *bool           `json:"done,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func resultFrame(id, result string, done bool) []byte {
	return encode(rpcFrame{Type: typeRPC, ID: id, Success: true, Done: &done, Result: json.RawMessage(result)})
}

func rpcError(id, text string) []byte { return encode(rpcFrame{Type: typeRPC, ID: id, Error: text}) }

// rpc starts a call of a method. Calls are not in the order of other frames: one may take long.
func (c *connection) rpc(f received) error {
	if httpapi.CheckID("id", f.ID) != nil {
		return nil //nolint:nilerr // without an id there is no one to answer
	}
	if int(c.calls.Add(1)) > c.Requests {
		c.calls.Add(-1)
		return c.conn.Write(rpcError(f.ID, fmt.Sprintf("%d calls are in flight on this socket; wait for one of them", c.Requests)))
	}
	c.working.Go(func() {
		defer c.calls.Add(-1)
		defer func() {
			if p := recover(); p != nil {
				c.Log.ErrorContext(c.ctx, "call panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				c.end(errPanic)
			}
		}()
		if err := c.call(f); err != nil {
			c.end(err)
		}
	})
	return nil
}

// call calls a method. An error ends the socket.
func (c *connection) call(f received) error {
	caller, _ := auth.From(c.ctx)
	if !caller.May(auth.Chat) {
		return c.conn.Write(rpcError(f.ID, c.rpcText(f.Method, caller.Require(auth.Chat, "call a method"))))
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.MethodTimeout)
	defer cancel()
	r := &executorv1.CallMethodRequest{
		Tenant: c.tenant, SessionId: c.address.session, AgentType: c.address.agent, Method: f.Method, ReadOnly: c.readOnly,
		Caller: caller.StateCaller(),
	}
	for _, a := range f.Args {
		r.Arguments = append(r.Arguments, string(a))
	}
	var written error
	changed := false
	write := func(text []byte) error {
		if !changed {
			return c.conn.Write(text) //nolint:contextcheck // see socket.Conn.Write
		}
		changed = false
		return c.writeAfterState(ctx, text)
	}
	err := c.Methods.Call(ctx, r, func(got *executorv1.CallMethodResponse) error {
		switch event := got.GetEvent().(type) {
		case *executorv1.CallMethodResponse_StateChanged:
			changed = true
			c.instance.changed(ctx)
		case *executorv1.CallMethodResponse_Value:
			written = write(resultFrame(f.ID, event.Value, false))
		case *executorv1.CallMethodResponse_Result:
			written = write(resultFrame(f.ID, event.Result, true))
		}
		return written
	})
	switch {
	case written != nil:
		return written
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case err == nil:
		return nil
	}
	return c.conn.Write(rpcError(f.ID, c.rpcText(f.Method, err)))
}

// lateFrame is a frame that work writes after the newest state.
type lateFrame struct {
	text    []byte
	written chan error // of size 1, so that work never waits
}

// writeAfterState writes a frame after the state stored by the method.
func (c *connection) writeAfterState(ctx context.Context, text []byte) error {
	if _, err := c.instance.read(ctx); err != nil {
		if err := c.failed("the session of an instance cannot be read", err); err != nil {
			return err
		}
	}
	late := lateFrame{text, make(chan error, 1)}
	select {
	case c.late <- late:
		return <-late.written
	case <-c.ctx.Done():
		return context.Cause(c.ctx) //nolint:contextcheck // of the socket, which outlives the call
	}
}

// writeLate shows the newest state and writes a frame.
func (c *connection) writeLate(f lateFrame) (err error) {
	defer func() { f.written <- err }()
	if now := c.instance.last(); now != nil {
		if err := c.sync.show(c, now); err != nil {
			return err
		}
	}
	return c.conn.Write(f.text)
}

// rpcText returns the text of a failed call for its client.
func (c *connection) rpcText(method string, err error) string {
	f, isFault := fault.From(err)
	switch {
	case isFault && f.Reason == "METHOD_NOT_FOUND", isFault && f.Reason == "AGENT_NOT_FOUND":
		return fmt.Sprintf("Method %s does not exist", method)
	case isFault && f.Reason == "METHOD_NOT_CALLABLE":
		return fmt.Sprintf("Method %s is not callable", method)
	case isFault && f.Kind != fault.Internal && f.Kind != fault.Unavailable && f.Kind != fault.Exhausted && f.Detail != "":
		return f.Detail
	}
	c.Log.InfoContext(c.ctx, "method call failed", "session", c.address.session, "method", method, "error", err)
	sentence, _, _ := httpapi.ErrorTexts(err)
	return sentence
}
