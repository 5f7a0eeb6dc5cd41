package agent

import "github.com/holdfast-run/holdfast/pkg/fault"

// EmitOption is an option of Host.Emit: WithID or Transient.
type EmitOption func(*EmitOptions)

// EmitOptions are the options of one Emit, for implementations of Host.
type EmitOptions struct {
	// ID is empty for an event without one.
	ID        string
	Transient bool
	hasID     bool
}

// WithID replaces the earlier event of the same name and id in the message: a progress bar is one
// entry, not a hundred. Later readers see the newest data at the position of the first event. The id
// has 1 to 256 bytes of UTF-8 without control characters.
func WithID(id string) EmitOption {
	return func(o *EmitOptions) { o.ID, o.hasID = id, true }
}

// Transient sends the event to current readers only. It is not stored, and /messages omits it.
func Transient() EmitOption {
	return func(o *EmitOptions) { o.Transient = true }
}

// NewEmitOptions applies options. It returns Invalid (EVENT_INVALID) for an invalid id.
func NewEmitOptions(options ...EmitOption) (EmitOptions, error) {
	var o EmitOptions
	for _, option := range options {
		option(&o)
	}
	if o.hasID && !isValidKey(o.ID) {
		return EmitOptions{}, fault.New(fault.Invalid, "EVENT_INVALID",
			"the id %.80q of an event must have 1 to %d bytes of UTF-8 without control characters", o.ID, maxStateKey)
	}
	return o, nil
}
