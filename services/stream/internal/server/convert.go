package server

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// maxIDBytes is the length of the longest id.
const maxIDBytes = 256

// checkID answers Invalid with the reason.
func checkID(reason, name, id string) error {
	var flaw string
	switch {
	case id == "":
		flaw = "is empty"
	case len(id) > maxIDBytes:
		flaw = "is longer than 256 bytes"
	case !utf8.ValidString(id):
		flaw = "is not valid UTF-8"
	case strings.ContainsFunc(id, unicode.IsControl):
		flaw = "holds a control character"
	default:
		return nil
	}
	return fault.New(fault.Invalid, reason, "%s %s", name, flaw)
}

// streamOf checks a reference to a session's log: Invalid (ID_INVALID).
func streamOf(ref *streamv2.StreamRef) (log.Stream, error) {
	s := log.Stream{Tenant: ref.GetTenant(), Root: ref.GetRootSessionId(), Session: ref.GetSessionId()}
	return s, cmp.Or(
		checkID("ID_INVALID", "stream.tenant", s.Tenant),
		checkID("ID_INVALID", "stream.root_session_id", s.Root),
		checkID("ID_INVALID", "stream.session_id", s.Session),
	)
}

// scopeOf checks what a reader wants to read: Invalid (ID_INVALID, SEQUENCE_INVALID).
func scopeOf(r *streamv2.ReadRequest) (log.Scope, error) {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return log.Scope{}, err
	}
	if r.GetFamily() && stream.Session != stream.Root {
		return log.Scope{}, fault.New(fault.Invalid, "ID_INVALID", "a family is read from its root: session_id and root_session_id differ")
	}
	if !position.Valid(r.GetFromSequence()) {
		return log.Scope{}, fault.New(fault.Invalid, "SEQUENCE_INVALID", "from_sequence is %d, which is no position", r.GetFromSequence())
	}
	return log.Scope{Stream: stream, Family: r.GetFamily()}, nil
}

// requestOf checks an append and makes what the rules look at: Invalid (RECORD_INVALID,
// CHUNK_INVALID, ID_INVALID).
func requestOf(r *streamv2.AppendRequest) (livelog.Request, error) {
	record := r.GetRecord()
	request := livelog.Request{
		Epoch: r.GetEpoch(), After: r.GetAfter(), Sequence: record.GetSequence(), Chunks: len(record.GetChunks()),
	}
	if attempt := record.GetAttempt(); attempt != nil {
		request.Attempt = &livelog.Attempt{Stands: attempt.GetStands()}
		if err := checkID("ID_INVALID", "attempt.run_id", attempt.GetRunId()); err != nil {
			return request, err
		}
	}
	if boundary := record.GetBoundary(); boundary != nil {
		request.Boundary = &livelog.Boundary{
			Last: boundary.GetLast(), Committed: boundary.GetStepCommitted() != nil, Ended: boundary.GetRunEnded() != nil,
		}
		if err := checkBoundary(boundary); err != nil {
			return request, err
		}
	}
	for _, chunk := range record.GetChunks() {
		if err := checkChunk(chunk); err != nil {
			return request, err
		}
	}
	return request, livelog.Validate(request)
}

func checkChunk(c *eventv1.Chunk) error {
	if c.GetStep() < 0 {
		return fault.New(fault.Invalid, "CHUNK_INVALID", "chunk.step is %d; it is 0 or more", c.GetStep())
	}
	return checkID("CHUNK_INVALID", "chunk.agent_id", c.GetAgentId())
}

func checkBoundary(b *streamv2.Boundary) error {
	for _, chunk := range []*eventv1.Chunk{b.GetStepCommitted(), b.GetRunEnded()} {
		if chunk == nil {
			continue
		}
		if err := checkChunk(chunk); err != nil {
			return err
		}
	}
	end := b.GetEnd()
	_, known := streamv2.EndStatus_name[int32(end.GetEnd().GetStatus())]
	switch {
	case (b.GetRunEnded() == nil) != (end == nil):
		return recordInvalid("boundary.run_ended and boundary.end come together")
	case end == nil:
		return nil
	case end.GetFail() == nil && (!known || end.GetEnd().GetStatus() == 0):
		return recordInvalid("boundary.end has neither fail nor an end with a known status")
	}
	return checkID("ID_INVALID", "boundary.end.run_id", end.GetRunId())
}

func recordInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "RECORD_INVALID", format, args...)
}

// bodyOf encodes a record: TooLarge (RECORD_TOO_LARGE).
func (s *Server) bodyOf(r *streamv2.Record) ([]byte, error) {
	body, err := proto.Marshal(r)
	if err != nil {
		return nil, recordInvalid("the record cannot be encoded: a text in it is not valid UTF-8")
	}
	if len(body) > s.recordBytes {
		return nil, fault.New(fault.TooLarge, "RECORD_TOO_LARGE",
			"the record takes %d bytes, and at most %d are stored; send fewer chunks at once", len(body), s.recordBytes)
	}
	return body, nil
}

// frameOf makes the frame of a message. The record is not decoded: its bytes, as they were
// appended, are the field of the frame.
func frameOf(m *log.Message) *streamv2.ReadResponse {
	var session []byte
	session = protowire.AppendTag(session, sessionField, protowire.BytesType)
	session = protowire.AppendString(session, m.Session)
	session = protowire.AppendTag(session, recordField, protowire.BytesType)
	session = protowire.AppendVarint(session, uint64(len(m.Body)))
	frame := make([]byte, 0, len(session)+len(m.Body)+16)
	frame = protowire.AppendTag(frame, frameField, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(len(session)+len(m.Body)))
	frame = append(append(frame, session...), m.Body...)
	response := &streamv2.ReadResponse{}
	response.ProtoReflect().SetUnknown(frame)
	return response
}

// The numbers of the fields ReadResponse.record, SessionRecord.session_id and
// SessionRecord.record.
const (
	frameField   = 1
	sessionField = 1
	recordField  = 2
)

func caughtUpFrame() *streamv2.ReadResponse {
	return &streamv2.ReadResponse{Frame: &streamv2.ReadResponse_CaughtUp{CaughtUp: &streamv2.CaughtUp{}}}
}
