package chunklog_test

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// watcher is a reader as the server has it, and what its client holds.
type watcher struct {
	family bool
	reader *chunklog.Reader
	held   map[string][]uint64

	start     uint64
	heard     int                // how much of the feed it has taken
	live      bool               // it has read what is stored
	page      []*chunklog.Record // read, and yet to be taken
	digesting bool
	more      bool
	reloads   int
	blind     bool // it misses what no log can tell, see hides and passedOver
}

func (w *watcher) clone() *watcher {
	c, reader := *w, w.reader.Clone()
	c.reader, c.held = reader, maps.Clone(w.held)
	for session := range c.held {
		c.held[session] = slices.Clone(c.held[session])
	}
	return &c
}

// attach begins a call from the cursor.
func (w *watcher) attach(l *log, cursor uint64) {
	w.reader = chunklog.NewLasting("s", cursor)
	w.start, w.heard = cursor, len(l.feed)
	w.replay()
}

func (w *watcher) replay() {
	w.page, w.digesting, w.live = nil, false, false
}

// reload does what a client does that is told truncated: it loads what stands
// from the state service, and reads on from the floor.
func (w *watcher) reload(t *rapid.T, l *log, floor uint64) {
	if unclear := w.family && w.reader.Cursor() < l.stand("s").Floor; l.calm && l.page > 1000 && !unclear {
		t.Fatalf("the reader at %d is told truncated at %d for no reason", w.reader.Cursor(), floor)
	}
	w.held = map[string][]uint64{}
	for session := range l.ever {
		if w.family || session == "s" {
			w.held[session] = slices.Clone(upTo(l.standing(session), floor))
		}
	}
	w.reloads++
	w.blind = false
	w.attach(l, floor)
}

// fetch reads a page, from the cursor's own record on: it proves that nothing was
// removed behind it since.
func (w *watcher) fetch(t *rapid.T, l *log) {
	cursor := w.reader.Cursor()
	w.page, w.more = l.history(w.family, max(cursor, 1)-1)
	if stand := l.stand("s"); !chunklog.Proves(cursor, w.page) && chunklog.Astray(chunklog.Cursor{Sequence: cursor, Family: w.family}, w.page, stand) {
		w.reload(t, l, stand.From(w.page))
		return
	}
	w.digesting = true
}

// digest takes the records of a page, which may be gone meanwhile.
func (w *watcher) digest(t *rapid.T, l *log) {
	for len(w.page) > 0 {
		r := w.page[0]
		if w.reader.Hole(r) {
			if stand := l.stand(r.Session); w.reader.Lost(stand, w.page) {
				w.reload(t, l, w.reader.From(stand, w.page))
				return
			}
		}
		w.page = w.page[1:]
		w.take(l, r, false)
	}
	w.digesting, w.live = false, !w.more
}

// hides reports whether the log keeps nothing of a session that the reader reads
// and of which something stands: who comes from the beginning cannot see that.
func (l *log) hides(w *watcher) bool {
	return slices.ContainsFunc(sessions, func(session string) bool {
		return (w.family || session == "s") && len(l.of(session)) == 0 && len(l.standing(session)) > 0
	})
}

// hear takes the next record of the feed.
func (w *watcher) hear(l *log) {
	r := l.feed[w.heard]
	w.heard++
	switch {
	case r == nil:
		w.replay()
	case r.Session == stranger || !w.family && r.Session != "s":
	case w.reader.Missed(r):
		w.replay()
	default:
		w.take(l, r, true)
	}
}

func (w *watcher) take(l *log, r *chunklog.Record, live bool) {
	if w.reader.Cursor() == 0 && l.hides(w) {
		w.blind = true
	}
	switch w.reader.Take(r, live) {
	case chunklog.Give:
		if r.Kind == chunklog.Chunk {
			w.held[r.Session] = append(w.held[r.Session], r.Sequence)
		}
	case chunklog.Rewound:
		w.held[r.Session] = upTo(w.held[r.Session], r.At)
	case chunklog.Skip, chunklog.End, chunklog.CaughtUp:
	}
}

// step goes on a little; false when there is nothing to do.
func (w *watcher) step(t *rapid.T, l *log) bool {
	switch {
	case w.digesting:
		w.digest(t, l)
	case !w.live:
		w.fetch(t, l)
	case w.heard < len(l.feed):
		w.hear(l)
	default:
		return false
	}
	return true
}

// check has a copy of the reader take all there is.
func (w *watcher) check(t *rapid.T, l *log) {
	c := w.clone()
	c.reloads = 0
	for c.step(t, l) {
		if c.reloads > 4 {
			t.Fatalf("the reader at %d is told truncated again and again", w.reader.Cursor())
		}
	}
	if c.blind || c.reader.Cursor() == 0 && l.hides(c) {
		return
	}
	for _, session := range sessions {
		want := l.standing(session)
		if !w.family && session != "s" {
			want = nil
		}
		if got := c.held[session]; !slices.Equal(got, want) {
			t.Fatalf("the reader at %d (family %v) holds %v of %s, want %v", w.reader.Cursor(), w.family, got, session, want)
		}
	}
}
