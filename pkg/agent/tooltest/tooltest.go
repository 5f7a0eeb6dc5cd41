// Package tooltest tests tools without a Holdfast server: [Run] calls a tool as an executor does, and
// [Host] records what the tool does to its run.
package tooltest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Event is an event that a call has emitted.
type Event struct {
	Name string
	// ID is empty for an event without one.
	ID        string
	Transient bool
	Data      json.RawMessage
}

// Usage is a value that a call has recorded.
type Usage struct {
	Kind, Name string
	Value      float64
}

// Host is an agent.Host that records events and usage. Its custom state has the limits of production.
// Safe for concurrent use.
type Host struct {
	*agent.Draft
	store *agent.Store

	mu     sync.Mutex
	events []Event
	usage  []Usage
}

// NewHost returns a host with an initial custom state. Invalid (STATE_INVALID) for a state without JSON.
func NewHost(state agent.State) (*Host, error) {
	own, err := state.Clone()
	if err != nil {
		return nil, err
	}
	return &Host{Draft: agent.NewDraft(own, nil, 0), store: agent.NewStore(nil)}, nil
}

// Store returns the private store of the session, which begins empty.
func (h *Host) Store() *agent.Store { return h.store }

// Emit records an event. An event that replaces an earlier one is recorded as well.
func (h *Host) Emit(ctx context.Context, name string, data any, options ...agent.EmitOption) error {
	chosen, err := agent.NewEmitOptions(options...)
	if err != nil {
		return err
	}
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("the data of the event %q: %w", name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, Event{Name: name, ID: chosen.ID, Transient: chosen.Transient, Data: text})
	return ctx.Err()
}

// RecordUsage records a value.
func (h *Host) RecordUsage(kind, name string, value float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.usage = append(h.usage, Usage{kind, name, value})
}

// Events returns the recorded events in order.
func (h *Host) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events...)
}

// Usage returns the recorded values in order.
func (h *Host) Usage() []Usage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Usage(nil), h.usage...)
}

// Run calls a tool as an executor does: it checks the input against the input schema, executes the
// tool, and checks the result against the output schema. host may be nil for a call outside of a run.
// The result is JSON. The error is the one that the model would receive.
func Run(ctx context.Context, t agent.Tool, host agent.Host, input string) (json.RawMessage, error) {
	return RunCall(ctx, t, &agent.Call{ID: "call", IdempotencyKey: "key", Step: 1, Input: json.RawMessage(input), Host: host})
}

// RunCall is Run for a call with a user, metadata or other facts of the runtime. The tool gets a copy with its own name.
func RunCall(ctx context.Context, t agent.Tool, call *agent.Call) (json.RawMessage, error) {
	made := *call
	made.Tool = t.Name
	if t.Execute == nil {
		return nil, fmt.Errorf("the tool %q is answered by its client", t.Name)
	}
	if err := check(t.InputSchema, call.Input); err != nil {
		return nil, fmt.Errorf("the arguments do not fit: %w", err)
	}
	value, err := t.Execute(ctx, &made)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("the result of %q: %w", t.Name, err)
	}
	if err := check(t.OutputSchema, result); err != nil {
		return nil, fmt.Errorf("the result does not fit: %w", err)
	}
	return result, nil
}

func check(raw, value json.RawMessage) error {
	if raw == nil {
		return nil
	}
	schema, err := agent.CompileSchema(raw)
	if err != nil {
		return err
	}
	return schema.Check(value)
}
