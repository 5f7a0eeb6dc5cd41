// Package server answers StreamService: it checks requests, asks the heart,
// and has the bus do it.
//
//	Append   tail (remembered or looked up) ──▶ chunklog.Decide ──▶ bus.Append, expecting the tail
//	Rewind   the same for the marker, then bus.Void
//	Read     hub.Join ──▶ bus.History from the cursor ──▶ caught_up ──▶ hub, history again after a gap
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

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
)

// Server implements streamv1.StreamServiceServer.
type Server struct {
	streamv1.UnimplementedStreamServiceServer

	bus        bus.Bus
	hub        *hub.Hub
	chunkBytes int
	tails      *tails
}

// New returns a server on the bus. chunkBytes is the largest record that is
// stored, in bytes as stored. Closing the hub ends every open and future Read
// with Unavailable (LOG_UNAVAILABLE).
func New(log bus.Bus, readers *hub.Hub, chunkBytes int) *Server {
	return &Server{bus: log, hub: readers, chunkBytes: chunkBytes, tails: newTails(rememberedTails)}
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
		return nil, fault.New(fault.NotFound, "STREAM_NOT_FOUND", "the stream of this session holds no record")
	}
	info, err := s.bus.Info(ctx, stream)
	if err != nil {
		return nil, err
	}
	return infoOf(last, info), nil
}
