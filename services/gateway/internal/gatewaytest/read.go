package gatewaytest

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// Read implements the service.
func (s *Stream) Read(r *streamv1.ReadRequest, out streamv1.StreamService_ReadServer) error {
	if err := checkRead(r); err != nil {
		return err
	}
	s.mu.Lock()
	if s.away || s.cut == CutWhole && r.GetHistoryOnly() {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "away")
	}
	s.calls++
	if r.GetHistoryOnly() {
		s.stored++
	} else {
		s.live++
	}
	drops := s.drops
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.calls--
		s.mu.Unlock()
	}()
	c := &call{stream: s, request: r, cursor: r.GetFromSequence(), seen: map[string]int64{}, drops: drops}
	for {
		frame, ended, err := c.next(out.Context())
		if err != nil {
			return err
		}
		if frame != nil {
			if err := out.Send(frame); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

func checkRead(r *streamv1.ReadRequest) error {
	if r.GetFamily() && r.GetStream().GetRootSessionId() != r.GetStream().GetSessionId() {
		return fault.New(fault.Invalid, "ID_INVALID", "a family is read from its root")
	}
	if r.GetEveryRun() && r.GetRunId() != "" {
		return fault.New(fault.Invalid, "ID_INVALID", "every run or one")
	}
	return nil
}

// call is one open Read.
type call struct {
	stream   *Stream
	request  *streamv1.ReadRequest
	cursor   int64
	seen     map[string]int64 // the last record that the reader was given, by session
	drops    int
	caughtUp bool
}

// next gives the next frame. ended is true after a terminal frame and after a
// drop, which has none.
func (c *call) next(ctx context.Context) (frame *streamv1.ReadResponse, ended bool, err error) {
	for {
		frame, ended, wait := c.step()
		if frame != nil || ended {
			return frame, ended, nil
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, true, ctx.Err()
		}
	}
}

func (c *call) step() (frame *streamv1.ReadResponse, ended bool, wait <-chan struct{}) {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops != c.drops {
		return nil, true, nil
	}
	if s.cut != CutNothing && !c.request.GetHistoryOnly() {
		return nil, false, s.changed
	}
	log, floor := s.log(c.request.GetStream(), c.request.GetFamily())
	if c.cursor < floor {
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Truncated{Truncated: &streamv1.TruncatedFrame{Floor: floor}}}, true, nil
	}
	for i, r := range log {
		if r.sequence > c.cursor {
			c.cursor = r.sequence
			frame, ended = c.frame(r, !c.followed(log[i+1:]))
			return frame, ended, nil
		}
	}
	if !c.caughtUp {
		c.caughtUp = true
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_CaughtUp{CaughtUp: &streamv1.CaughtUpFrame{Sequence: c.cursor}}}, c.request.GetHistoryOnly(), nil
	}
	return nil, false, s.changed
}

// followed reports whether the rest has a record of the session that is read.
func (c *call) followed(rest []*record) bool {
	for _, r := range rest {
		if r.session == c.request.GetStream().GetSessionId() {
			return true
		}
	}
	return false
}

func (c *call) held(session string) int64 {
	if seen, ok := c.seen[session]; ok {
		return seen
	}
	return c.request.GetFromSequence()
}

func (c *call) frame(r *record, last bool) (frame *streamv1.ReadResponse, ended bool) {
	switch {
	case r.chunk != nil:
		c.seen[r.session] = r.sequence
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Chunk{Chunk: &streamv1.ChunkFrame{Sequence: r.sequence, Chunk: r.chunk, SessionId: r.session}}}, false
	case r.rewound != nil:
		if c.held(r.session) <= r.rewound.GetAt() {
			return nil, false
		}
		c.seen[r.session] = r.rewound.GetAt()
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Rewound{Rewound: r.rewound}}, false
	case !c.request.GetEveryRun() && !c.ends(r, last):
		return nil, false
	}
	ended = !c.request.GetEveryRun()
	if r.end != nil {
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_End{End: r.end}}, ended
	}
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Fail{Fail: r.fail}}, ended
}

// ends reports whether a terminal record ends a call that is not for every run.
func (c *call) ends(r *record, last bool) bool {
	if asked := c.request.GetRunId(); asked != "" {
		return r.terminalOf() == asked
	}
	return last && r.session == c.request.GetStream().GetSessionId()
}
