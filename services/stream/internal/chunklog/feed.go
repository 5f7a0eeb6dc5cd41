package chunklog

// Arrival says how a record of the live feed fits to those before it.
type Arrival uint8

// The arrivals.
const (
	// InOrder: it is the next one.
	InOrder Arrival = iota
	// Again: it has been seen before.
	Again
	// AfterGap: records between the last one seen and this one are missing.
	AfterGap
)

// Feed watches the live feed of a log whose sequences rise by one for one
// subscriber. The zero value has seen nothing and expects sequence 1.
type Feed struct {
	Seen uint64 // the last sequence that arrived
	last uint64 // what Behind was told before
}

// Arrive notes the record with this sequence.
func (f *Feed) Arrive(sequence uint64) Arrival {
	switch {
	case sequence <= f.Seen:
		return Again
	case sequence == f.Seen+1:
		f.Seen = sequence
		return InOrder
	}
	f.Seen = sequence
	return AfterGap
}

// Check compares the feed with the log's last sequence and reports whether the
// feed has lost something that no later record has revealed. A record that is
// still on its way looks lost for a moment, so it takes two checks to say so.
// A log that ends below what was seen was made anew; that is a loss, too.
func (f *Feed) Check(last uint64) bool {
	noted := f.last
	f.last = last
	switch {
	case last < f.Seen && last < noted:
		f.Seen = last
		return true
	case f.Seen < noted && noted <= last:
		f.Seen = noted
		return true
	}
	return false
}
