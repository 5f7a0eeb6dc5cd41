package worker_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// fakeStream is the writing half of the stream service, in memory: fenced and
// numbered as the contract says, with a log that can lose everything.
type fakeStream struct {
	streamv1.UnimplementedStreamServiceServer

	mu       sync.Mutex
	sequence int64
	began    int64 // the sequence at which the log was begun
	logs     map[string]*fakeLog
	history  map[string][]*entry // everything that was ever told, in its order
	first    map[int64]writing   // the first request of each epoch
	behind   []string            // chunks that were refused: they came behind the end of their run
	maxChunk int                 // 0: no limit
	most     int                 // chunks that are taken of one request; 0: all
	maxKept  int                 // records in the answer to a rewind; 0: no limit
	retained int                 // how many of its last records a log keeps; 0: no limit
	// info, when set, may refuse to say where a log stands.
	info func() error
	// down refuses all writing.
	down atomic.Bool
	// gate, when set, is asked before each append takes effect.
	gate func(ctx context.Context, r *streamv1.AppendRequest) error
}

type fakeLog struct {
	epoch, number int64         // of the last record
	marker        bool          // the last record is one
	over          string        // the run that the last record has ended
	answer        proto.Message // to the last request
	entries       []*entry
}

// entry is a chunk, a terminal record or, as Rewound, a marker.
type entry struct {
	*streamv1.Record
	prev int64
}

func newFakeStream() *fakeStream {
	return &fakeStream{began: 1, logs: map[string]*fakeLog{}, history: map[string][]*entry{}, first: map[int64]writing{}}
}

// records gives what stands in a session's stream.
func (f *fakeStream) records(sessionID string) []*streamv1.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	var standing []*streamv1.Record
	if log := f.logs[sessionID]; log != nil {
		for _, e := range log.entries {
			if e.GetRewound() == nil {
				standing = append(standing, e.Record)
			}
		}
	}
	return standing
}

// view gives what a reader has that was there all the time.
func (f *fakeStream) view(sessionID string) []*streamv1.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	var seen []*streamv1.Record
	for _, e := range f.history[sessionID] {
		if marker := e.GetRewound(); marker != nil {
			seen = slices.DeleteFunc(seen, func(r *streamv1.Record) bool { return r.GetSequence() > marker.GetAt() })
			continue
		}
		seen = append(seen, e.Record)
	}
	return seen
}

// lose begins the log anew, as after a power cut.
func (f *fakeStream) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loseLocked()
}

func (f *fakeStream) loseLocked() {
	clear(f.logs)
	f.sequence += 1000
	f.began = f.sequence
}

// writing is what every writing request says.
type writing interface {
	proto.Message
	GetStream() *streamv1.StreamRef
	GetEpoch() int64
	GetNumber() int64
	GetExpectedLastSequence() int64
}

// admit checks epoch and number. repeated is the answer to a repetition. lost
// says that the log does not have what the writer knows. The caller holds mu.
func (f *fakeStream) admit(r writing, marker bool) (log *fakeLog, repeated proto.Message, lost bool, err error) {
	log = f.logs[r.GetStream().GetSessionId()]
	if log == nil {
		log = &fakeLog{}
		f.logs[r.GetStream().GetSessionId()] = log
	}
	if f.first[r.GetEpoch()] == nil {
		f.first[r.GetEpoch()] = proto.Clone(r).(writing)
	}
	epoch, number, former := r.GetEpoch(), r.GetNumber(), r.GetExpectedLastSequence()
	switch {
	case len(log.entries) == 0 && former > 0:
		return log, nil, former < f.began, nil
	case epoch < log.epoch:
		return nil, nil, false, fault.New(fault.Stale, "WRITER_FENCED", "epoch %d", epoch)
	case epoch == log.epoch && number == log.number && marker == log.marker:
		return log, log.answer, false, nil
	case epoch == log.epoch && number != log.number+1, epoch > log.epoch && number != 1:
		return nil, nil, false, fault.New(fault.Stale, "APPEND_OUT_OF_ORDER", "number %d after %d", number, log.number)
	}
	return log, nil, false, nil
}

// take stores a record behind the last one. The caller holds mu.
func (f *fakeStream) take(log *fakeLog, r writing, record *streamv1.Record, answer proto.Message) {
	log.epoch, log.number, log.marker, log.answer = r.GetEpoch(), r.GetNumber(), record.GetRewound() != nil, answer
	e := &entry{Record: record, prev: log.tail()}
	log.entries = append(log.entries, e)
	if f.retained > 0 {
		log.entries = log.entries[max(0, len(log.entries)-f.retained):]
	}
	id := r.GetStream().GetSessionId()
	f.history[id] = append(f.history[id], e)
}

