package memory

import (
	"context"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

const (
	// lostReach is how far above what is known of it the log begins anew, even when
	// the clock was set back.
	lostReach = 1 << 22
	// credibleReach is how far above the log, or the time, a sequence may be that
	// somebody claims to know: a week of microseconds.
	credibleReach = 7 * 24 * 3600 * 1_000_000
)

// Renew implements bus.Renewer. A log in memory loses its end only where a test
// takes it away.
func (l *Log) Renew(_ context.Context, s bus.Stream, sequence uint64) (bool, error) {
	before := l.began.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last(s)
	now := bus.FirstSequence(l.options.Now())
	switch {
	case before <= sequence && sequence < l.began.Load():
		return true, nil // another caller did while this one waited
	case last != nil && last.Sequence >= sequence, sequence < l.first, sequence < l.began.Load(),
		sequence > max(l.next(), now)+credibleReach:
		return false, nil
	}
	l.beginAt(max(now, max(l.next(), sequence)+lostReach))
	return true, nil
}

// beginAt removes everything and has the next record get the sequence.
func (l *Log) beginAt(sequence uint64) {
	l.began.Store(sequence)
	l.first = sequence
	l.entries, l.head, l.bytes = nil, 0, 0
	clear(l.streams)
	for _, follows := range l.follows {
		for f := range follows {
			f.sink.Gap()
		}
	}
}
