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

// Out gives what the events and errors of a provider go through to a consumer: no error
// holds the key, and the last call of a reply that was cut before the first of its
// arguments does not end with {}, which a tool might take. Its end is held back until it
// is known that more of the reply, or a whole one's finish, follows.
func Out(yield func(Event, error) bool, key string) func(Event, error) bool {
	o := &out{yield: yield, key: key, argued: map[int]bool{}}
	return o.say
}

type out struct {
	yield  func(Event, error) bool
	key    string
	argued map[int]bool // calls with arguments, or a part of them
	held   *CallEnd     // of a call without arguments
}

func (o *out) say(e Event, err error) bool {
	if err != nil {
		return o.yield(nil, Redact(err, o.key))
	}
	switch e := e.(type) {
	case CallDelta:
		o.argued[e.Index] = true
	case CallEnd:
		if o.argued[e.Index] || string(e.Arguments) != noArguments {
			break
		}
		if !o.release(false) {
			return false
		}
		o.held = &e
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
func (o *out) release(cut bool) bool {
	if o.held == nil {
		return true
	}
	end := *o.held
	o.held = nil
	if cut {
		end.Arguments = json.RawMessage(`""`)
	}
	return o.yield(end, nil)
}
