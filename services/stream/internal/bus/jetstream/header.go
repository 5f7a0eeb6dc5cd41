package jetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// The headers of a record. Prev is written only when it is not the record that
// the append expected, which the log keeps in a header of its own.
const (
	headerEpoch  = "Holdfast-Epoch"
	headerNumber = "Holdfast-Number"
	headerStep   = "Holdfast-Step"
	headerRun    = "Holdfast-Run" // as a token: header values lose outer spaces
	headerKind   = "Holdfast-Kind"
	headerStatus = "Holdfast-Status"
	headerAt     = "Holdfast-At"
	headerAnew   = "Holdfast-Anew" // "1", or missing
	headerPrev   = "Holdfast-Prev"
)

// The headers of NATS that are read or written.
const (
	headerExpected     = "Nats-Expected-Last-Subject-Sequence"
	headerSubject      = "Nats-Subject"
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerPending      = "Nats-Num-Pending"
	headerTime         = "Nats-Time-Stamp"
	headerCode         = "Status"
)

var kindNames = map[chunklog.Kind]string{
	chunklog.Chunk:    "chunk",
	chunklog.Terminal: "terminal",
	chunklog.Marker:   "marker",
}

var statusNames = map[chunklog.Status]string{
	chunklog.Active: "active",
	chunklog.Paused: "paused",
	chunklog.Ended:  "ended",
	chunklog.Failed: "failed",
}

var (
	kinds    = inverse(kindNames)
	statuses = inverse(statusNames)
)

func inverse[K comparable](names map[K]string) map[string]K {
	values := make(map[string]K, len(names))
	for value, name := range names {
		values[name] = value
	}
	return values
}

// encode makes the headers of a record that is appended behind expected.
func encode(r *chunklog.Record, expected uint64) nats.Header {
	h := make(nats.Header, 10)
	values := make([]string, 0, 10) // one allocation for all values
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set(headerExpected, strconv.FormatUint(expected, 10))
	set(headerEpoch, strconv.FormatInt(r.Epoch, 10))
	set(headerNumber, strconv.FormatInt(r.Number, 10))
	set(headerRun, token(r.Run))
	set(headerKind, kindNames[r.Kind])
	if r.Step != 0 {
		set(headerStep, strconv.FormatInt(int64(r.Step), 10))
	}
	if r.Status != chunklog.Active {
		set(headerStatus, statusNames[r.Status])
	}
	if r.Kind == chunklog.Marker {
		set(headerAt, strconv.FormatUint(r.At, 10))
	}
	if r.Anew {
		set(headerAnew, "1")
	}
	if r.Prev != expected {
		set(headerPrev, strconv.FormatUint(r.Prev, 10))
	}
	return h
}

// decode reads a record from its headers. subject is that of the stored record.
func decode(h nats.Header, subject string, sequence uint64, payload []byte) (*chunklog.Record, error) {
	p := parser{header: h}
	r := &chunklog.Record{
		Sequence: sequence,
		Session:  p.token(subject[strings.LastIndexByte(subject, '.')+1:]),
		Epoch:    p.number(headerEpoch),
		Number:   p.number(headerNumber),
		Step:     int32(p.number(headerStep)), //nolint:gosec // written from an int32
		Run:      p.token(p.value(headerRun)),
		Kind:     kinds[p.value(headerKind)],
		Status:   statuses[p.value(headerStatus)], // none is Active, the zero value
		At:       p.sequence(headerAt),
		Anew:     p.value(headerAnew) != "",
		Prev:     p.sequence(headerExpected),
		Payload:  payload,
	}
	if p.value(headerPrev) != "" {
		r.Prev = p.sequence(headerPrev)
	}
	if r.Kind == 0 {
		p.fail(fmt.Errorf("unknown kind %q", p.value(headerKind)))
	}
	if p.err != nil {
		return nil, fmt.Errorf("decode record %d: %w", sequence, p.err)
	}
	return r, nil
}

// parser reads headers and keeps the first error. A header that is missing
// reads as zero.
type parser struct {
	header nats.Header
	err    error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// value does not fold the name's case, as Get would: ours are written as read.
func (p *parser) value(name string) string {
	if values := p.header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func (p *parser) number(name string) int64 {
	value := p.value(name)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		p.fail(err)
	}
	return n
}

func (p *parser) sequence(name string) uint64 {
	value := p.value(name)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		p.fail(err)
	}
	return n
}

func (p *parser) token(t string) string {
	id, err := fromToken(t)
	if err != nil {
		p.fail(err)
	}
	return id
}
