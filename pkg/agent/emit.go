package agent

import "github.com/holdfast-run/holdfast/pkg/fault"

// EmitOption says more about an event: WithID, Transient.
type EmitOption func(*EmitOptions)

// EmitOptions is what the options of one Emit say. Implementations of Host read it.
type EmitOptions struct {
	// ID is empty for an event without one.
	ID        string
	Transient bool
	hasID     bool
}

// WithID makes the event take the place of the former event of the same name and id in
// the message: progress that counts up is one entry, not a hundred. Readers who come
// later see the newest one, where the first one stood. The id has 1 to 256 bytes of UTF-8
// without control characters.
func WithID(id string) EmitOption {
	return func(o *EmitOptions) { o.ID, o.hasID = id, true }
}

// Transient makes the event reach only those who read at the time. It is not stored, and
// /messages does not have it.
func Transient() EmitOption {
	return func(o *EmitOptions) { o.Transient = true }
}

// NewEmitOptions reads options. Invalid (EVENT_INVALID) for an id that cannot be kept.
func NewEmitOptions(options ...EmitOption) (EmitOptions, error) {
	var o EmitOptions
	for _, option := range options {
		option(&o)
	}
	if o.hasID && !goodKey(o.ID) {
		return EmitOptions{}, fault.New(fault.Invalid, "EVENT_INVALID",
			"the id %.80q of an event must have 1 to %d bytes of UTF-8 without control characters", o.ID, maxStateKey)
	}
	return o, nil
}
