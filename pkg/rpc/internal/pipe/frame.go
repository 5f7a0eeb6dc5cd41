package pipe

import (
	"fmt"
	"time"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of a frame, a call and an answer: see the package comment.
const (
	frameCalls     protowire.Number = 1
	frameAnswers   protowire.Number = 2
	frameCancelled protowire.Number = 3
	frameEnding    protowire.Number = 4

	callNumber      protowire.Number = 1
	callMethod      protowire.Number = 2
	callTimeout     protowire.Number = 3
	callTraceparent protowire.Number = 4
	callTracestate  protowire.Number = 5
	callPayload     protowire.Number = 6

	answerNumber  protowire.Number = 1
	answerPayload protowire.Number = 2
	answerStatus  protowire.Number = 3
)

// call is an entry for the server. Its payload points into the frame's buffer.
type call struct {
	number      uint64
	method      uint64
	timeout     time.Duration
	traceparent string
	tracestate  string
	payload     []byte
}

// answer is an entry for the client. Its payload and status point into the frame's buffer.
type answer struct {
	number  uint64
	payload []byte
	status  []byte
}

// head appends the entry without the payload's bytes.
func (c call) head(b []byte, payload int) []byte {
	size := sizeVarint(callNumber, c.number) + sizeVarint(callMethod, c.method) + sizeVarint(callTimeout, uint64(c.timeout.Microseconds())) +
		sizeText(callTraceparent, len(c.traceparent)) + sizeText(callTracestate, len(c.tracestate)) + sizeText(callPayload, payload)
	b = protowire.AppendTag(b, frameCalls, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = appendVarint(b, callNumber, c.number)
	b = appendVarint(b, callMethod, c.method)
	b = appendVarint(b, callTimeout, uint64(c.timeout.Microseconds()))
	b = append(appendText(b, callTraceparent, len(c.traceparent)), c.traceparent...)
	b = append(appendText(b, callTracestate, len(c.tracestate)), c.tracestate...)
	return appendText(b, callPayload, payload)
}

// head appends the entry without the bytes of the field, its payload or its status.
func (a answer) head(b []byte, field protowire.Number, length int) []byte {
	b = protowire.AppendTag(b, frameAnswers, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeVarint(answerNumber, a.number)+sizeText(field, length)))
	b = appendVarint(b, answerNumber, a.number)
	return appendText(b, field, length)
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendText(b []byte, field protowire.Number, length int) []byte {
	if length == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(length))
}

func sizeVarint(field protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeVarint(v)
}

func sizeText(field protowire.Number, length int) int {
	if length == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(length)
}

// frame is one message of the stream, before encoding or after decoding.
type frame struct {
	out mem.BufferSlice // to send: whole entries
	in  mem.Buffer      // received; its reader frees it
}

// reader receives the entries of a frame. They point into the frame's buffer.
type reader struct {
	call      func(call)
	answer    func(answer)
	cancelled func(number uint64)
	ending    func()
}

// read passes the entries of a frame to r, in order. Entries unknown to r are skipped, like fields of a later
// version.
func (f *frame) read(r reader) error {
	return fields(f.in.ReadOnlyData(), func(field protowire.Number, v uint64, text []byte) (err error) {
		switch {
		case field == frameCalls && r.call != nil:
			var c call
			if c, err = readCall(text); err == nil {
				r.call(c)
			}
		case field == frameAnswers && r.answer != nil:
			var a answer
			if a, err = readAnswer(text); err == nil {
				r.answer(a)
			}
		case field == frameCancelled && r.cancelled != nil:
			r.cancelled(v)
		case field == frameEnding && r.ending != nil:
			r.ending()
		}
		return err
	})
}

func readCall(b []byte) (c call, err error) {
	err = fields(b, func(field protowire.Number, v uint64, text []byte) error {
		switch field {
		case callNumber:
			c.number = v
		case callMethod:
			c.method = v
		case callTimeout:
			c.timeout = time.Duration(v) * time.Microsecond
		case callTraceparent:
			c.traceparent = string(text)
		case callTracestate:
			c.tracestate = string(text)
		case callPayload:
			c.payload = text
		default: // of a later version
		}
		return nil
	})
	return c, err
}

func readAnswer(b []byte) (a answer, err error) {
	err = fields(b, func(field protowire.Number, v uint64, text []byte) error {
		switch field {
		case answerNumber:
			a.number = v
		case answerPayload:
			a.payload = text
		case answerStatus:
			a.status = text
		default: // of a later version
		}
		return nil
	})
	return a, err
}

// fields calls each with the fields of a message: v for a varint, text for bytes.
func fields(b []byte, each func(field protowire.Number, v uint64, text []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("read a frame: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var v uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("read a frame: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if err := each(field, v, text); err != nil {
			return err
		}
	}
	return nil
}

// Codec returns a codec for protobuf messages and frames. A server with pipes uses it for all messages.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.out, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.in = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
