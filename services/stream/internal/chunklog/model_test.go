package chunklog_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// log is a whole log in a list: one partition, with the sessions of one family,
// and a stranger.
type log struct {
	began   uint64
	next    uint64
	records []*chunklog.Record            // stored, all sessions
	ever    map[string][]*chunklog.Record // since it was begun, by session
	feed    []*chunklog.Record            // as it was told to those who follow; nil is a gap
	writers map[string]*scribe
	pending []func() // removals that are yet to be done
	page    int
	// calm says that retention and a lost log have had no hand in it: nobody has a
	// reason to load anything again.
	calm bool
}

// scribe is the writer of a session, and what the state service knows of it.
type scribe struct {
	epoch, number int64
	former        uint64
	step          int32
	recorded      uint64
	unheard       []*chunklog.Record // of one request, stored as far as it came, and the answer was lost
}

const stranger = "stranger"

var sessions = []string{"s", "a", "b"}

func newLog(page int) *log {
	l := &log{began: 10, next: 10, page: page, calm: true, ever: map[string][]*chunklog.Record{}, writers: map[string]*scribe{}}
	for _, session := range sessions {
		l.writers[session] = &scribe{epoch: 1}
	}
	return l
}

func (l *log) of(session string) []*chunklog.Record {
	var records []*chunklog.Record
	for _, r := range l.records {
		if r.Session == session {
			records = append(records, r)
		}
	}
	return records
}

func (l *log) tail(session string) chunklog.Tail {
	if records := l.of(session); len(records) > 0 {
		return chunklog.TailOf(records[len(records)-1])
	}
	return chunklog.Tail{}
}

// stand is what a log says that cannot tell voided from expired records.
func (l *log) stand(session string) chunklog.Stand {
	s := chunklog.Stand{Floor: l.next - 1, Top: l.next - 1, Began: l.began}
	if len(l.records) > 0 {
		s.Floor = l.records[0].Sequence - 1
	}
	if records := l.of(session); len(records) > 0 {
		s.First = records[0].Sequence
	}
	return s
}

// remove removes the records that gone reports.
func (l *log) remove(gone func(*chunklog.Record) bool) {
	for _, r := range l.records {
		if w := l.writers[r.Session]; w != nil && gone(r) {
			w.recorded = max(w.recorded, r.Sequence) // whoever comes next knows that there was something
		}
	}
	l.records = slices.DeleteFunc(slices.Clone(l.records), gone)
}

// standing returns the sequences of a session's chunks that stand, kept or not.
func (l *log) standing(session string) []uint64 {
	var sequences []uint64
	for _, r := range l.ever[session] {
		switch {
		case r.Kind == chunklog.Chunk:
			sequences = append(sequences, r.Sequence)
		case r.Kind == chunklog.Marker && r.At < r.Prev:
			sequences = upTo(sequences, r.At)
		}
	}
	return sequences
}

func upTo(sequences []uint64, at uint64) []uint64 {
	i := slices.IndexFunc(sequences, func(s uint64) bool { return s > at })
	if i < 0 {
		return sequences
	}
	return sequences[:i]
}

// passedOver reports whether the reader of a family has passed over records that a
// session has lost because it had too many, or before the reader came from the
// beginning: the session's next record would tell it, but who comes back before
// that has forgotten where it stood.
func (l *log) passedOver(w *watcher) bool {
	return w.family && slices.ContainsFunc(sessions, func(session string) bool {
		stand := l.stand(session)
		return slices.ContainsFunc(l.standing(session), func(s uint64) bool {
			return (s > stand.Floor || w.start == 0) && s < stand.First && s <= w.reader.Cursor() && !slices.Contains(w.held[session], s)
		})
	})
}

func (l *log) store(r *chunklog.Record) {
	r.Sequence = l.next
	l.next++
	l.records = append(l.records, r)
	l.ever[r.Session] = append(l.ever[r.Session], r)
	l.feed = append(l.feed, r)
}

// lose loses everything and begins anew, as when a power cut took the end.
func (l *log) lose(by uint64) {
	l.began, l.next = l.next+by, l.next+by
	l.records, l.pending = nil, nil
	clear(l.ever)
	l.feed = append(l.feed, nil)
	l.calm = false
}

// decide decides on the next record of the session's writer, as the server does.
func (l *log) decide(session string, r *chunklog.Record) (chunklog.Tail, chunklog.Decision, error) {
	w := l.writers[session]
	return l.decideBehind(session, r, 0, w.number, w.former)
}

