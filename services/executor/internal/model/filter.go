package model

import "encoding/json"

// Whole reports whether a model that stopped for the reason has said all that it meant to
// say. The last call of another reply may be without its arguments.
func (r FinishReason) Whole() bool { return r == FinishStop || r == FinishToolCalls }

// Common gives the reason where it is one of the common set, and FinishOther for another
// one. The zero reason stays.
func (r FinishReason) Common() FinishReason {
	switch r {
	case "", FinishStop, FinishLength, FinishToolCalls, FinishContentFilter, FinishError, FinishOther:
		return r
	}
	return FinishOther
}

// FilterEvents gives what the events and errors of a provider go through to a consumer: no error
// holds the key, and the last call of a reply that was cut before the first of its
// arguments does not end with {}, which a tool might take. Its end is held back until it
// is known that more of the reply, or a whole one's finish, follows.
func FilterEvents(yield func(Event, error) bool, key string) func(Event, error) bool {
	o := &eventFilter{yield: yield, key: key, hasArguments: map[int]bool{}}
	return o.send
}

type eventFilter struct {
	yield        func(Event, error) bool
	key          string
	hasArguments map[int]bool // calls with arguments, or a part of them
	heldEnd      *CallEnd     // of a call without arguments
}

func (o *eventFilter) send(e Event, err error) bool {
	if err != nil {
		return o.yield(nil, Redact(err, o.key))
	}
	switch e := e.(type) {
	case CallDelta:
		o.hasArguments[e.Index] = true
	case CallEnd:
		if o.hasArguments[e.Index] || string(e.Arguments) != noArguments {
			break
		}
		if !o.release(false) {
			return false
		}
		o.heldEnd = &e
		return true
	case Usage:
		return o.yield(e, nil) // says nothing about what the model has to say
	case Finish:
		if !o.release(!e.Reason.Whole()) {
			return false
		}
	}
	return o.release(false) && o.yield(e, nil)
}

// release lets the end go that was held back; of a call that was cut it is that of a text.
func (o *eventFilter) release(cut bool) bool {
	if o.heldEnd == nil {
		return true
	}
	end := *o.heldEnd
	o.heldEnd = nil
	if cut {
		end.Arguments = json.RawMessage(`""`)
	}
	return o.yield(end, nil)
}
