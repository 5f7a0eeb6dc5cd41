package bustest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func runOrder(t *testing.T, log bus.Bus) {
	t.Run("TwoWritersOfOneStreamTakeTurnsAndLoseNothing", func(t *testing.T) {
		t.Parallel()
		contend(t, log)
	})
	t.Run("TheSessionsOfAFamilyHaveOneOrder", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		live := newSink()
		defer log.Follow(whole(s), live)()
		want := writeFamily(t, log, s, 5, 40)
		got := history(t, log, whole(s), 0)
		inOrder(t, got, want)
		same(t, live.wait(t, 0, len(got)), got)
	})
	t.Run("WhoeverJoinsAFamilyThatWritesGetsItsOneOrder", func(t *testing.T) {
		t.Parallel()
		joinFamily(t, log)
	})
}

// contend lets two writers append to one stream, each behind what it takes for
// the last record, until each has stored its records.
func contend(t *testing.T, log bus.Bus) {
	const each = 40
	s := family(t)
	var acknowledged [2]map[uint64]string
	var group sync.WaitGroup
	for i := range acknowledged {
		acknowledged[i] = map[uint64]string{}
		group.Go(func() {
			for number := range each {
				payload := fmt.Sprintf("writer %d, number %d", i, number)
				sequence, err := appendContended(t, log, s, payload)
				if err != nil {
					t.Error(err)
					return
				}
				acknowledged[i][sequence] = payload
			}
		})
	}
	group.Wait()
	records := history(t, log, only(s), 0)
	if len(records) != 2*each {
		t.Fatalf("got %d records, want %d", len(records), 2*each)
	}
	var former uint64
	for _, r := range records {
		if r.Prev != former {
			t.Fatalf("record %d was stored behind %d, and %d stands before it", r.Sequence, r.Prev, former)
		}
		former = r.Sequence
		if payload := string(r.Payload); acknowledged[0][r.Sequence] != payload && acknowledged[1][r.Sequence] != payload {
			t.Fatalf("record %d holds %q, which nobody was told", r.Sequence, payload)
		}
	}
}

// appendContended appends behind the last record, whoever wrote it, and gives up
// when another one was the last for too long.
func appendContended(t *testing.T, log bus.Bus, s bus.Stream, payload string) (uint64, error) {
	for deadline := time.Now().Add(patience); ; {
		last, err := log.Last(t.Context(), s)
		if err != nil {
			return 0, err
		}
		r := chunk(1)
		r.Payload = []byte(payload)
		chunklog.Link(r, tailOf(last), 0)
		sequence, err := log.Append(t.Context(), s, r.Prev, r)
		if !errors.Is(err, bus.ErrConflict) || time.Now().After(deadline) {
			return sequence, err
		}
	}
}

// writeFamily has sessions of the family write at once, each its records, and
// returns what was acknowledged to each.
func writeFamily(t *testing.T, log bus.Bus, s bus.Stream, sessions, each int) [][]*chunklog.Record {
	t.Helper()
	written := make([][]*chunklog.Record, sessions)
	errs := make([]error, sessions)
	var group sync.WaitGroup
	for i := range written {
		group.Go(func() { written[i], errs[i] = writeSession(t, log, child(s, fmt.Sprint("session ", i)), each) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return written
}

// writeSession appends the records of a session that nobody else writes.
func writeSession(t *testing.T, log bus.Bus, s bus.Stream, count int) ([]*chunklog.Record, error) {
	var written []*chunklog.Record
	var former uint64
	for number := range count {
		r := chunk(int64(number + 1))
		r.Prev, r.Session = former, s.Session
		r.Payload = fmt.Appendf(nil, "%s, number %d", s.Session, number)
		sequence, err := log.Append(t.Context(), s, former, r)
		if err != nil {
			return nil, err
		}
		r.Sequence, former = sequence, sequence
		written = append(written, r)
	}
	return written, nil
}

// inOrder wants the records to rise, and to be those of all the sessions, each
// in its order.
func inOrder(t *testing.T, got []*chunklog.Record, want [][]*chunklog.Record) {
	t.Helper()
	bySession := map[string][]*chunklog.Record{}
	var former uint64
	for _, r := range got {
		if r.Sequence <= former {
			t.Fatalf("got record %d after %d", r.Sequence, former)
		}
		former = r.Sequence
		bySession[r.Session] = append(bySession[r.Session], r)
	}
	for _, records := range want {
		same(t, bySession[records[0].Session], records)
		delete(bySession, records[0].Session)
	}
	if len(bySession) > 0 {
		t.Fatalf("got records of %d sessions that wrote none", len(bySession))
	}
}

// joinFamily joins again and again while several sessions write: what is stored
// at some time after Follow and what is told after that make the whole family.
func joinFamily(t *testing.T, log bus.Bus) {
	const sessions, each = 4, 60
	s := family(t)
	var written [][]*chunklog.Record
	var group sync.WaitGroup
	group.Go(func() { written = writeFamily(t, log, s, sessions, each) })
	type reader struct {
		sink   *sink
		stored []*chunklog.Record
	}
	var readers []reader
	for len(readers) < 20 {
		r := reader{sink: newSink()}
		defer log.Follow(whole(s), r.sink)()
		r.stored = history(t, log, whole(s), 0)
		readers = append(readers, r)
	}
	group.Wait()
	if written == nil {
		t.FailNow() // the writers said why
	}
	for _, r := range readers {
		var cursor uint64
		if n := len(r.stored); n > 0 {
			cursor = r.stored[n-1].Sequence
		}
		inOrder(t, append(r.stored, r.sink.wait(t, cursor, sessions*each-len(r.stored))...), written)
	}
}
