package session

import "slices"

// Journal is the record of the step in flight.
type Journal struct {
	Step    int32
	Plan    []byte   // opaque
	CallIDs []string // of the plan, in its order
	Usage   []Usage
	Ops     []StateOp // of the plan; the commit repeats them among its own
	Results []Result  // in the order of recording
}

// Result is the recorded result of one call.
type Result struct {
	CallID string
	Body   []byte
	Ops    []StateOp
	Stored []StoreMark // writes to the private store, which were stored with the result
	Usage  []Usage
	// Context has the rows of context that the call has added, opaque; empty for none.
	Context []byte
}

func (j *Journal) hasResult(callID string) bool {
	return slices.ContainsFunc(j.Results, func(r Result) bool { return r.CallID == callID })
}

// HasStateWrites reports whether a result of the journal has state writes. j may be nil.
func (j *Journal) HasStateWrites() bool { return len(j.resultOps()) > 0 }

// resultOps returns the state writes of the results in the plan's order of calls.
func (j *Journal) resultOps() []StateOp {
	if j == nil {
		return nil
	}
	var ops []StateOp
	for _, id := range j.CallIDs {
		for _, r := range j.Results {
			if r.CallID == id {
				ops = append(ops, r.Ops...)
			}
		}
	}
	return ops
}

// usage returns the usage of the plan, then of the results in the plan's order of calls.
func (j *Journal) usage() []Usage {
	if j == nil {
		return nil
	}
	usage := slices.Clone(j.Usage)
	for _, id := range j.CallIDs {
		for _, r := range j.Results {
			if r.CallID == id {
				usage = append(usage, r.Usage...)
			}
		}
	}
	return usage
}

// mayOpen reports whether the step in flight may open the call: it is planned, and has no result yet. isLater is as in
// ExplainMissingCall.
func (j *Journal) mayOpen(callID string, isLater func(body []byte) bool) bool {
	return j != nil && slices.Contains(j.CallIDs, callID) && !slices.ContainsFunc(j.Results, func(r Result) bool {
		return r.CallID == callID && (isLater == nil || !isLater(r.Body))
	})
}

// bytes returns the size of a result in a claim.
func (r Result) bytes() int {
	return len(r.Body) + len(r.Context) + OpsBytes(r.Ops) + UsageBytes(r.Usage)
}

// bytes returns the size of the journal in a claim.
func (j *Journal) bytes() int {
	size := len(j.Plan) + OpsBytes(j.Ops) + UsageBytes(j.Usage)
	for _, r := range j.Results {
		size += r.bytes()
	}
	return size
}

// OpsBytes returns the size of the keys and values.
func OpsBytes(ops []StateOp) (n int) {
	for _, op := range ops {
		n += len(op.Key) + len(op.Value)
	}
	return n
}

// UsageBytes estimates how many bytes the entries take in a claim. It is never too low.
func UsageBytes(usage []Usage) (n int) {
	const numbers = 80 // five of at most ten bytes, and the framing
	for _, u := range usage {
		n += numbers + len(u.Model) + len(u.Tool) + len(u.Type) + len(u.Name) + len(u.Source)
	}
	return n
}
