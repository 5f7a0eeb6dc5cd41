package bustest

import (
	"bytes"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func runHistory(t *testing.T, log bus.Bus) {
	t.Run("HistoryAfterEveryCursorIsTheRest", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		records := appendMany(t, log, s, 12)
		same(t, history(t, log, only(s), 0), records)
		for i, r := range records {
			same(t, history(t, log, only(s), r.Sequence), records[i+1:])
			same(t, history(t, log, only(s), r.Sequence-1), records[i:])
		}
		same(t, history(t, log, only(s), records[11].Sequence+1000), nil)
	})
	t.Run("AFamilyIsReadInOneOrderAndASessionAlone", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		a, b := child(s, "a"), child(s, "b")
		want := []*chunklog.Record{
			appendOne(t, log, s, chunk(1)), appendOne(t, log, b, chunk(1)), appendOne(t, log, a, chunk(1)),
			appendOne(t, log, b, chunk(2)), appendOne(t, log, s, chunk(2)), appendOne(t, log, a, chunk(2)),
		}
		same(t, history(t, log, whole(s), 0), want)
		same(t, history(t, log, whole(s), want[2].Sequence), want[3:])
		same(t, history(t, log, only(b), 0), []*chunklog.Record{want[1], want[3]})
	})
	t.Run("ALongHistoryComesInPages", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		want := appendMany(t, log, s, 600)
		same(t, history(t, log, only(s), 0), want)
	})
	t.Run("AHeavyHistoryComesInPages", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		var want []*chunklog.Record
		for i := range 12 {
			r := chunk(int64(i + 1))
			r.Payload = bytes.Repeat([]byte{byte(i)}, 300<<10)
			want = append(want, appendOne(t, log, s, r))
		}
		page, err := log.History(t.Context(), only(s), 0)
		if err != nil || !page.More {
			t.Fatalf("got a page with more = %v, %v; want several pages", page.More, err)
		}
		same(t, history(t, log, only(s), 0), want)
	})
	t.Run("InfoSaysWhereTheStreamAndItsPartitionStand", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		if info, err := log.Info(t.Context(), s); err != nil || info.First != 0 || info.Last != 0 || info.Count != 0 {
			t.Fatalf("got %+v, %v; want nothing", info, err)
		}
		records := appendMany(t, log, s, 3)
		info, err := log.Info(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if info.First != records[0].Sequence || info.Last != records[2].Sequence || info.Count != 3 {
			t.Errorf("got %+v, want 3 records from %d to %d", info, records[0].Sequence, records[2].Sequence)
		}
		if info.Floor >= info.First || info.Top < info.Last {
			t.Errorf("got floor %d and top %d, want them around the stream", info.Floor, info.Top)
		}
	})
}
