package gatewaytest

import (
	"cmp"
	"slices"
	"sync"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// Stream is a stream service. Sequences are counted over all sessions, so those
// of one session have gaps.
type Stream struct {
	streamv1.UnimplementedStreamServiceServer

	mu      sync.Mutex
	logs    map[string][]*record
	roots   map[string]string // of the sessions that are not their own, by key
	floors  map[string]int64
	last    int64
	changed chan struct{} // closed and made anew at every change
	drops   int           // how often all calls were dropped
	away    bool
	cut     Cut
	calls   int
	live    int // calls so far that were not for history only
	stored  int // calls so far that were
}

type record struct {
	sequence int64
	session  string
	chunk    *eventv1.Chunk
	end      *streamv1.EndFrame
	fail     *streamv1.FailFrame
	rewound  *streamv1.RewoundFrame
}

// terminalOf names the run that the record ends, "" for none.
func (r *record) terminalOf() string {
	switch {
	case r.end != nil:
		return r.end.GetRunId()
	case r.fail != nil:
		return r.fail.GetRunId()
	default:
		return ""
	}
}

func newStream() *Stream {
	return &Stream{logs: map[string][]*record{}, roots: map[string]string{}, floors: map[string]int64{}, changed: make(chan struct{})}
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
	r.sequence, r.session = s.last, session
	switch { // readers share the frames: they are whole before anybody sees them
	case r.end != nil:
		r.end.Sequence, r.end.SessionId = s.last, session
	case r.fail != nil:
		r.fail.Sequence, r.fail.SessionId = s.last, session
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
	marker := &streamv1.RewoundFrame{Sequence: s.last, At: at, RunId: run, Reason: "executor_lost", SessionId: session}
	s.logs[key] = append(kept, &record{sequence: s.last, session: session, rewound: marker})
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

// Reads tells how many calls there were so far: those that follow, and those for
// history only.
func (s *Stream) Reads() (live, stored int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live, s.stored
}

// Last is the last sequence that was given.
func (s *Stream) Last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Stream) adopt(tenant, session, root string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roots[streamKey(tenant, session)] = streamKey(tenant, root)
}

// log gives the records of a session, or of the family of a root, in order, and its
// floor, which for a family is the highest of its sessions. It is called with mu held.
func (s *Stream) log(ref *streamv1.StreamRef, family bool) (records []*record, floor int64) {
	own := streamKey(ref.GetTenant(), ref.GetSessionId())
	if !family {
		return s.logs[own], s.floors[own]
	}
	records, floor = slices.Clone(s.logs[own]), s.floors[own]
	for key, root := range s.roots {
		if root == own {
			records, floor = append(records, s.logs[key]...), max(floor, s.floors[key])
		}
	}
	slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.sequence, b.sequence) })
	return records, floor
}
