package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// A sink takes what an application sends before the end of a call. It refuses lines without a function.
type sink struct {
	emit  func(ctx context.Context, name string, data any, options ...agent.EmitOption) error
	write func(ctx context.Context, change func(draft agent.State) error) error
	usage func(kind, name string, value float64)
	send  func(ctx context.Context, value any) error
	store *agent.Store
	add   func(row agent.ContextRow) error
	later bool // the call may answer later
}

// hostSink is the sink of a tool or a hook.
func hostSink(h agent.Host) sink {
	if h == nil {
		h = &agent.Call{} // of a test: its methods do nothing
	}
	return sink{
		emit:  h.Emit,
		usage: h.RecordUsage,
		write: func(_ context.Context, change func(agent.State) error) error { return h.Update(change) },
	}
}

// toolSink is the sink of a tool.
func toolSink(call *agent.Call) sink {
	s := hostSink(call.Host)
	s.add = call.AddContext
	return s
}

// methodSink is the sink of a method.
func methodSink(c *agent.MethodCall) sink {
	return sink{write: c.Host.Update, send: c.Host.Send, store: c.Store()}
}

// event is an event of an application.
type event struct {
	Name      string          `json:"name"`
	Data      json.RawMessage `json:"data"`
	ID        *string         `json:"id"`
	Transient bool            `json:"transient"`
}

// op is a write of an application to the custom state.
type op struct {
	Op    agent.OpKind    `json:"op"`
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"`
}

// storeOp is a write of an application to the private store.
type storeOp struct {
	Op    agent.StoreOp   `json:"op"`
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// take applies a line. agent.Later ends the call: its result comes by callback. A *cutError means that the line is not one
// for this call. Other errors are those of the host.
func (s sink) take(ctx context.Context, line map[string]json.RawMessage) error {
	for kind, text := range line {
		switch {
		case kind == "ping":
			return nil
		case kind == "later" && s.later:
			return agent.Later
		case kind == "event" && s.emit != nil:
			var e event
			if err := json.Unmarshal(text, &e); err != nil {
				return notALine(kind, err)
			}
			var options []agent.EmitOption
			if e.ID != nil {
				options = append(options, agent.WithID(*e.ID))
			}
			if e.Transient {
				options = append(options, agent.Transient())
			}
			return s.emit(ctx, e.Name, e.Data, options...)
		case kind == "metadata" && s.emit != nil:
			return s.emit(ctx, agent.MetadataEvent, text)
		case kind == "usage" && s.usage != nil:
			var u struct {
				Kind, Name string
				Value      float64
			}
			if err := json.Unmarshal(text, &u); err != nil {
				return notALine(kind, err)
			}
			s.usage(u.Kind, u.Name, u.Value)
			return nil
		case kind == "state" && s.write != nil:
			var ops []op
			if err := json.Unmarshal(text, &ops); err != nil {
				return notALine(kind, err)
			}
			return s.apply(ctx, ops)
		case kind == "store" && s.store != nil:
			var ops []storeOp
			if err := json.Unmarshal(text, &ops); err != nil {
				return notALine(kind, err)
			}
			return s.applyToStore(ops)
		case kind == "context" && s.add != nil:
			rows, err := rowsOf(text)
			if err != nil {
				return notALine(kind, err)
			}
			for _, row := range rows {
				if err := s.add(row); err != nil {
					return err
				}
			}
			return nil
		case kind == "send" && s.send != nil:
			return s.send(ctx, text)
		}
		return &cutError{fmt.Errorf("a line of the answer has the member %.100q, which this call does not allow", kind)}
	}
	return nil
}

func notALine(kind string, err error) error {
	return &cutError{fmt.Errorf("a line of the answer has another form of %s than it must have: %w", kind, err)}
}

// applyToStore writes to the private store. Invalid (STORE_WRITES_INVALID, STORE_NUMBER_INVALID), and the faults of the store.
func (s sink) applyToStore(ops []storeOp) (err error) {
	for _, o := range ops {
		var delta int64
		switch {
		case o.Op == agent.StoreDelete:
			err = s.store.Delete(o.Key)
		case o.Op == agent.StorePut && o.Value != nil:
			err = s.store.Put(o.Key, o.Value)
		case o.Op == agent.StoreAdd && json.Unmarshal(o.Value, &delta) == nil && string(o.Value) != "null":
			err = s.store.Add(o.Key, delta)
		case o.Op == agent.StoreAdd:
			err = fault.New(fault.Invalid, "STORE_NUMBER_INVALID", "the value to add to the key %.80q of the store is no integer of 64 bits", o.Key)
		default:
			err = fault.New(fault.Invalid, "STORE_WRITES_INVALID",
				"the write to the key %.80q of the store must have the op put or add, with a value, or delete", o.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply writes to the custom state. Invalid (STATE_INVALID), and the faults of the host.
func (s sink) apply(ctx context.Context, ops []op) error {
	writes := make([]agent.Op, len(ops))
	for i, o := range ops {
		var items []json.RawMessage
		switch {
		case o.Op == agent.OpDelete:
		case o.Op != agent.OpReplace && o.Op != agent.OpAppend:
			return fault.New(fault.Invalid, "STATE_INVALID",
				"the write to %.80q has the op %.80q; it must be replace, append or delete", o.Key, o.Op)
		case o.Value == nil:
			return fault.New(fault.Invalid, "STATE_INVALID", "the write to %.80q has no value", o.Key)
		case o.Op == agent.OpAppend && json.Unmarshal(o.Value, &items) != nil:
			return fault.New(fault.Invalid, "STATE_INVALID", "the value of an append to %.80q must be a list of items", o.Key)
		}
		writes[i] = agent.Op{Key: o.Key, Kind: o.Op, Value: o.Value}
	}
	return s.write(ctx, func(draft agent.State) error {
		after, err := draft.Apply(writes)
		if err != nil {
			return err
		}
		return replace(draft, after)
	})
}

// replace gives a draft the content of a state.
func replace(draft, state agent.State) error {
	clear(draft)
	maps.Copy(draft, state)
	return nil
}
