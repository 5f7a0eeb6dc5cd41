package worker_test

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// fakeStream is the writing half of the stream service, in memory: fenced and
// numbered as the contract says.
type fakeStream struct {
	streamv1.UnimplementedStreamServiceServer

	mu       sync.Mutex
	sequence int64
	logs     map[string]*fakeLog
	maxChunk int // 0: no limit
	// gate, when set, is asked before each append takes effect.
	gate func(ctx context.Context, r *streamv1.AppendRequest) error
}

type fakeLog struct {
	epoch, number int64 // of the last record
	last          int64
	answer        proto.Message // to the last request
	records       []*streamv1.Record
	appends       int
}

func newFakeStream() *fakeStream { return &fakeStream{logs: map[string]*fakeLog{}} }

// records gives what stands in a session's stream.
func (f *fakeStream) records(sessionID string) []*streamv1.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if log := f.logs[sessionID]; log != nil {
		return append([]*streamv1.Record(nil), log.records...)
	}
	return nil
}

// admit checks epoch and number. repeated is the answer to a repetition. The
// caller holds mu.
func (f *fakeStream) admit(sessionID string, epoch, number int64) (log *fakeLog, repeated proto.Message, err error) {
	log = f.logs[sessionID]
	if log == nil {
		log = &fakeLog{}
		f.logs[sessionID] = log
	}
	switch {
	case epoch < log.epoch:
		return nil, nil, fault.New(fault.Stale, "WRITER_FENCED", "epoch %d", epoch)
	case epoch == log.epoch && number == log.number:
		return log, log.answer, nil
	case epoch == log.epoch && number != log.number+1, epoch > log.epoch && number != 1:
		return nil, nil, fault.New(fault.Stale, "APPEND_OUT_OF_ORDER", "number %d after %d", number, log.number)
	}
	return log, nil, nil
}

func (f *fakeStream) take(log *fakeLog, epoch, number int64) int64 {
	f.sequence += 3 // increasing, not dense
	log.epoch, log.number, log.last = epoch, number, f.sequence
	log.appends++
	return f.sequence
}

func (f *fakeStream) Append(ctx context.Context, r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
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
	log, repeated, err := f.admit(r.GetStream().GetSessionId(), r.GetEpoch(), r.GetNumber())
	if err != nil {
		return nil, err
	}
	if repeated != nil {
		return repeated.(*streamv1.AppendResponse), nil
	}
	record := &streamv1.Record{Sequence: f.take(log, r.GetEpoch(), r.GetNumber())}
	if chunk := r.GetChunk(); chunk != nil {
		record.Record = &streamv1.Record_Chunk{Chunk: proto.CloneOf(chunk)}
	} else {
		record.Record = &streamv1.Record_Terminal{Terminal: proto.CloneOf(r.GetTerminal())}
	}
	log.records = append(log.records, record)
	answer := &streamv1.AppendResponse{Sequence: record.GetSequence()}
	log.answer = answer
	return answer, nil
}

func (f *fakeStream) Rewind(_ context.Context, r *streamv1.RewindRequest) (*streamv1.RewindResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	log, repeated, err := f.admit(r.GetStream().GetSessionId(), r.GetEpoch(), r.GetNumber())
	if err != nil {
		return nil, err
	}
	if repeated != nil {
		return repeated.(*streamv1.RewindResponse), nil
	}
	answer := &streamv1.RewindResponse{}
	var standing []*streamv1.Record
	for _, record := range log.records {
		if record.GetSequence() > r.GetFromSequence() && record.GetChunk().GetStep() > r.GetStep() {
			answer.Voided++
			continue
		}
		standing = append(standing, record)
		answer.At = record.GetSequence()
		if record.GetSequence() > r.GetFromSequence() {
			answer.Kept = append(answer.Kept, record)
		}
	}
	log.records = standing
	answer.Sequence = f.take(log, r.GetEpoch(), r.GetNumber())
	log.answer = answer
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
