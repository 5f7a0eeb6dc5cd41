package gatewaytest

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Stream is a stream service: the live logs of all sessions.
type Stream struct {
	streamv2.UnimplementedStreamServiceServer

	mu      sync.Mutex
	records []*record     // in the order in which they were appended
	changed chan struct{} // closed and made anew at every change
	drops   int           // how often all calls were dropped
	away    bool
	deaf    bool // calls that follow are given nothing
	calls   int
	live    int // calls so far that follow
	stored  int // calls so far that do not
}

type record struct {
	tenant, root, session string
	*streamv2.Record
}

func newStream() *Stream { return &Stream{changed: make(chan struct{})} }

func streamKey(tenant, session string) string { return tenant + "\x00" + session }

// wake tells all calls that something has changed. It is called with mu held.
func (s *Stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Stream) append(tenant, root, session string, r *streamv2.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, &record{tenant, root, session, proto.CloneOf(r)})
	s.wake()
}

// Drop ends all calls.
func (s *Stream) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops++
	s.wake()
}

// Away drops all calls and, until it is called with false, refuses new ones.
func (s *Stream) Away(away bool) {
	s.mu.Lock()
	s.away = away
	s.mu.Unlock()
	s.Drop()
}

// Deafen lets calls that follow hear nothing, until it is called with false. Their
// calls stay open, and what is stored can be read.
func (s *Stream) Deafen(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
	s.wake()
}

// Lose empties the log of a session, as if it had never been.
func (s *Stream) Lose(tenant, session string) {
	s.LoseIf(tenant, session, func(*streamv2.Record) bool { return true })
}

// LoseIf takes records out of the log of a session.
func (s *Stream) LoseIf(tenant, session string, lost func(*streamv2.Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.tenant == tenant && r.session == session && r.Record != nil && lost(r.Record) {
			r.Record = nil // the others keep their places, which calls count
		}
	}
}

// Calls tells how many calls are open.
func (s *Stream) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Reads tells how many calls there were so far: those that follow, and those that do not.
func (s *Stream) Reads() (live, stored int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live, s.stored
}

// Read implements the service.
func (s *Stream) Read(r *streamv2.ReadRequest, out streamv2.StreamService_ReadServer) error {
	if r.GetFamily() && r.GetStream().GetRootSessionId() != r.GetStream().GetSessionId() {
		return fault.New(fault.Invalid, "ID_INVALID", "a family is read from its root")
	}
	s.mu.Lock()
	if s.away {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "away")
	}
	s.calls++
	if r.GetStoredOnly() {
		s.stored++
	} else {
		s.live++
	}
	c := &call{stream: s, request: r, drops: s.drops, stored: len(s.records)}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.calls--
		s.mu.Unlock()
	}()
	for {
		frame, err := c.next(out.Context())
		if err != nil {
			return err
		}
		if err := out.Send(frame); err != nil {
			return err
		}
		if frame.GetCaughtUp() != nil && r.GetStoredOnly() {
			return nil
		}
	}
}

// call is one open Read.
type call struct {
	stream   *Stream
	request  *streamv2.ReadRequest
	drops    int
	stored   int // how many records there were when it began
	place    int // in the records
	caughtUp bool
}

func (c *call) next(ctx context.Context) (*streamv2.ReadResponse, error) {
	for {
		frame, wait, err := c.step()
		if frame != nil || err != nil {
			return frame, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *call) step() (*streamv2.ReadResponse, <-chan struct{}, error) {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops != c.drops {
		return nil, nil, fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "dropped")
	}
	if s.deaf && !c.request.GetStoredOnly() {
		return nil, s.changed, nil
	}
	if records := c.take(); records != nil {
		return &streamv2.ReadResponse{Frame: &streamv2.ReadResponse_Records{Records: records}}, nil, nil
	}
	if !c.caughtUp {
		c.caughtUp = true
		return &streamv2.ReadResponse{Frame: &streamv2.ReadResponse_CaughtUp{CaughtUp: &streamv2.CaughtUp{}}}, nil, nil
	}
	return nil, s.changed, nil
}

// maxTaken is how many records a frame has at most.
const maxTaken = 3

// take gives the next records of one session; nil where there is none.
func (c *call) take() *streamv2.SessionRecords {
	var taken *streamv2.SessionRecords
	for records := c.stream.records; c.place < len(records) && (c.place < c.stored || c.caughtUp); c.place++ {
		r := records[c.place]
		switch {
		case !c.wants(r):
			continue
		case taken == nil:
			taken = &streamv2.SessionRecords{SessionId: r.session}
		case taken.GetSessionId() != r.session || len(taken.GetRecords()) == maxTaken:
			return taken
		}
		taken.Records = append(taken.Records, r.Record)
	}
	return taken
}

func (c *call) wants(r *record) bool {
	ref := c.request.GetStream()
	own := r.session == ref.GetSessionId()
	switch {
	case r.Record == nil || r.tenant != ref.GetTenant() || !own && !(c.request.GetFamily() && r.root == ref.GetSessionId()):
		return false
	case own && lastOf(r.Record) <= c.request.GetFromSequence():
		return false
	}
	return c.caughtUp || !slices.ContainsFunc(c.stream.records[c.place+1:c.stored], func(later *record) bool { return replaces(later, r) })
}

// replaces reports whether the later record is of a later attempt at the step.
func replaces(later, r *record) bool {
	if later.Record == nil || later.tenant != r.tenant || later.session != r.session || later.Boundary != nil {
		return false
	}
	a, b := position.Of(r.Sequence), position.Of(later.Sequence)
	return a.Step == b.Step && a.Attempt < b.Attempt && a.Attempt != position.Stored
}

func lastOf(r *streamv2.Record) int64 {
	if r.GetBoundary() != nil {
		return r.GetSequence()
	}
	return r.GetSequence() + int64(len(r.GetChunks())) - 1
}