func (l *fakeLog) tail() int64 {
	if len(l.entries) == 0 {
		return 0
	}
	return l.entries[len(l.entries)-1].GetSequence()
}

// next gives a sequence: increasing, not dense.
func (f *fakeStream) next() int64 {
	f.sequence += 3
	return f.sequence
}

var errDown = fault.New(fault.Unavailable, "UNAVAILABLE", "the stream tier is down")

// Append takes the chunks of a request one by one, as far as it comes.
func (f *fakeStream) Append(ctx context.Context, r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
	rest := append([]*eventv1.Chunk{r.GetChunk()}, r.GetMore()...)
	for _, chunk := range r.GetMore() {
		if f.maxChunk > 0 && proto.Size(chunk) > f.maxChunk {
			return nil, fault.New(fault.Invalid, "CHUNK_TOO_LARGE", "too large")
		}
	}
	if f.most > 0 {
		rest = rest[:min(len(rest), f.stored(r)+f.most)]
	}
	one := proto.CloneOf(r)
	one.More = nil
	one.Number += int64(f.stored(r))
	answer := &streamv1.AppendResponse{}
	var refused error
	for refused == nil && one.GetNumber() < r.GetNumber()+int64(len(rest)) {
		if r.GetTerminal() == nil {
			one.Record = &streamv1.AppendRequest_Chunk{Chunk: rest[one.GetNumber()-r.GetNumber()]}
		}
		var next *streamv1.AppendResponse
		if next, refused = f.appendOne(ctx, one); refused == nil {
			answer.Sequence, answer.Stored = next.GetSequence(), int32(one.GetNumber()-r.GetNumber()+1) //nolint:gosec // 64 at most
			one.Number, one.ExpectedLastSequence = one.GetNumber()+1, next.GetSequence()
		}
	}
	if answer.GetStored() == 0 {
		return answer, refused
	}
	return answer, nil // the request that brings the rest again is told why
}

// stored says how many records of the request stand before the last one that does.
func (f *fakeStream) stored(r *streamv1.AppendRequest) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.logs[r.GetStream().GetSessionId()]
	if log == nil || log.marker || len(log.entries) == 0 || log.epoch != r.GetEpoch() {
		return 0
	}
	before := log.number - r.GetNumber()
	if before < 0 || before > int64(len(r.GetMore())) {
		return 0
	}
	return int(before)
}

