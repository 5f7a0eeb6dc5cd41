package server

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// wire converts a sequence: uint64 inside, int64 on the wire. The log gives
// them below 2^53.
func wire(sequence uint64) int64 { return int64(sequence) } //nolint:gosec // see above

// endStatus is what the end of a run makes of its stream.
var endStatus = map[streamv1.EndStatus]chunklog.Status{
	streamv1.EndStatus_END_STATUS_COMPLETED:   chunklog.Ended,
	streamv1.EndStatus_END_STATUS_PAUSED:      chunklog.Paused,
	streamv1.EndStatus_END_STATUS_INTERRUPTED: chunklog.Ended,
}

var streamStatus = map[chunklog.Status]streamv1.StreamStatus{
	chunklog.Active: streamv1.StreamStatus_STREAM_STATUS_ACTIVE,
	chunklog.Paused: streamv1.StreamStatus_STREAM_STATUS_PAUSED,
	chunklog.Ended:  streamv1.StreamStatus_STREAM_STATUS_ENDED,
	chunklog.Failed: streamv1.StreamStatus_STREAM_STATUS_FAILED,
}

// Limits of a request with several chunks.
const (
	maxMore       = 63
	maxBatchBytes = 256 << 10
)

// recordsOf makes the records of an append, each with a payload of limit bytes at
// most: all of them, or none.
func recordsOf(r *streamv1.AppendRequest, limit int) ([]*chunklog.Record, error) {
	if err := checkBatch(r); err != nil {
		return nil, err
	}
	first, err := recordOf(r, limit)
	if err != nil {
		return nil, err
	}
	records := make([]*chunklog.Record, 1, 1+len(r.GetMore()))
	records[0] = first
	for i, chunk := range r.GetMore() {
		record := &chunklog.Record{Epoch: r.GetEpoch(), Number: r.GetNumber() + int64(i) + 1}
		if err := putChunk(record, chunk, limit); err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// recordOf makes the first record of an append.
func recordOf(r *streamv1.AppendRequest, limit int) (*chunklog.Record, error) {
	record := &chunklog.Record{Epoch: r.GetEpoch(), Number: r.GetNumber()}
	switch body := r.GetRecord().(type) {
	case *streamv1.AppendRequest_Chunk:
		return record, putChunk(record, body.Chunk, limit)
	case *streamv1.AppendRequest_Terminal:
		return record, putTerminal(record, body.Terminal, limit)
	}
	return nil, chunkInvalid("the request holds neither a chunk nor a terminal record")
}

func putChunk(record *chunklog.Record, c *eventv1.Chunk, limit int) error {
	if err := checkChunk(c); err != nil {
		return err
	}
	if size := proto.Size(c); size > limit {
		return fault.New(fault.TooLarge, "CHUNK_TOO_LARGE",
			"the chunk takes %d bytes, and at most %d are stored; split it", size, limit)
	}
	payload, err := proto.Marshal(c)
	if err != nil {
		return chunkInvalid("the chunk cannot be encoded: a text in it is not valid UTF-8")
	}
	record.Kind, record.Run, record.Step, record.Payload = chunklog.Chunk, c.GetAgentId(), c.GetStep(), payload
	return nil
}

func putTerminal(record *chunklog.Record, t *streamv1.Terminal, limit int) error {
	if err := checkTerminal(t); err != nil {
		return err
	}
	payload, err := proto.Marshal(shorten(t, limit))
	if err != nil {
		return chunkInvalid("the terminal record cannot be encoded: a text in it is not valid UTF-8")
	}
	record.Kind, record.Run, record.Payload = chunklog.Terminal, t.GetRunId(), payload
	record.Status = chunklog.Failed
	if end := t.GetEnd(); end != nil {
		record.Status = endStatus[end.GetStatus()]
	}
	return nil
}

// The texts of a shortened failure: enough to be understood, and small beside
// every sensible limit.
const (
	shortErrorBytes = 4 << 10
	shortCodeBytes  = 256
)

// omittedOutput names the output in End.omitted.
const omittedOutput = "output"

// shorten returns t, or a copy that leaves out what is too large: the end of a
// run is never refused.
func shorten(t *streamv1.Terminal, limit int) *streamv1.Terminal {
	if proto.Size(t) <= limit {
		return t
	}
	short := &streamv1.Terminal{RunId: t.GetRunId()}
	switch outcome := t.GetOutcome().(type) {
	case *streamv1.Terminal_End:
		short.Outcome = &streamv1.Terminal_End{End: &streamv1.End{
			Status:  outcome.End.GetStatus(),
			Usage:   outcome.End.GetUsage(),
			Omitted: []string{omittedOutput},
		}}
	case *streamv1.Terminal_Fail:
		short.Outcome = &streamv1.Terminal_Fail{Fail: &streamv1.Fail{
			Error:       prefix(outcome.Fail.GetError(), shortErrorBytes),
			Code:        prefix(outcome.Fail.GetCode(), shortCodeBytes),
			Recoverable: outcome.Fail.GetRecoverable(),
		}}
	}
	return short
}

// prefix returns at most limit bytes of text, whole characters only.
func prefix(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// putMarker gives a marker its payload: what its frame says beyond the record.
func putMarker(record *chunklog.Record, reason string) error {
	payload, err := proto.Marshal(&streamv1.RewoundFrame{Reason: reason})
	if err != nil {
		return chunkInvalid("the reason is not valid UTF-8")
	}
	record.Payload = payload
	return nil
}

// frameOf makes the frame of a record that a reader is told.
func frameOf(r *chunklog.Record) (*streamv1.ReadResponse, error) {
	switch r.Kind {
	case chunklog.Terminal:
		return terminalFrame(r)
	case chunklog.Marker:
		return rewoundFrame(r)
	case chunklog.Chunk:
	}
	return chunkFrame(r)
}

func chunkFrame(r *chunklog.Record) (*streamv1.ReadResponse, error) {
	chunk := &eventv1.Chunk{}
	if err := decode(r, chunk); err != nil {
		return nil, err
	}
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Chunk{Chunk: &streamv1.ChunkFrame{
		Sequence: wire(r.Sequence), Chunk: chunk, SessionId: r.Session,
	}}}, nil
}

func terminalFrame(r *chunklog.Record) (*streamv1.ReadResponse, error) {
	terminal := &streamv1.Terminal{}
	if err := decode(r, terminal); err != nil {
		return nil, err
	}
	if fail := terminal.GetFail(); fail != nil {
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Fail{Fail: &streamv1.FailFrame{
			Sequence: wire(r.Sequence), RunId: terminal.GetRunId(), Fail: fail, SessionId: r.Session,
		}}}, nil
	}
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_End{End: &streamv1.EndFrame{
		Sequence: wire(r.Sequence), RunId: terminal.GetRunId(), End: terminal.GetEnd(), SessionId: r.Session,
	}}}, nil
}

