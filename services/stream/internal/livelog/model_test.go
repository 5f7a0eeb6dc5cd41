package livelog_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
)

// stored is a message of the model's log.
type stored struct {
	epoch   int64
	records []livelog.Record
	content int // distinguishes messages with equal sequences
}

func (s stored) last() int64 { return s.records[len(s.records)-1].Last() }

// writer is an owner of the session. It keeps its last request until the answer arrives.
type writer struct {
	epoch   int64
	step    int32
	attempt int32
	after   int64 // its last appended frame
	pending *livelog.Request
	content int
	restart bool // its next record begins an attempt
	// confirmed: the log has answered its first append. It commits nothing before.
	confirmed bool
	finished  bool
}

// database is the session as the state service has it.
type database struct {
	epoch  int64
	steps  int32 // committed, or skipped
	claims int32
}

// machine is a log with the session's owners. All but the last owner count as dead and may not know it. The log may lose
// records, or the database commits; not both, since only one of them then knows which positions were used.
type machine struct {
	log      []stored
	writers  []*writer
	db       database
	epochs   map[int64]bool // ever given to a claim
	backup   database
	lossy    string // "log" or "database"
	contents int
	acked    map[int]bool  // acknowledged contents, not lost since
	fence    int64         // the highest epoch in the log since the last loss
	given    map[int64]int // content by the sequence of each frame ever stored
}

func (m *machine) tail() livelog.Tail {
	if len(m.log) == 0 {
		return livelog.Tail{}
	}
	last := m.log[len(m.log)-1]
	return livelog.Tail{Epoch: last.epoch, Last: last.last()}
}

// claim adds an owner. Its epoch is random, so it may be above or below those of claims that the database has lost.
func (m *machine) claim(t *rapid.T) {
	m.db.epoch += rapid.Int64Range(0, 3).Draw(t, "epochs") * 1000
	for m.db.epoch++; m.epochs[m.db.epoch]; m.db.epoch++ {
	}
	m.epochs[m.db.epoch] = true
	m.db.claims++
	first, _ := position.Attempts(m.db.claims)
	m.writers = append(m.writers, &writer{epoch: m.db.epoch, step: m.db.steps + 1, attempt: first, restart: true})
}

// owns reports whether the writer's claim is in force.
func (m *machine) owns(w *writer) bool { return w.epoch == m.db.epoch }

// release ends the writer's claim. The session goes on above what was seen of it.
func (m *machine) release(w *writer, epoch int64, step int32) {
	w.finished = true
	w.pending = nil
	if !m.owns(w) {
		return
	}
	m.db.epoch = max(m.db.epoch, epoch)
	if step > m.db.steps {
		m.db.steps, m.db.claims = step, 0
	}
}

// next returns the writer's next request with one to four records.
func (m *machine) next(t *rapid.T, w *writer) *livelog.Request {
	m.contents++
	w.content = m.contents
	r := livelog.Request{Epoch: w.epoch, After: w.after}
	last := w.after
	for range rapid.IntRange(1, 4).Draw(t, "records") {
		record := m.nextRecord(t, w, last)
		last = record.Last()
		r.Records = append(r.Records, record)
	}
	return &r
}

func (m *machine) nextRecord(t *rapid.T, w *writer, last int64) livelog.Record {
	if m.owns(w) && w.step == m.db.steps+1 && w.confirmed && !w.restart && rapid.IntRange(0, 4).Draw(t, "commit") == 0 {
		r := livelog.Record{Sequence: position.Committed(w.step), Boundary: &livelog.Boundary{Last: last, Committed: true}}
		m.db.steps, m.db.claims = w.step, 0
		w.step++
		w.attempt, _ = position.Attempts(0)
		w.restart = true
		return r
	}
	r := livelog.Record{Sequence: last + 1, Chunks: rapid.IntRange(1, 3).Draw(t, "chunks")}
	if w.restart {
		r.Sequence, r.Attempt, w.restart = at(w.step, w.attempt, 1), &livelog.Attempt{}, false
	}
	return r
}

// send sends the writer's request to the log. The answer may be lost.
func (m *machine) send(t *rapid.T, w *writer, answered bool) {
	if w.pending == nil {
		w.pending = m.next(t, w)
	}
	r := *w.pending
	if err := livelog.Validate(r); err != nil {
		t.Fatalf("a writer sends an invalid request: %v", err)
	}
	before := m.tail()
	store, err := livelog.Decide(before, r)
	if n := len(m.log); n > 0 && m.log[n-1].content == w.content && (store || err != nil) {
		t.Fatalf("a repeated request got %v, %v", store, err)
	}
	if err == nil && r.Epoch < m.fence {
		t.Fatalf("epoch %d was answered with success behind epoch %d", r.Epoch, m.fence)
	}
	if store {
		m.store(t, before, r, w.content)
	}
	if !answered {
		return
	}
	m.answer(t, w, r, err)
}

