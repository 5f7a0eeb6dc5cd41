package bustest

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Harness is a log whose end can be taken from it.
type Harness interface {
	// Open opens the log as another process does. Its Run runs, and t.Cleanup ends
	// and closes it.
	Open(t *testing.T) bus.Bus
	// Snapshot notes what is stored. Nothing is written meanwhile.
	Snapshot(t *testing.T)
	// Restore puts back what was noted, as a power cut does. What was opened
	// before may be of no use any more; what is started outlives t.
	Restore(t *testing.T)
}

// patientHarness opens logs that are patient.
type patientHarness struct{ Harness }

func (h patientHarness) Open(t *testing.T) bus.Bus {
	t.Helper()
	return patient{h.Harness.Open(t)}
}

// PowerCut runs the suite of logs that lose what they had acknowledged.
func PowerCut(t *testing.T, h Harness) {
	t.Helper()
	h = patientHarness{h}
	t.Run("ALostEndIsSeenByWhoeverKnowsIt", func(t *testing.T) { loseEnd(t, h) })
	t.Run("ALostStreamIsSeenByWhoeverKnowsIt", func(t *testing.T) { loseStream(t, h) })
	t.Run("ALossIsSeenWhenOthersHaveWrittenOnPastIt", func(t *testing.T) { losePast(t, h) })
	t.Run("ALogThatLostNothingIsNotBegunAnew", func(t *testing.T) { loseNothing(t, h) })
	t.Run("SeveralProcessesThatSeeALossAgree", func(t *testing.T) {
		s := family(t)
		records := loss(t, h, s, s)
		logs := []bus.Bus{h.Open(t), h.Open(t), h.Open(t), h.Open(t)}
		renewAtOnce(t, logs, s, records[len(records)-1].Sequence)
	})
}

// loss writes four records of a stream, and three of one that are then lost, and
// returns all. Who has written them is gone by then, so that nobody but the test
// knows.
func loss(t *testing.T, h Harness, s, lost bus.Stream) []*chunklog.Record {
	t.Helper()
	var records []*chunklog.Record
	t.Run("Before", func(t *testing.T) {
		log := h.Open(t)
		records = appendMany(t, log, s, 4)
		h.Snapshot(t)
		for range 3 {
			records = append(records, appendOne(t, log, lost, chunk(1)))
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	h.Restore(t)
	return records
}

func loseEnd(t *testing.T, h Harness) {
	s := family(t)
	sibling := child(s, "sibling")
	records := loss(t, h, s, s)
	last := records[len(records)-1].Sequence
	log := h.Open(t)
	live := newSink()
	defer log.Follow(whole(s), live)()
	same(t, history(t, log, only(s), 0), records[:4])
	if mustRenew(t, log, s, records[3].Sequence) {
		t.Fatal("what is there began the log anew")
	}
	if twice := appendOne(t, log, sibling, chunk(1)); twice.Sequence > last {
		t.Fatalf("got sequence %d, and %d is lost: this log does not lose its end", twice.Sequence, last)
	}
	if !mustRenew(t, log, s, last) {
		t.Fatalf("%d is lost, and the log was not begun anew", last)
	}
	live.gapped(t)
	mustBeEmpty(t, log, s)
	mustBeEmpty(t, log, sibling)
	info := infoOf(t, log, s)
	if info.Began <= last {
		t.Fatalf("got a log that began at %d, and %d was known", info.Began, last)
	}
	next := appendOne(t, log, s, chunk(1))
	if next.Sequence < info.Began {
		t.Errorf("got sequence %d in a log that began at %d", next.Sequence, info.Began)
	}
	same(t, history(t, h.Open(t), whole(s), 0), []*chunklog.Record{next})
}

func loseStream(t *testing.T, h Harness) {
	s := family(t)
	lost := child(s, "lost")
	records := loss(t, h, s, lost)
	last := records[len(records)-1].Sequence
	log := h.Open(t)
	mustBeEmpty(t, log, lost)
	if !mustRenew(t, log, lost, last) {
		t.Fatalf("%d is lost, and the log was not begun anew", last)
	}
	mustBeEmpty(t, log, s)
}

func losePast(t *testing.T, h Harness) {
	s := family(t)
	sibling := child(s, "sibling")
	records := loss(t, h, s, s)
	last := records[len(records)-1].Sequence
	log := h.Open(t)
	var twice uint64
	for twice <= last+3 {
		twice = appendOne(t, log, sibling, chunk(1)).Sequence
	}
	if mustRenew(t, log, sibling, twice) {
		t.Fatal("what is there began the log anew")
	}
	if !mustRenew(t, log, s, last) {
		t.Fatalf("%d is lost, and the log was not begun anew", last)
	}
	if info := infoOf(t, log, s); info.Began <= twice {
		t.Fatalf("got a log that began at %d, and %d was given", info.Began, twice)
	}
	mustBeEmpty(t, log, sibling)
}

func loseNothing(t *testing.T, h Harness) {
	s := family(t)
	records := appendMany(t, h.Open(t), s, 5)
	h.Snapshot(t)
	h.Restore(t)
	log := h.Open(t)
	began := infoOf(t, log, s).Began
	for _, r := range records {
		if mustRenew(t, log, s, r.Sequence) {
			t.Fatalf("%d is there, and the log was begun anew", r.Sequence)
		}
	}
	same(t, history(t, log, only(s), 0), records)
	if next := appendOne(t, log, s, chunk(6)); next.Sequence <= records[4].Sequence {
		t.Errorf("got sequence %d after %d", next.Sequence, records[4].Sequence)
	}
	if info := infoOf(t, log, s); info.Began != began {
		t.Errorf("got a log that began at %d, want %d", info.Began, began)
	}
}
