package tool

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of one caller's events and usage. Names have the state service's limits.
const (
	maxName       = 256 // bytes, for events and usage
	maxEventBytes = 256 << 10
	maxEvents     = 10_000
	maxUsage      = 100 // different values
	maxUsageValue = 1e15
)

// Emit sends an event to the readers of the session. It returns soon after ctx ends.
type Emit func(ctx context.Context, event Event) error

// Event is an event from a tool or a hook. See agent.Host.
type Event struct {
	Name string
	// ID is empty for an independent event.
	ID        string
	Transient bool
	Data      json.RawMessage // one JSON text
}

// Usage is a counted value with a type and a name.
type Usage struct {
	Kind, Name string
	Value      float64
}

// Host gives one call of a tool, or the hooks of a step, access to their run. It owns a draft of the custom
// state and accepts nothing after End. Safe for concurrent use. It is an agent.ContextHost.
type Host struct {
	*agent.Draft
	store *agent.Store // of a tool
	// Trace is the span for the attributes of a hook; nil for none.
	Trace    agent.Span
	emit     Emit
	sending  sync.WaitGroup                          // events being sent
	takeTime func() (context.Context, time.Duration) // nil outside of Runner.Execute
	admitRow func() error                            // refuses a row of context; nil refuses none

	mu     sync.Mutex
	usage  []Usage
	rows   []agent.ContextRow
	events int
	cancel map[int]context.CancelFunc // of the events being sent, by number
	ended  bool
}

// NewHost begins with the custom state at the start of the step; the state must not change any more. schema and
// stateBytes are as in Scope. A nil emit drops events.
func NewHost(state agent.State, schema *agent.Schema, stateBytes int, emit Emit) *Host {
	return &Host{
		Draft: agent.NewDraft(state, schema, stateBytes), store: agent.NewStore(nil), emit: emit, cancel: map[int]context.CancelFunc{},
	}
}

// runtimeEvents are the names of data parts that the runtime writes itself. A chat shows an event as the data part with
// its name.
var runtimeEvents = []string{"error", "output", "state-patch", "subagent"}

// Emit sends an event to readers. Invalid (EVENT_INVALID) for an invalid name, id or data, TooLarge
// (EVENT_TOO_LARGE), Exhausted (EVENTS_EXHAUSTED), Conflict (CALL_ENDED).
func (h *Host) Emit(ctx context.Context, name string, data any, options ...agent.EmitOption) error {
	if !isValidName(name) {
		return fault.New(fault.Invalid, "EVENT_INVALID",
			"the name %.80q of an event must have 1 to %d bytes without control characters", name, maxName)
	}
	if slices.Contains(runtimeEvents, name) {
		return fault.New(fault.Invalid, "EVENT_INVALID", "the event name %q is reserved; choose another name", name)
	}
	chosen, err := agent.NewEmitOptions(options...)
	if err != nil {
		return err
	}
	text, err := marshal(data)
	if err != nil {
		return fault.New(fault.Invalid, "EVENT_INVALID", "the data of the event %q cannot be written as JSON: %v", name, err)
	}
	if name == agent.MetadataEvent {
		if err := agent.CheckMetadata(text); err != nil {
			return err
		}
	}
	if len(text) > maxEventBytes {
		return fault.New(fault.TooLarge, "EVENT_TOO_LARGE",
			"the data of the event %q has %d bytes; the limit is %d", name, len(text), maxEventBytes)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	number, err := h.admit(cancel)
	if err != nil {
		return err
	}
	defer h.done(number)
	if h.emit == nil {
		return nil
	}
	return h.emit(ctx, Event{Name: name, ID: chosen.ID, Transient: chosen.Transient, Data: text})
}

// Store returns the private store of the session.
func (h *Host) Store() *agent.Store { return h.store }

// TakeTime is for a tool that may wait for long before its work begins. From then on the tool applies its time limit
// itself: it ends its work when ctx ends, and fails with TimedOut after the limit. ok is false outside of a run.
func (h *Host) TakeTime() (ctx context.Context, limit time.Duration, ok bool) {
	if h.takeTime == nil {
		return nil, 0, false
	}
	ctx, limit = h.takeTime()
	return ctx, limit, true
}

// admit registers one event. End cancels its sending and waits for it.
func (h *Host) admit(cancel context.CancelFunc) (event int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return 0, fault.New(fault.Conflict, "CALL_ENDED", "the call has ended and accepts no more events")
	}
	if h.events >= maxEvents {
		return 0, fault.New(fault.Exhausted, "EVENTS_EXHAUSTED", "the call has emitted %d events, which is the limit", maxEvents)
	}
	h.events++
	h.cancel[h.events] = cancel
	h.sending.Add(1)
	return h.events, nil
}

func (h *Host) done(event int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.cancel, event)
	h.sending.Done()
}

// RecordUsage adds to a counted value. Values of one type and name add up. It drops values that are not numbers
// or exceed 10^15, invalid names, and everything after a hundred different names.
func (h *Host) RecordUsage(kind, name string, value float64) {
	if !isValidName(kind) || !isValidName(name) || math.IsNaN(value) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	for i, u := range h.usage {
		if u.Kind == kind && u.Name == name {
			if sum := u.Value + value; math.Abs(sum) <= maxUsageValue {
				h.usage[i].Value = sum
			}
			return
		}
	}
	if len(h.usage) < maxUsage && math.Abs(value) <= maxUsageValue {
		h.usage = append(h.usage, Usage{kind, name, value})
	}
}

// AddContext adds a row of context: see agent.Call.
func (h *Host) AddContext(row agent.ContextRow) error {
	if err := row.Check(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return fault.New(fault.Conflict, "CALL_ENDED", "the call has ended and accepts no more rows of context")
	}
	if h.admitRow != nil {
		if err := h.admitRow(); err != nil {
			return err
		}
	}
	h.rows = append(h.rows, row)
	return nil
}

// Span returns the span for the attributes of a hook.
func (h *Host) Span() agent.Span { return h.Trace }

// DropContext drops the rows so far, for a call that is made again.
func (h *Host) DropContext() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows = nil
}

// End returns the state changes and the usage, and closes the host. It cancels events being sent and waits for
// them: after End no event is sent.
func (h *Host) End() ([]agent.Op, []Usage) {
	h.mu.Lock()
	h.ended = true
	usage := h.usage
	for _, cancel := range h.cancel {
		cancel()
	}
	h.mu.Unlock()
	h.sending.Wait()
	return h.Draft.End(), usage
}

func isValidName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}