func (f *fakeStream) appendOne(ctx context.Context, r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
	if f.down.Load() {
		return nil, errDown
	}
	if f.gate != nil {
		if err := f.gate(ctx, r); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.maxChunk > 0 && proto.Size(r) > f.maxChunk {
		return nil, fault.New(fault.Invalid, "CHUNK_TOO_LARGE", "too large")
	}
	log, repeated, lost, err := f.admit(r, false)
	switch {
	case err != nil:
		return nil, err
	case lost:
		return nil, fault.New(fault.Stale, "LOG_RENEWED", "the log begins at %d", f.began)
	case repeated != nil:
		return repeated.(*streamv1.AppendResponse), nil
	}
	record := &streamv1.Record{}
	if chunk := r.GetChunk(); chunk != nil {
		if log.over == chunk.GetAgentId() {
			f.behind = append(f.behind, chunk.Type())
			return nil, fault.New(fault.Conflict, "STREAM_NOT_ACTIVE", "the run has ended")
		}
		log.over = ""
		record.Record = &streamv1.Record_Chunk{Chunk: proto.CloneOf(chunk)}
	} else {
		log.over = r.GetTerminal().GetRunId()
		record.Record = &streamv1.Record_Terminal{Terminal: proto.CloneOf(r.GetTerminal())}
	}
	record.Sequence = f.next()
	answer := &streamv1.AppendResponse{Sequence: record.GetSequence()}
	f.take(log, r, record, answer)
	return answer, nil
}

func (f *fakeStream) Rewind(_ context.Context, r *streamv1.RewindRequest) (*streamv1.RewindResponse, error) {
	if f.down.Load() {
		return nil, errDown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	log, repeated, lost, err := f.admit(r, true)
	if err != nil {
		return nil, err
	}
	if repeated != nil {
		return repeated.(*streamv1.RewindResponse), nil
	}
	answer := &streamv1.RewindResponse{At: log.tail()}
	if answer.At == 0 && !lost {
		answer.At = r.GetExpectedLastSequence() // retention has taken it
	}
	var standing []*entry
	for _, e := range log.entries {
		after := e.GetSequence() > r.GetFromSequence()
		switch {
		case after && e.GetChunk() != nil && (answer.Voided > 0 || e.GetChunk().GetStep() > r.GetStep()):
			if answer.Voided == 0 {
				answer.At = e.prev
			}
			if answer.At > r.GetFromSequence() && len(standing) == 0 {
				answer.At = r.GetFromSequence() // retention has taken what lies between
			}
			answer.Voided++
			continue
		case after && e.GetRewound() == nil:
			answer.Kept = append(answer.Kept, e.Record)
		}
		standing = append(standing, e)
	}
	if f.maxKept > 0 && len(answer.Kept) > f.maxKept {
		return nil, fault.New(fault.TooLarge, "REWIND_TOO_LARGE", "%d records", len(answer.Kept))
	}
	log.entries = standing
	if answer.Voided > 0 || log.over != r.GetRunId() {
		log.over = ""
	}
	answer.Sequence = f.next()
	f.mark(log, r, answer.GetSequence(), answer.GetAt(), answer)
	return answer, nil
}

func (f *fakeStream) mark(log *fakeLog, r writing, sequence, at int64, answer proto.Message) {
	marker := &streamv1.Record_Rewound{Rewound: &streamv1.RewoundFrame{Sequence: sequence, At: at}}
	f.take(log, r, &streamv1.Record{Sequence: sequence, Record: marker}, answer)
}

func (f *fakeStream) Reset(_ context.Context, r *streamv1.ResetRequest) (*streamv1.ResetResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	log, repeated, _, err := f.admit(r, true)
	if err != nil {
		return nil, err
	}
	if repeated != nil {
		return repeated.(*streamv1.ResetResponse), nil
	}
	log.entries, log.over = nil, ""
	answer := &streamv1.ResetResponse{Sequence: f.next()}
	f.mark(log, r, answer.GetSequence(), 0, answer)
	return answer, nil
}

func (f *fakeStream) GetInfo(_ context.Context, r *streamv1.GetInfoRequest) (*streamv1.GetInfoResponse, error) {
	if f.info != nil {
		if err := f.info(); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.logs[r.GetStream().GetSessionId()]
	if log == nil || len(log.entries) == 0 {
		return nil, fault.New(fault.NotFound, "STREAM_NOT_FOUND", "no record")
	}
	return &streamv1.GetInfoResponse{FirstSequence: log.entries[0].GetSequence(), LatestSequence: log.tail(), Began: f.began}, nil
}

// List gives what stands after the cursor, and the markers that void what came
// before it.
func (f *fakeStream) List(_ context.Context, r *streamv1.ListRequest) (*streamv1.ListResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.logs[r.GetStream().GetSessionId()]
	if log == nil || len(log.entries) == 0 {
		return nil, fault.New(fault.NotFound, "STREAM_NOT_FOUND", "no record")
	}
	answer := &streamv1.ListResponse{LatestSequence: log.tail()}
	for _, e := range log.entries {
		told := e.GetRewound() == nil || e.GetRewound().GetAt() < r.GetFromSequence()
		if e.GetSequence() > r.GetFromSequence() && told && len(answer.Records) < int(r.GetLimit()) {
			answer.Records = append(answer.Records, e.Record)
		}
	}
	return answer, nil
}

// texts joins the text deltas of the records.
func texts(records []*streamv1.Record) string {
	var all string
	for _, r := range records {
		all += r.GetChunk().GetTextDelta().GetDelta()
	}
	return all
}

// types gives what the records are, deltas that stand together as one.
func types(records []*streamv1.Record) []string {
	var list []string
	for _, r := range records {
		name := r.GetChunk().Type()
		if t := r.GetTerminal(); t != nil {
			name = "end"
			if t.GetFail() != nil {
				name = "fail"
			}
		}
		if len(list) > 0 && list[len(list)-1] == name && isDelta(r.GetChunk()) {
			continue
		}
		list = append(list, name)
	}
	return list
}

func isDelta(chunk *eventv1.Chunk) bool {
	return chunk.GetTextDelta() != nil || chunk.GetThinking() != nil || chunk.GetToolArgStreamDelta() != nil
}
