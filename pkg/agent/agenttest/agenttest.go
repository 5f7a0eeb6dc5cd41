// Package agenttest helps to test tools without a Holdfast.
package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Event is what a call has emitted.
type Event struct {
	Name string
	// ID is empty for an event without one.
	ID        string
	Transient bool
	Data      json.RawMessage
}

// Usage is what a call has counted.
type Usage struct {
	Kind, Name string
	Value      float64
}

// Host is an agent.Host that remembers. Its custom state is a draft with the limits that
// hold in production. Safe for concurrent use.
type Host struct {
	*agent.Draft

	mu     sync.Mutex
	events []Event
	usage  []Usage
}

// NewHost gives a host with a custom state to begin with.
func NewHost(state agent.State) (*Host, error) {
	own, err := state.Clone()
	if err != nil {
		return nil, err
	}
	return &Host{Draft: agent.NewDraft(own, 0)}, nil
}

// Emit remembers an event, also one that takes the place of another.
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

// RecordUsage remembers a value.
func (h *Host) RecordUsage(kind, name string, value float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.usage = append(h.usage, Usage{kind, name, value})
}

// Events gives what was emitted, in its order.
func (h *Host) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events...)
}

// Usage gives what was counted, in its order.
func (h *Host) Usage() []Usage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Usage(nil), h.usage...)
}

// Run runs a tool as an executor does, as far as that can be seen from the tool: the input is
// held against the schema first, and the result against that of the output. A nil host
// gives a call without a run. The result is JSON; the error is what the model would be told.
func Run(ctx context.Context, t agent.Tool, host agent.Host, input string) (json.RawMessage, error) {
	if t.Execute == nil {
		return nil, fmt.Errorf("the tool %q is answered by its client", t.Name)
	}
	if err := check(t.InputSchema, json.RawMessage(input)); err != nil {
		return nil, fmt.Errorf("the arguments do not fit: %w", err)
	}
	value, err := t.Execute(ctx, &agent.Call{ID: "call", Tool: t.Name, IdempotencyKey: "key", Step: 1, Input: json.RawMessage(input), Host: host})
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