// decideBehind decides on a record behind the one with the number and the sequence.
func (l *log) decideBehind(
	session string, r *chunklog.Record, more, number int64, former uint64,
) (chunklog.Tail, chunklog.Decision, error) {
	r.Session, r.Epoch, r.Number = session, l.writers[session].epoch, number+1
	tail := l.tail(session)
	write := chunklog.Write{Epoch: r.Epoch, Number: r.Number, Kind: r.Kind, Run: r.Run, Former: former, More: more}
	decision, err := chunklog.Decide(tail, write)
	if decision == chunklog.Ask {
		decision, err = chunklog.Vanished(write, l.stand(session))
	}
	if err == nil {
		chunklog.Link(r, tail, former)
	}
	return tail, decision, err
}

// request stores a request's chunks one by one, as the server does, until one is
// refused or there is no time for more. It gives the number and the sequence of the
// last one that stands.
func (l *log) request(t *rapid.T, session string, chunks []*chunklog.Record, atMost int) (number int64, former uint64, refused error) {
	w := l.writers[session]
	number, former = w.number, w.former
	for rest := chunks; len(rest) > 0 && atMost > 0; atMost-- {
		r := *rest[0]
		tail, d, err := l.decideBehind(session, &r, int64(len(rest)-1), number, former)
		switch {
		case err != nil:
			return number, former, err
		case d == chunklog.Repeat:
			rest = rest[tail.Number-number:]
			number, former = tail.Number, tail.Sequence
		case d == chunklog.Accept:
			l.store(&r)
			rest = rest[1:]
			number, former = r.Number, r.Sequence
		default:
			t.Fatalf("%s: chunk %+v of a good writer is answered with %v", session, r, d)
		}
	}
	return number, former, nil
}

// gone reports whether the log was begun anew since the writer's last record.
func (l *log) gone(session string, w *scribe) bool {
	return l.tail(session).Sequence == 0 && w.former > 0 && w.former < l.began
}

func (l *log) put(t *rapid.T, session string, r *chunklog.Record, d chunklog.Decision) {
	if d != chunklog.Accept && d != chunklog.Anew {
		t.Fatalf("%s: a good writer's %+v is answered with %v", session, r, d)
	}
	l.store(r)
	w := l.writers[session]
	w.number, w.former = r.Number, r.Sequence
}

// repeat has a writer that got no answer ask again. What was lost with the log
// took no number.
func (l *log) repeat(t *rapid.T, session string) {
	w := l.writers[session]
	for len(w.unheard) > 0 {
		number, former, err := l.request(t, session, w.unheard, len(w.unheard))
		stored := number - w.number
		w.number, w.former, w.unheard = number, former, w.unheard[stored:]
		switch {
		case fault.ReasonOf(err) == "LOG_RENEWED":
			w.unheard = nil
		case err != nil && stored == 0:
			t.Fatalf("%s: a repetition is refused: %v", session, err)
		}
	}
}

// several appends chunks with one request, which gets as far as atMost.
func (l *log) several(t *rapid.T, session, run string, count, atMost int) {
	w := l.writers[session]
	var chunks []*chunklog.Record
	for range count {
		chunks = append(chunks, &chunklog.Record{Kind: chunklog.Chunk, Step: w.step + 1, Run: run})
	}
	before := len(l.ever[session])
	number, former, refused := l.request(t, session, chunks, atMost)
	if got := len(l.ever[session]) - before; refused != nil || int64(got) != number-w.number || got != atMost {
		t.Fatalf("%s: %d of %d chunks are stored, %d are answered, want %d: %v", session, got, count, number-w.number, atMost, refused)
	}
	if atMost < count { // and nobody hears of it
		w.unheard = chunks
		return
	}
	w.number, w.former = number, former
}

// write appends, and does what the log asks of the writer.
func (l *log) write(t *rapid.T, session string, r *chunklog.Record) {
	l.repeat(t, session)
	_, d, err := l.decide(session, r)
	switch fault.ReasonOf(err) {
	case "":
		l.put(t, session, r, d)
	case "LOG_RENEWED":
		l.rewind(t, session, r.Run, 0)
	case "STREAM_NOT_ACTIVE":
		l.resume(t, session, r.Run)
	default:
		t.Fatalf("%s: a good writer is refused: %v", session, err)
	}
}

