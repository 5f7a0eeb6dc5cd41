// Package server answers StreamService: it checks requests, asks the heart,
// and has the bus do it.
//
//	Append   tail (remembered, guessed or looked up) ──▶ chunklog.Decide ──▶ bus.Append, expecting the tail
//	Rewind   the same for the marker, then bus.Void
//	Reset    the same for the marker, then bus.Purge
//	Resume   the same for the marker
//	Read     hub.Join ──▶ bus.History from the cursor ──▶ caught_up ──▶ hub, history again after a gap
//	List     bus.History from the cursor, until the page is full
//
// Several chunks of one request are several appends, each decided, linked and fenced
// by itself behind the one before. All are checked before the first; from the first
// that is stored on the answer is how many are, and what stopped the next one is told
// to the request that brings it again. So a writer never has an error and a stored
// record of one request.
//
// In the usual case an append is one round trip to the log, and so is a read of
// what is stored. The first record of a stream is appended as such; only a bus that
// refuses it is asked for the tail. History is read from the cursor's own record on,
// which proves that the cursor is of this log. Only where it is not there the log is
// asked where it stands.
//
// A doubt whether the log has lost its end (a writer, or the state service, knows
// a sequence that is not there) is settled by bus.Renew before anything final is
// said. What a client says never raises one.
//
// The reader joins the hub before it reads what is stored, so that what is
// appended meanwhile waits in the ring; what it meets twice the heart skips.
//
// A reader that does not read holds up its own call, by the flow control of
// its connection, and nothing else: the ring goes on without it, and the call
// ends with READER_TOO_SLOW as soon as it takes its next frame.
package server

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
)

// Options say how a server works.
type Options struct {
	ChunkBytes int              // the largest record that is stored, in bytes as stored
	Meter      metric.Meter     // nil measures nothing
	Now        func() time.Time // nil is time.Now
}

// Server implements streamv1.StreamServiceServer.
type Server struct {
	streamv1.UnimplementedStreamServiceServer

	bus        bus.Bus
	hub        *hub.Hub
	chunkBytes int
	now        func() time.Time
	tails      *tails
	meters     meters
}

// New returns a server on the bus. Closing the hub ends every open and future
// Read with Unavailable (LOG_UNAVAILABLE).
func New(log bus.Bus, readers *hub.Hub, o Options) (*Server, error) {
	s := &Server{bus: log, hub: readers, chunkBytes: o.ChunkBytes, now: o.Now, tails: newTails(rememberedTails)}
	if s.now == nil {
		s.now = time.Now
	}
	return s, s.meters.open(o.Meter)
}

// GetInfo says where a stream stands.
func (s *Server) GetInfo(ctx context.Context, r *streamv1.GetInfoRequest) (*streamv1.GetInfoResponse, error) {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return nil, err
	}
	last, err := s.bus.Last(ctx, stream)
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, errNotFound
	}
	info, err := s.bus.Info(ctx, stream)
	if err != nil {
		return nil, err
	}
	return infoOf(last, info), nil
}

// errNotFound is the answer to questions about a stream without a record.
var errNotFound = fault.New(fault.NotFound, "STREAM_NOT_FOUND", "the stream of this session holds no record")