func (m *machine) store(t *rapid.T, before livelog.Tail, r livelog.Request, content int) {
	former := before.Last
	for _, record := range r.Records {
		if record.Sequence <= former {
			t.Fatalf("sequence %d was stored behind %d", record.Sequence, former)
		}
		former = record.Last()
		for s := record.Sequence; s <= former; s++ {
			if other, ok := m.given[s]; ok && other != content {
				t.Fatalf("sequence %d has two meanings", s)
			}
			m.given[s] = content
		}
	}
	m.log = append(m.log, stored{r.Epoch, r.Records, content})
	m.fence = max(m.fence, r.Epoch)
}

func (m *machine) answer(t *rapid.T, w *writer, r livelog.Request, err error) {
	switch fault.ReasonOf(err) {
	case "WRITER_FENCED", "LOG_AHEAD":
		if m.owns(w) && m.lossy != "database" || w.confirmed && fault.ReasonOf(err) == "LOG_AHEAD" {
			t.Fatalf("epoch %d got %v", w.epoch, err)
		}
		tail := m.tail()
		if f, _ := fault.From(err); f.Meta["lastEpoch"] != fmt.Sprint(tail.Epoch) || f.Meta["lastStep"] != fmt.Sprint(position.Of(tail.Last).Step) {
			t.Fatalf("%v names %v, want %+v", err, f.Meta, tail)
		}
		m.release(w, tail.Epoch, position.Of(tail.Last).Step)
	case "RECORDS_LOST":
		w.attempt++
		w.restart = true
	case "":
		// After a success the records are in the log.
		if !m.holds(w.content) {
			t.Fatalf("content %d was acknowledged and is not stored", w.content)
		}
		m.acked[w.content] = true
		w.after, w.confirmed = r.Last(), true
	default:
		t.Fatalf("got %v", err)
	}
	w.pending = nil
}

func (m *machine) holds(content int) bool {
	for _, r := range m.log {
		if r.content == content {
			return true
		}
	}
	return false
}

// lose drops the tail of the log, or everything.
func (m *machine) lose(keep int) {
	for _, r := range m.log[keep:] {
		delete(m.acked, r.content)
	}
	m.log = m.log[:keep]
	m.fence = m.tail().Epoch
}

// verify reads the log: acknowledged records that were not lost are present once, in order, and no attempt has a
// gap.
func (m *machine) verify(t *rapid.T) {
	seen := map[int]bool{}
	var epoch, last int64
	for _, message := range m.log {
		if message.epoch < epoch {
			t.Fatalf("%+v lies behind epoch %d", message, epoch)
		}
		epoch = message.epoch
		for _, r := range message.records {
			if r.Sequence <= last {
				t.Fatalf("%+v lies behind %d", r, last)
			}
			if p := position.Of(r.Sequence); r.Boundary == nil && p.N > 1 && last != r.Sequence-1 {
				t.Fatalf("%+v lies behind a hole: %d", r, last)
			}
			last = r.Last()
		}
		if seen[message.content] {
			t.Fatalf("content %d is stored twice", message.content)
		}
		seen[message.content] = true
	}
	for content := range m.acked {
		if !seen[content] {
			t.Fatalf("content %d was acknowledged, was not lost, and is not there", content)
		}
	}
}

func TestWhatIsAcknowledgedIsReadOnceInOrderUntilItIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { repeat(t, "log") })
}

// No position has two meanings, although the database forgets which it has given.
func TestASessionGoesOnAboveWhatItsDatabaseHasLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { repeat(t, "database") })
}

func repeat(t *rapid.T, lossy string) {
	m := &machine{lossy: lossy, epochs: map[int64]bool{}, acked: map[int]bool{}, given: map[int64]int{}}
	m.claim(t)
	pick := func(t *rapid.T) *writer {
		var alive []*writer
		for _, w := range m.writers {
			if !w.finished {
				alive = append(alive, w)
			}
		}
		if len(alive) == 0 {
			m.claim(t)
			return m.writers[len(m.writers)-1]
		}
		return alive[len(alive)-1-rapid.IntRange(0, len(alive)-1).Draw(t, "writer")]
	}
	actions := map[string]func(*rapid.T){
		"send":              func(t *rapid.T) { m.send(t, pick(t), true) },
		"sendAndLoseAnswer": func(t *rapid.T) { m.send(t, pick(t), false) },
		"claim": func(t *rapid.T) {
			if m.db.claims < 5 && len(m.writers) < 12 {
				m.claim(t)
			}
		},
		"": m.verify,
	}
	if lossy == "log" {
		actions["lose"] = func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "often") == 0 {
				m.lose(rapid.IntRange(0, len(m.log)).Draw(t, "keep"))
			}
		}
	} else {
		actions["backup"] = func(*rapid.T) { m.backup = m.db }
		actions["restore"] = func(t *rapid.T) {
			m.db = m.backup
			for _, w := range m.writers { // a claim that the backup has too: its next write finds the lost steps
				if m.owns(w) && !w.finished && w.step > m.db.steps+1 {
					m.release(w, w.epoch, w.step)
				}
			}
			if rapid.Bool().Draw(t, "claimed") {
				m.claim(t)
			}
		}
	}
	t.Repeat(actions)
}
