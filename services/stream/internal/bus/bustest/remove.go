package bustest

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func runRemove(t *testing.T, log bus.Bus, open Opener) {
	t.Run("PurgeRemovesWhatIsBeforeTheSequence", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		other := child(s, "other")
		mine := appendMany(t, log, s, 3)
		others := appendMany(t, log, other, 2)
		mine = append(mine, appendOne(t, log, s, chunk(4)), appendOne(t, log, s, chunk(5)))
		for _, before := range []uint64{0, 1, mine[0].Sequence} {
			purge(t, log, s, before)
			same(t, history(t, log, only(s), 0), mine)
		}
		for range 2 { // repeating it is safe
			purge(t, log, s, mine[3].Sequence)
			becomes(t, log, only(s), mine[3:])
			becomes(t, log, whole(s), []*chunklog.Record{others[0], others[1], mine[3], mine[4]})
		}
		next := appendOne(t, log, s, chunk(6))
		if next.Prev != mine[4].Sequence {
			t.Errorf("the next record was stored behind %d, want %d", next.Prev, mine[4].Sequence)
		}
		same(t, history(t, log, only(other), 0), others)
	})
	t.Run("AStreamThatWasPurgedWholeIsEmptyAndGoesOnAbove", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		live := newSink()
		defer log.Follow(only(s), live)()
		records := appendMany(t, log, s, 3)
		purge(t, log, s, records[2].Sequence+1)
		mustBeEmpty(t, log, s)
		next := appendOne(t, log, s, chunk(4))
		if next.Sequence <= records[2].Sequence {
			t.Errorf("got sequence %d again after %d", next.Sequence, records[2].Sequence)
		}
		same(t, live.wait(t, 0, 4), append(records, next))
	})
	t.Run("EveryLegalIdCanBePurged", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		var kept []*chunklog.Record
		for _, id := range hostile {
			records := appendMany(t, log, child(s, id), 2)
			kept = append(kept, records[1])
			purge(t, log, child(s, id), records[1].Sequence)
		}
		becomes(t, log, whole(s), kept)
	})
	t.Run("ASessionKeepsItsLastRecordsAndNobodyElsesAreTouched", func(t *testing.T) {
		t.Parallel()
		retain(t, open(t, Options{SessionRecords: 5}))
	})
}

// retain writes more than a session keeps.
func retain(t *testing.T, log bus.Bus) {
	s := family(t)
	quiet := child(s, "quiet")
	live := newSink()
	defer log.Follow(whole(s), live)()
	quiets := appendMany(t, log, quiet, 3)
	loud := appendMany(t, log, s, 12)
	same(t, live.wait(t, 0, 15), append(append([]*chunklog.Record(nil), quiets...), loud...))
	same(t, history(t, log, only(s), 0), loud[7:])
	same(t, history(t, log, only(s), loud[2].Sequence), loud[7:])
	same(t, history(t, log, only(quiet), 0), quiets)
	info := infoOf(t, log, s)
	if info.First != loud[7].Sequence || info.Last != loud[11].Sequence || info.Count != 5 {
		t.Errorf("got %+v, want 5 records from %d to %d", info, loud[7].Sequence, loud[11].Sequence)
	}
	if info.Floor >= quiets[0].Sequence {
		t.Errorf("got floor %d, and record %d is kept", info.Floor, quiets[0].Sequence)
	}
	if mustRenew(t, log, s, loud[0].Sequence) {
		t.Error("a record that went because there were too many was taken for lost")
	}
	if next := appendOne(t, log, s, chunk(13)); next.Prev != loud[11].Sequence {
		t.Errorf("the next record was stored behind %d, want %d", next.Prev, loud[11].Sequence)
	}
	same(t, history(t, log, only(s), 0)[:4], loud[8:])
}

func purge(t *testing.T, log bus.Bus, s bus.Stream, before uint64) {
	t.Helper()
	if err := log.Purge(t.Context(), s, before); err != nil {
		t.Fatalf("purge before %d: %v", before, err)
	}
}

func infoOf(t *testing.T, log bus.Bus, s bus.Stream) bus.Info {
	t.Helper()
	info, err := log.Info(t.Context(), s)
	if err != nil {
		t.Fatalf("info: %v", err)
	}
	return info
}

// mustBeEmpty wants every look at the stream to find nothing.
func mustBeEmpty(t *testing.T, log bus.Bus, s bus.Stream) {
	t.Helper()
	last, err := log.Last(t.Context(), s)
	if err != nil || last != nil {
		t.Fatalf("got last %+v, %v; want nothing", last, err)
	}
	same(t, history(t, log, only(s), 0), nil)
	if info := infoOf(t, log, s); info.First != 0 || info.Last != 0 || info.Count != 0 {
		t.Fatalf("got %+v, want nothing of the stream", info)
	}
}