func rewoundFrame(r *chunklog.Record) (*streamv1.ReadResponse, error) {
	frame, err := rewoundOf(r)
	if err != nil {
		return nil, err
	}
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Rewound{Rewound: frame}}, nil
}

func rewoundOf(r *chunklog.Record) (*streamv1.RewoundFrame, error) {
	frame := &streamv1.RewoundFrame{}
	if err := decode(r, frame); err != nil {
		return nil, err
	}
	frame.Sequence, frame.At, frame.RunId, frame.SessionId = wire(r.Sequence), wire(r.At), r.Run, r.Session
	return frame, nil
}

func caughtUpFrame(cursor uint64) *streamv1.ReadResponse {
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_CaughtUp{
		CaughtUp: &streamv1.CaughtUpFrame{Sequence: wire(cursor)},
	}}
}

func truncatedFrame(floor uint64) *streamv1.ReadResponse {
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Truncated{
		Truncated: &streamv1.TruncatedFrame{Floor: wire(floor)},
	}}
}

// entryOf makes the record that answers hold.
func entryOf(r *chunklog.Record) (*streamv1.Record, error) {
	entry := &streamv1.Record{Sequence: wire(r.Sequence), SessionId: r.Session}
	switch r.Kind {
	case chunklog.Terminal:
		terminal := &streamv1.Terminal{}
		entry.Record = &streamv1.Record_Terminal{Terminal: terminal}
		return entry, decode(r, terminal)
	case chunklog.Marker:
		rewound, err := rewoundOf(r)
		entry.Record = &streamv1.Record_Rewound{Rewound: rewound}
		return entry, err
	case chunklog.Chunk:
	}
	chunk := &eventv1.Chunk{}
	entry.Record = &streamv1.Record_Chunk{Chunk: chunk}
	return entry, decode(r, chunk)
}

func decode(r *chunklog.Record, into proto.Message) error {
	if err := proto.Unmarshal(r.Payload, into); err != nil {
		return fmt.Errorf("decode record %d: %w", r.Sequence, err)
	}
	return nil
}

// standOf says what the heart has to know of where a stream stands.
func standOf(info bus.Info) chunklog.Stand {
	return chunklog.Stand{First: info.First, Floor: info.Floor, Top: info.Top, Began: info.Began}
}

func infoOf(last *chunklog.Record, info bus.Info) *streamv1.GetInfoResponse {
	return &streamv1.GetInfoResponse{
		Status:         streamStatus[last.Status],
		FirstSequence:  wire(info.First),
		LatestSequence: wire(last.Sequence),
		TotalChunks:    info.Count,
		Epoch:          last.Epoch,
		Began:          wire(info.Began),
	}
}
