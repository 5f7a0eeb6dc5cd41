package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Method is a function of an agent that clients of a session call by its name, outside of a run:
// agent.call and agent.stub of the npm package agents. Methods are called concurrently, on any
// executor that serves the agent. A call is not repeated after a crash; the client receives an error.
type Method struct {
	// Name is 1 to 128 bytes. A method and a tool may not share a name.
	Name string
	// Call returns the result, a value with JSON. The context ends when the client has left. The
	// detail of a fault is shown to the client; of other errors it learns only that the method has
	// failed.
	Call func(ctx context.Context, call *MethodCall) (any, error)
}

// maxMethodName bounds the name of a method, in bytes.
const maxMethodName = 128

// MethodCall is one call of a method. All but Args comes from the runtime.
type MethodCall struct {
	Tenant    string
	SessionID string
	AgentType string
	// ParentSessionID, UserID, Tags and Metadata are those of the stored session, when the call began. They are empty if the
	// session does not exist yet.
	ParentSessionID string
	UserID          string
	Tags            []string
	Metadata        map[string]string
	Args            []json.RawMessage
	Host            MethodHost
}

// MethodHost is what a method works with. It is safe for concurrent use. After the method has returned,
// writes and sends fail with Conflict (CALL_ENDED).
type MethodHost interface {
	// State returns the stored custom state.
	State(ctx context.Context) (State, error)
	// Update changes the custom state, and returns when it is stored. change may be called again if
	// the state changes meanwhile. Its error is returned unchanged, and then nothing is written.
	// Invalid (STATE_INVALID), TooLarge (STATE_SIZE_EXCEEDED), Denied (CONNECTION_READONLY); Stale
	// (VERSION_STALE) after 20 attempts, each of which another change has overtaken.
	Update(ctx context.Context, change func(draft State) error) error
	// Send sends a value to the client before the result. TooLarge (RESULT_TOO_LARGE).
	Send(ctx context.Context, value any) error
}

// Arg decodes an argument; a missing one leaves target as it is. Invalid (ARGUMENT_INVALID).
func (c *MethodCall) Arg(index int, target any) error {
	if index >= len(c.Args) {
		return nil
	}
	if err := json.Unmarshal(c.Args[index], target); err != nil {
		return fault.New(fault.Invalid, "ARGUMENT_INVALID", "argument %d has another type", index+1)
	}
	return nil
}

// State returns the stored custom state: see MethodHost.
func (c *MethodCall) State(ctx context.Context) (State, error) { return c.Host.State(ctx) }

// Update changes the custom state: see MethodHost.
func (c *MethodCall) Update(ctx context.Context, change func(draft State) error) error {
	return c.Host.Update(ctx, change)
}

// Send sends a value to the client before the result: see MethodHost.
func (c *MethodCall) Send(ctx context.Context, value any) error { return c.Host.Send(ctx, value) }

func (a Agent) checkMethods(p *problems) {
	taken := map[string]bool{}
	for _, t := range a.Tools {
		taken[t.Name] = true
	}
	for i, m := range a.Methods {
		field := fmt.Sprintf("methods[%d]", i)
		switch {
		case m.Name == "" || len(m.Name) > maxMethodName:
			p.add(field+".name", "it has %d bytes; it must have 1 to %d", len(m.Name), maxMethodName)
		case taken[m.Name]:
			p.add(field+".name", "%q is the name of another method or of a tool", m.Name)
		}
		if m.Call == nil {
			p.add(field+".call", "it is missing")
		}
		taken[m.Name] = true
	}
}
