package chunklog

// Kind says what a record is.
type Kind uint8

// The kinds of records.
const (
	// Chunk is an event of a run.
	Chunk Kind = iota + 1
	// Terminal ends the stream of a run.
	Terminal
	// Marker is left by a rewind.
	Marker
)

// Status says where a stream stands.
type Status uint8

// The states of a stream. Active is the zero value.
const (
	Active Status = iota
	Paused
	Ended
	Failed
)

// Record is one record of a stream. Once it was handed to somebody it is not
// changed any more, its payload included.
type Record struct {
	Sequence uint64 // position in the log; 0 until it is stored
	// Prev is the sequence of the session's record that was the last when this
	// one was written, 0 for the first. It may have gone since.
	Prev    uint64
	Session string
	Epoch   int64
	Number  int64
	Step    int32 // of a chunk
	Run     string
	Kind    Kind
	Status  Status // of the stream after this record
	At      uint64 // of a marker: the last sequence before the voided ones
	// Anew, of a marker: it is the first record of its session in a log that has
	// lost what stood before (Prev), so nothing that readers have stands.
	Anew    bool
	Payload []byte
}

// Tail is what has to be known of a stream's last record to decide about the
// next one. The zero value is the tail of a stream without a record.
type Tail struct {
	Sequence uint64
	Epoch    int64
	Number   int64
	Run      string
	Kind     Kind
	Status   Status
}

// TailOf returns the tail of a stream whose last record is r.
func TailOf(r *Record) Tail {
	return Tail{Sequence: r.Sequence, Epoch: r.Epoch, Number: r.Number, Run: r.Run, Kind: r.Kind, Status: r.Status}
}