func (l *log) rewind(t *rapid.T, session, run string, from uint64) {
	l.repeat(t, session)
	rewind := chunklog.Rewind{From: from, Step: l.writers[session].step}
	marker := &chunklog.Record{Kind: chunklog.Marker, Run: run}
	tail, d, err := l.decide(session, marker)
	if err != nil {
		t.Fatalf("%s: a rewind is refused: %v", session, err)
	}
	for _, r := range l.of(session) {
		if r.Sequence > from {
			rewind.Take(r)
		}
	}
	if rewind.Mark(marker, tail); d == chunklog.Anew {
		chunklog.MarkAnew(marker)
	}
	l.checkVoid(t, session, marker, &rewind)
	l.put(t, session, marker, d)
	l.pending = append(l.pending, func() {
		l.remove(func(r *chunklog.Record) bool { return slices.Contains(rewind.Void, r.Sequence) })
	})
}

// checkVoid sees to it that a rewind that voids anything leaves nothing of the
// void attempt to readers, whether retention has removed it or not.
func (l *log) checkVoid(t *rapid.T, session string, marker *chunklog.Record, rewind *chunklog.Rewind) {
	if len(rewind.Void) == 0 {
		return
	}
	standing := l.standing(session)
	for _, r := range l.ever[session] {
		void := r.Sequence > rewind.From && r.Step > rewind.Step && slices.Contains(standing, r.Sequence)
		if void && r.Sequence <= marker.At {
			t.Fatalf("%s: a rewind from %d at %d leaves the void chunk %d to readers", session, rewind.From, marker.At, r.Sequence)
		}
	}
}

func (l *log) reset(t *rapid.T, session, run string) {
	l.repeat(t, session)
	marker := &chunklog.Record{Kind: chunklog.Marker, Run: run}
	tail, d, err := l.decide(session, marker)
	if err != nil {
		t.Fatalf("%s: a reset is refused: %v", session, err)
	}
	chunklog.MarkReset(marker, tail, l.stand(session).Floor)
	l.put(t, session, marker, d)
	l.pending = append(l.pending, func() {
		l.remove(func(r *chunklog.Record) bool { return r.Session == session && r.Sequence < marker.Sequence })
	})
}

func (l *log) resume(t *rapid.T, session, run string) {
	l.repeat(t, session)
	marker := &chunklog.Record{Kind: chunklog.Marker, Run: run}
	_, d, err := l.decide(session, marker)
	if err != nil {
		t.Fatalf("%s: a resume is refused: %v", session, err)
	}
	if chunklog.MarkResume(marker); d == chunklog.Anew {
		chunklog.MarkAnew(marker)
	}
	l.put(t, session, marker, d)
}

// history returns a page of what is stored after the cursor.
func (l *log) history(family bool, after uint64) (page []*chunklog.Record, more bool) {
	for _, r := range l.records {
		if r.Sequence <= after || r.Session == stranger || !family && r.Session != "s" {
			continue
		}
		if len(page) == l.page {
			return page, true
		}
		page = append(page, r)
	}
	return page, false
}

// TestReadersHoldWhatStands lets writers append, end, rewind, reset and resume,
// lose their places and what they wrote; records be removed late or never, by
// retention of either kind; and readers of a session and of its family come, take
// a little, and come back with their cursors. Whoever has caught up, and has
// loaded again what it was told to, holds exactly the chunks that stand.
func TestReadersHoldWhatStands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page     int
		troubled bool
		without  []string // so that others happen more often
	}{
		"in large pages, of which nothing is lost": {10_000, false, nil},
		"in large pages":        {10_000, true, nil},
		"in small pages":        {3, true, nil},
		"of a log that is lost": {3, true, []string{"rewind", "resume", "end", "elsewhere", "remove", "expire", "drop the oldest", "commit"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { play(t, newLog(c.page), c.troubled, c.without) })
		})
	}
}

