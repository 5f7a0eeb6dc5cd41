package gatewaytest

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// Stream is a stream service. Sequences are counted over all sessions, so those
// of one session have gaps.
type Stream struct {
	streamv1.UnimplementedStreamServiceServer

	mu      sync.Mutex
	logs    map[string][]*record
	floors  map[string]int64
	last    int64
	changed chan struct{} // closed and made anew at every change
	drops   int           // how often all calls were dropped
	away    bool
	cut     Cut
	calls   int
}

type record struct {
	sequence int64
	chunk    *eventv1.Chunk
	end      *streamv1.EndFrame
	fail     *streamv1.FailFrame
	rewound  *streamv1.RewoundFrame
}

func (r *record) terminalOf() (run string, terminal bool) {
	switch {
	case r.end != nil:
		return r.end.GetRunId(), true
	case r.fail != nil:
		return r.fail.GetRunId(), true
	default:
		return "", false
	}
}

func newStream() *Stream {
	return &Stream{logs: map[string][]*record{}, floors: map[string]int64{}, changed: make(chan struct{})}
}

func streamKey(tenant, session string) string { return tenant + "\x00" + session }

// wake tells all calls that something has changed. It is called with mu held.
func (s *Stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Stream) append(tenant, session string, r *record) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	r.sequence = s.last
	switch { // readers share the frames: they are whole before anybody sees them
	case r.end != nil:
		r.end.Sequence = s.last
	case r.fail != nil:
		r.fail.Sequence = s.last
	}
	key := streamKey(tenant, session)
	s.logs[key] = append(s.logs[key], r)
	s.wake()
	return r.sequence
}

func (s *Stream) rewind(tenant, session, run string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	key := streamKey(tenant, session)
	var kept []*record
	for _, r := range s.logs[key] {
		if r.sequence <= at {
			kept = append(kept, r)
		}
	}
	marker := &streamv1.RewoundFrame{Sequence: s.last, At: at, RunId: run, Reason: "executor_lost"}
	s.logs[key] = append(kept, &record{sequence: s.last, rewound: marker})
	s.wake()
}

// Drop ends all calls without a terminal frame.
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

// Forget drops the records of a session and everything that came before.
func (s *Stream) Forget(tenant, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[streamKey(tenant, session)] = nil
	s.floors[streamKey(tenant, session)] = s.last
	s.wake()
}

// Lose empties the log of a session, as if it had never been.
func (s *Stream) Lose(tenant, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, streamKey(tenant, session))
}

// lastOf is the sequence of the last record of a session, 0 for none.
func (s *Stream) lastOf(tenant, session string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.logs[streamKey(tenant, session)]
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].sequence
}

// Calls tells how many calls are open.
func (s *Stream) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Read implements the service.
func (s *Stream) Read(r *streamv1.ReadRequest, out streamv1.StreamService_ReadServer) error {
	s.mu.Lock()
	if s.away || s.cut == CutWhole && r.GetHistoryOnly() {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "away")
	}
	s.calls++
	drops := s.drops
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.calls--
		s.mu.Unlock()
	}()
	c := &call{stream: s, request: r, key: streamKey(r.GetStream().GetTenant(), r.GetStream().GetSessionId()), cursor: r.GetFromSequence(), seen: r.GetFromSequence(), drops: drops}
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

// call is one open Read.
type call struct {
	stream   *Stream
	request  *streamv1.ReadRequest
	key      string
	cursor   int64
	seen     int64 // the last record that the reader was given
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
	if c.cursor < s.floors[c.key] {
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Truncated{Truncated: &streamv1.TruncatedFrame{Floor: s.floors[c.key]}}}, true, nil
	}
	for i, r := range s.logs[c.key] {
		if r.sequence > c.cursor {
			c.cursor = r.sequence
			frame, ended = c.frame(r, i == len(s.logs[c.key])-1)
			return frame, ended, nil
		}
	}
	if !c.caughtUp {
		c.caughtUp = true
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_CaughtUp{CaughtUp: &streamv1.CaughtUpFrame{Sequence: c.cursor}}}, c.request.GetHistoryOnly(), nil
	}
	return nil, false, s.changed
}

func (c *call) frame(r *record, last bool) (frame *streamv1.ReadResponse, ended bool) {
	switch {
	case r.chunk != nil:
		c.seen = r.sequence
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Chunk{Chunk: &streamv1.ChunkFrame{Sequence: r.sequence, Chunk: r.chunk}}}, false
	case r.rewound != nil:
		if c.seen <= r.rewound.GetAt() {
			return nil, false
		}
		c.seen = r.sequence
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Rewound{Rewound: r.rewound}}, false
	}
	run, _ := r.terminalOf()
	asked := c.request.GetRunId()
	if asked != "" && asked != run || asked == "" && !last {
		return nil, false
	}
	if r.end != nil {
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_End{End: r.end}}, true
	}
	return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Fail{Fail: r.fail}}, true
}
