package jetstream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// A message is published under the first subject, and heard under the second once it is
// stored.
//
//	holdfast.append.<partition>.<tenant>.<root>.<session>
//	holdfast.stored.<partition>.<tenant>.<root>.<session>
func streamName(partition int) string    { return fmt.Sprintf("holdfast-live-%02d", partition) }
func appendSubject(partition int) string { return fmt.Sprintf("holdfast.append.%02d.", partition) }
func storedSubject(partition int) string { return fmt.Sprintf("holdfast.stored.%02d.", partition) }

// filter returns the subject that matches the messages of a scope.
func filter(partition int, s log.Scope) string {
	session := "*"
	if !s.Family {
		session = token(s.Session)
	}
	return appendSubject(partition) + token(s.Tenant) + "." + token(s.Root) + "." + session
}

// token writes an id as one legal token of a subject. Three ids of 256 bytes stay below the
// 4,096 bytes of a NATS control line.
func token(id string) string { return strings.ReplaceAll(url.QueryEscape(id), ".", "%2E") }

// streamOf reads the end of a subject: tenant, root and session.
func streamOf(subject string) (log.Stream, error) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 {
		return log.Stream{}, fmt.Errorf("subject %q names no session", subject)
	}
	parts = parts[len(parts)-3:]
	for i, part := range parts {
		id, err := url.QueryUnescape(part)
		if err != nil {
			return log.Stream{}, fmt.Errorf("subject %q: %w", subject, err)
		}
		parts[i] = id
	}
	return log.Stream{Tenant: parts[0], Root: parts[1], Session: parts[2]}, nil
}

// The headers of NATS that are read or written. Messages have no headers of ours.
const (
	headerExpected     = "Nats-Expected-Last-Subject-Sequence"
	headerSubject      = "Nats-Subject"
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerPending      = "Nats-Num-Pending"
	headerCode         = "Status"
)

// number returns a header that is a number; 0 when it is missing.
func number(h nats.Header, name string) uint64 {
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

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
	b := make([]byte, 0, prefixBytes+len(m.Body))
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Epoch)) //nolint:gosec // decode reverses it
	b = binary.BigEndian.AppendUint64(b, uint64(m.Last))  //nolint:gosec // likewise
	return append(b, m.Body...)
}

// decode reads what is stored under the subject. The subject may be the published one or the
// one under which the message is heard.
func decode(subject string, offset uint64, payload []byte) (log.Stream, *log.Message, error) {
	stream, err := streamOf(subject)
	if err != nil {
		return stream, nil, err
	}
	if len(payload) < prefixBytes || payload[0] != version {
		return stream, nil, fmt.Errorf("message %d is not one of this version", offset)
	}
	return stream, &log.Message{
		Offset:  offset,
		Session: stream.Session,
		Epoch:   int64(binary.BigEndian.Uint64(payload[1:])), //nolint:gosec // encode reverses it
		Last:    int64(binary.BigEndian.Uint64(payload[9:])), //nolint:gosec // likewise
		Body:    payload[prefixBytes:],
	}, nil
}

// Codes of the server's refusals that the client library does not name.
const (
	codeAccountResources = 10002
	codeInsufficient     = 10023
	codeStorage          = 10047
	codeStoreFailed      = 10077
	codeInFlight         = 10164 // another message of the subject is being written
)

func isCode(err error, code jetstream.ErrorCode) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && e.ErrorCode == code
}

// answer is what the server answers to a message, to a look at the last message, or to a
// question about a stream.
type answer struct {
	Error    *jetstream.APIError `json:"error"`
	Sequence uint64              `json:"seq"`
	Message  struct {
		Subject  string `json:"subject"`
		Sequence uint64 `json:"seq"`
		Data     []byte `json:"data"`
	} `json:"message"`
	State struct {
		Last uint64 `json:"last_seq"`
	} `json:"state"`
}

// readAnswer returns a refusal as a *jetstream.APIError.
func readAnswer(data []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("answer of the server: %w", err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}
