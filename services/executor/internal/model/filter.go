package model

import "encoding/json"

// IsComplete reports whether a model that stopped for this reason finished its reply. In an unfinished reply the last
// call may lack its arguments.
func (r FinishReason) IsComplete() bool { return r == FinishStop || r == FinishToolCalls }

// Normalize returns FinishOther for a reason outside the common set and every other reason unchanged, the zero
// reason included.
func (r FinishReason) Normalize() FinishReason {
	switch r {
	case "", FinishStop, FinishLength, FinishToolCalls, FinishContentFilter, FinishError, FinishOther:
		return r
	}
	return FinishOther
}

// FilterEvents returns a yield function for the events and errors of a provider. It removes key from errors. It
// also keeps a truncated call from ending with {}, because a tool might accept that: the CallEnd of a call
// without arguments waits until a further event shows whether the reply was truncated.
func FilterEvents(yield func(Event, error) bool, key string) func(Event, error) bool {
	f := &eventFilter{yield: yield, key: key, hasArguments: map[int]bool{}}
	return f.send
}

type eventFilter struct {
	yield        func(Event, error) bool
	key          string
	hasArguments map[int]bool // calls with at least part of their arguments
	pendingEnd   *CallEnd     // CallEnd of a call without arguments
}

func (f *eventFilter) send(e Event, err error) bool {
	if err != nil {
		return f.yield(nil, Redact(err, f.key))
	}
	switch e := e.(type) {
	case CallDelta:
		f.hasArguments[e.Index] = true
	case CallEnd:
		if f.hasArguments[e.Index] || string(e.Arguments) != noArguments {
			break
		}
		if !f.release(false) {
			return false
		}
		f.pendingEnd = &e
		return true
	case Usage:
		return f.yield(e, nil) // does not show whether the reply was truncated
	case Finish:
		if !f.release(!e.Reason.IsComplete()) {
			return false
		}
	}
	return f.release(false) && f.yield(e, nil)
}

// release yields the pending CallEnd. A truncated call gets the arguments "".
func (f *eventFilter) release(truncated bool) bool {
	if f.pendingEnd == nil {
		return true
	}
	end := *f.pendingEnd
	f.pendingEnd = nil
	if truncated {
		end.Arguments = json.RawMessage(`""`)
	}
	return f.yield(end, nil)
}