func play(t *rapid.T, l *log, troubled bool, without []string) {
	var watchers []*watcher
	someone := func(t *rapid.T) *watcher {
		if len(watchers) == 0 {
			t.Skip("nobody reads")
		}
		return rapid.SampledFrom(watchers).Draw(t, "who")
	}
	somewhere := func(t *rapid.T) (string, *scribe, string) {
		session := rapid.SampledFrom(sessions).Draw(t, "session")
		w := l.writers[session]
		return session, w, fmt.Sprint(session, w.epoch)
	}
	actions := map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			session, w, run := somewhere(t)
			l.write(t, session, &chunklog.Record{Kind: chunklog.Chunk, Step: w.step + 1, Run: run})
		},
		"append, and lose the answer": func(t *rapid.T) {
			session, w, run := somewhere(t)
			l.repeat(t, session)
			r := &chunklog.Record{Kind: chunklog.Chunk, Step: w.step + 1, Run: run}
			if _, d, err := l.decide(session, r); err == nil && d == chunklog.Accept {
				l.store(r)
				w.unheard = []*chunklog.Record{r}
			}
		},
		"append several": func(t *rapid.T) {
			session, w, run := somewhere(t)
			l.repeat(t, session)
			if tail := l.tail(session); tail.Status != chunklog.Active && tail.Run == run || l.gone(session, w) {
				t.Skip("it has to do something else before")
			}
			count := rapid.IntRange(1, 5).Draw(t, "count")
			l.several(t, session, run, count, rapid.IntRange(0, count).Draw(t, "stored"))
		},
		"commit": func(t *rapid.T) {
			session, w, _ := somewhere(t)
			l.repeat(t, session)
			w.step++
			w.recorded = max(w.recorded, l.tail(session).Sequence)
		},
		"end": func(t *rapid.T) {
			session, _, run := somewhere(t)
			l.write(t, session, &chunklog.Record{Kind: chunklog.Terminal, Run: run, Status: chunklog.Ended})
		},
		"rewind": func(t *rapid.T) {
			session, _, run := somewhere(t)
			l.rewind(t, session, run, rapid.Uint64Range(0, l.next).Draw(t, "from"))
		},
		"take over": func(t *rapid.T) {
			session, w, run := somewhere(t)
			w.epoch, w.number, w.former, w.unheard = w.epoch+1, 0, w.recorded, nil
			if rapid.Bool().Draw(t, "reset") {
				l.reset(t, session, run)
			} else {
				l.rewind(t, session, run, rapid.Uint64Range(0, w.recorded).Draw(t, "from"))
			}
		},
		"reset": func(t *rapid.T) {
			session, _, run := somewhere(t)
			l.reset(t, session, run)
		},
		"resume": func(t *rapid.T) {
			session, _, run := somewhere(t)
			l.resume(t, session, run)
		},
		"elsewhere": func(*rapid.T) { l.store(&chunklog.Record{Session: stranger, Kind: chunklog.Chunk}) },
		"remove": func(*rapid.T) {
			for _, remove := range l.pending {
				remove()
			}
			l.pending = nil
		},
		"join": func(t *rapid.T) {
			w := &watcher{family: rapid.Bool().Draw(t, "family"), held: map[string][]uint64{}}
			w.attach(l, 0)
			watchers = append(watchers, w)
		},
		"go on": func(t *rapid.T) {
			w := someone(t)
			for range rapid.IntRange(1, 6).Draw(t, "steps") {
				w.step(t, l)
			}
		},
		"come back": func(t *rapid.T) {
			w := someone(t)
			w.blind = w.blind || l.passedOver(w)
			w.attach(l, w.reader.Cursor())
		},
		"gap": func(t *rapid.T) { someone(t).replay() },
		"":    func(t *rapid.T) { each(watchers, func(w *watcher) { w.check(t, l) }) },
	}
	if troubled {
		actions["expire"] = func(t *rapid.T) {
			l.calm = false
			for _, session := range sessions { // nobody waits that long with a repetition
				l.repeat(t, session)
			}
			until := rapid.Uint64Range(l.began, l.next).Draw(t, "until")
			l.remove(func(r *chunklog.Record) bool { return r.Sequence < until })
		}
		actions["drop the oldest"] = func(t *rapid.T) {
			l.calm = false
			session, _, _ := somewhere(t)
			records := l.of(session)
			if len(records) < 2 {
				t.Skip("the last one stays")
			}
			until := records[rapid.IntRange(1, len(records)-1).Draw(t, "count")].Sequence
			l.remove(func(r *chunklog.Record) bool { return r.Session == session && r.Sequence < until })
		}
		actions["lose"] = func(t *rapid.T) {
			for _, w := range l.writers { // what was stored is known to its writer, or was recorded
				w.recorded = max(w.recorded, w.former)
			}
			l.lose(rapid.Uint64Range(2, 9).Draw(t, "reach"))
		}
	}
	for _, name := range without {
		delete(actions, name)
	}
	t.Repeat(actions)
}

func each(watchers []*watcher, do func(*watcher)) {
	for _, w := range watchers {
		do(w)
	}
}
