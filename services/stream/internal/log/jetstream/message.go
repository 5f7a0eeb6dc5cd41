package jetstream

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// The headers of NATS that are read or written. Messages have no headers of ours.
const (
	headerExpected     = "Nats-Expected-Last-Subject-Sequence"
	headerSubject      = "Nats-Subject"
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerPending      = "Nats-Num-Pending"
	headerCode         = "Status"
)

// A payload is what the rules look at, in front of the record, so that the writer and
// the place of a record are known without decoding it:
//
//	version  epoch      last       record
//	1 byte   8 bytes    8 bytes    protobuf
const (
	version     = 1
	prefixBytes = 1 + 8 + 8
)

func encode(m *log.Message) []byte {
	b := make([]byte, prefixBytes, prefixBytes+len(m.Body))
	b[0] = version
	binary.BigEndian.PutUint64(b[1:], uint64(m.Epoch)) //nolint:gosec // decode reverses it
	binary.BigEndian.PutUint64(b[9:], uint64(m.Last))  //nolint:gosec // likewise
	return append(b, m.Body...)
}

func decode(session string, offset uint64, payload []byte) (*log.Message, error) {
	if len(payload) < prefixBytes || payload[0] != version {
		return nil, fmt.Errorf("message %d is not one of this version", offset)
	}
	return &log.Message{
		Offset:  offset,
		Session: session,
		Epoch:   int64(binary.BigEndian.Uint64(payload[1:])), //nolint:gosec // encode reverses it
		Last:    int64(binary.BigEndian.Uint64(payload[9:])), //nolint:gosec // likewise
		Body:    payload[prefixBytes:],
	}, nil
}

// value returns a header; it does not fold the name's case, as Get would.
func value(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// number returns a header that is a number; 0 when it is missing.
func number(h nats.Header, name string) uint64 {
	n, err := strconv.ParseUint(value(h, name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
