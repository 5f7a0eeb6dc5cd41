// Package server implements StreamService. It checks requests, asks the heart (package livelog) for decisions,
// and uses the log.
//
//	Append   the tail (cached or read) ──▶ livelog.Decide ──▶ log.Append, expecting the tail
//	Read     log.Follow ──▶ log.Page from the cursor ──▶ caught_up ──▶ the feed
//
// A reader joins the feed before it reads the stored messages, so no message falls between them. It skips
// duplicates by their offset.
//
// # Slow readers
//
// A reader reads stored messages in small pages, and the next page only after its client has accepted the last
// one. The feed buffers little and never waits: a reader that falls behind returns to the log, at its own pace.
// A reader that does so maxLags times without catching up is too slow and is ended. A client that accepts
// nothing blocks its own call through the connection's flow control, and holds one page.
package server

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// Server implements streamv2.StreamServiceServer.
type Server struct {
	streamv2.UnimplementedStreamServiceServer

	log         log.Log
	keys        grant.Keys
	recordBytes int
	tails       tails
	meters      meters
}

// New returns a server for records of up to recordBytes, which checks grants with the keys. Its readers end when the log's
// Run has returned.
func New(l log.Log, keys grant.Keys, recordBytes int, meter metric.Meter) (*Server, error) {
	s := &Server{log: l, keys: keys, recordBytes: recordBytes}
	return s, s.meters.open(meter)
}

// meters are the instruments of a server.
type meters struct {
	appends metric.Float64Histogram
	stored  metric.MeasurementOption // the outcome of most appends
	readers metric.Int64UpDownCounter
	slow    metric.Int64Counter // ended, because too slow
	lagged  metric.Int64Counter
	chunks  metric.Int64Counter
	bytes   metric.Int64Counter
}

func (m *meters) open(meter metric.Meter) error {
	var errs [6]error
	m.stored = outcome("stored")
	m.appends, errs[0] = meter.Float64Histogram("holdfast.stream.append.time", metric.WithUnit("s"),
		metric.WithDescription("time from an append's arrival to its answer, by outcome: stored, or the reason of the refusal"),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
	m.readers, errs[1] = meter.Int64UpDownCounter("holdfast.stream.readers", metric.WithUnit("{reader}"),
		metric.WithDescription("open reads"))
	m.slow, errs[2] = meter.Int64Counter("holdfast.stream.readers.cut", metric.WithUnit("{reader}"),
		metric.WithDescription("reads that were ended because the reader was too slow"))
	m.lagged, errs[3] = meter.Int64Counter("holdfast.stream.readers.lagged", metric.WithUnit("{lag}"),
		metric.WithDescription("returns of slow readers from the feed to the log"))
	m.chunks, errs[4] = meter.Int64Counter("holdfast.stream.chunks", metric.WithUnit("{chunk}"),
		metric.WithDescription("chunks that were appended"))
	m.bytes, errs[5] = meter.Int64Counter("holdfast.stream.bytes", metric.WithUnit("By"),
		metric.WithDescription("bytes of the messages that were appended"))
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("make the instruments of the stream: %w", err)
	}
	return nil
}

func outcome(name string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", name)))
}

// maxIDBytes is the length limit of ids.
const maxIDBytes = 256

// checkID returns Invalid with the reason.
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
