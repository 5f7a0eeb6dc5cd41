package server

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
)

// The body of a message is its records in the encoding of SessionRecords, so readers receive the stored bytes.
// The numbers of the fields encoded or decoded by hand:
const (
	fieldRecords  = 1 // ReadResponse.records
	fieldSession  = 1 // SessionRecords.session_id
	fieldSequence = 1 // Record.sequence
	fieldChunk    = 2 // Record.chunks
	fieldEpoch    = 3 // SessionRecords.epoch
)

// maxFrameHeader is the largest size of a frame beside its SessionRecords.
const maxFrameHeader = 16

// bodyOf encodes records: TooLarge (RECORD_TOO_LARGE).
func (s *Server) bodyOf(records []*streamv2.Record) ([]byte, error) {
	body, err := proto.Marshal(&streamv2.SessionRecords{Records: records})
	if err != nil {
		return nil, recordInvalid("the records cannot be encoded: a text in them is not valid UTF-8")
	}
	if len(body) > s.recordBytes {
		return nil, fault.New(fault.TooLarge, "RECORD_TOO_LARGE",
			"the records take %d bytes, and at most %d are stored; send fewer chunks at once", len(body), s.recordBytes)
	}
	return body, nil
}

// splitRecord splits the first record with its tag off a body and returns the sequence of its last frame. An invalid
// body counts as one record without a sequence.
func splitRecord(body []byte) (record, rest []byte, last int64) {
	_, _, tag := protowire.ConsumeTag(body)
	if tag < 0 {
		return body, nil, 0
	}
	fields, n := protowire.ConsumeBytes(body[tag:])
	if n < 0 {
		return body, nil, 0
	}
	return body[:tag+n], body[tag+n:], lastOf(fields)
}

// lastOf returns the sequence of a record's last frame.
func lastOf(record []byte) int64 {
	var sequence uint64
	chunks := int64(0)
	for len(record) > 0 {
		number, kind, n := protowire.ConsumeTag(record)
		if n < 0 {
			return 0
		}
		record = record[n:]
		if number == fieldSequence {
			sequence, _ = protowire.ConsumeVarint(record)
		} else if number == fieldChunk {
			chunks++
		}
		if n = protowire.ConsumeFieldValue(number, kind, record); n < 0 {
			return 0
		}
		record = record[n:]
	}
	return int64(sequence) + max(chunks, 1) - 1 //nolint:gosec // a position
}

// recordsAfter returns the records of a body after the sequence.
func recordsAfter(body []byte, sequence int64) []byte {
	for len(body) > 0 {
		_, rest, last := splitRecord(body)
		if last > sequence {
			break
		}
		body = rest
	}
	return body
}

// withoutSuperseded returns the records of a body without superseded attempts.
func withoutSuperseded(attempts livelog.AttemptSurvey, session string, body []byte) []byte {
	if len(attempts) == 0 {
		return body
	}
	kept := make([]byte, 0, len(body))
	for len(body) > 0 {
		record, rest, last := splitRecord(body)
		if !attempts.Superseded(session, last) {
			kept = append(kept, record...)
		}
		body = rest
	}
	return kept
}

// frameOf builds a frame from the records of a body without decoding them.
func frameOf(session string, epoch int64, body []byte) *streamv2.ReadResponse {
	writer := uint64(epoch) //nolint:gosec // above 0
	size := protowire.SizeTag(fieldSession) + protowire.SizeBytes(len(session)) +
		len(body) + protowire.SizeTag(fieldEpoch) + protowire.SizeVarint(writer)
	frame := make([]byte, 0, size+maxFrameHeader)
	frame = protowire.AppendTag(frame, fieldRecords, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(size))
	frame = protowire.AppendTag(frame, fieldSession, protowire.BytesType)
	frame = protowire.AppendString(frame, session)
	frame = append(frame, body...)
	frame = protowire.AppendTag(frame, fieldEpoch, protowire.VarintType)
	frame = protowire.AppendVarint(frame, writer)
	response := &streamv2.ReadResponse{}
	response.ProtoReflect().SetUnknown(frame)
	return response
}

func caughtUpFrame() *streamv2.ReadResponse {
	return &streamv2.ReadResponse{Frame: &streamv2.ReadResponse_CaughtUp{CaughtUp: &streamv2.CaughtUp{}}}
}
