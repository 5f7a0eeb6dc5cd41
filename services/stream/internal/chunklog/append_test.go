package chunklog_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	tail := chunklog.Tail{Sequence: 90, Epoch: 3, Number: 7, Kind: chunklog.Chunk, Run: "one"}
	ended := chunklog.Tail{Sequence: 90, Epoch: 3, Number: 7, Kind: chunklog.Terminal, Run: "one", Status: chunklog.Paused}
	settled := chunklog.Tail{Sequence: 90, Epoch: 3, Number: 7, Kind: chunklog.Marker, Run: "one", Status: chunklog.Ended}
	none := chunklog.Tail{}
	for name, c := range map[string]struct {
		tail     chunklog.Tail
		write    chunklog.Write
		decision chunklog.Decision
		reason   string
	}{
		"the next number is accepted":                     {tail, chunklog.Write{Epoch: 3, Number: 8}, chunklog.Accept, ""},
		"the same number is a repetition":                 {tail, chunklog.Write{Epoch: 3, Number: 7, Kind: chunklog.Chunk}, chunklog.Repeat, ""},
		"the same number of another kind is out of order": {tail, chunklog.Write{Epoch: 3, Number: 7, Kind: chunklog.Marker}, 0, "APPEND_OUT_OF_ORDER"},
		"a former number is out of order":                 {tail, chunklog.Write{Epoch: 3, Number: 6}, 0, "APPEND_OUT_OF_ORDER"},
		"a request that the tail is the first of":         {tail, chunklog.Write{Epoch: 3, Number: 7, Kind: chunklog.Chunk, More: 2}, chunklog.Repeat, ""},
		"a request that the tail is amid":                 {tail, chunklog.Write{Epoch: 3, Number: 6, Kind: chunklog.Chunk, More: 2, Former: 99}, chunklog.Repeat, ""},
		"a request that the tail is the last of":          {tail, chunklog.Write{Epoch: 3, Number: 5, Kind: chunklog.Chunk, More: 2}, chunklog.Repeat, ""},
		"a request that ends before the tail":             {tail, chunklog.Write{Epoch: 3, Number: 5, Kind: chunklog.Chunk, More: 1}, 0, "APPEND_OUT_OF_ORDER"},
		"a request that begins behind the next number":    {tail, chunklog.Write{Epoch: 3, Number: 9, Kind: chunklog.Chunk, More: 2}, 0, "APPEND_OUT_OF_ORDER"},
		"a request that begins with the next number":      {tail, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Chunk, More: 2}, chunklog.Accept, ""},
		"a request amid which the end of a run stands":    {ended, chunklog.Write{Epoch: 3, Number: 6, Kind: chunklog.Chunk, More: 2}, 0, "APPEND_OUT_OF_ORDER"},
		"a request of another epoch around the tail":      {tail, chunklog.Write{Epoch: 4, Number: 6, Kind: chunklog.Chunk, More: 2}, 0, "APPEND_OUT_OF_ORDER"},
		"a request of an old epoch around the tail":       {tail, chunklog.Write{Epoch: 2, Number: 6, Kind: chunklog.Chunk, More: 2}, 0, "WRITER_FENCED"},
		"a request of the highest numbers":                {tail, chunklog.Write{Epoch: 3, Number: math.MaxInt64, Kind: chunklog.Chunk, More: 63}, 0, "APPEND_OUT_OF_ORDER"},
		"a skipped number is out of order":                {tail, chunklog.Write{Epoch: 3, Number: 9}, 0, "APPEND_OUT_OF_ORDER"},
		"a new writer begins with 1":                      {tail, chunklog.Write{Epoch: 4, Number: 1}, chunklog.Accept, ""},
		"a new writer begins with nothing else":           {tail, chunklog.Write{Epoch: 4, Number: 8, Former: 90}, 0, "APPEND_OUT_OF_ORDER"},
		"epochs may be left out":                          {tail, chunklog.Write{Epoch: 9, Number: 1}, chunklog.Accept, ""},
		"an old writer is fenced":                         {tail, chunklog.Write{Epoch: 2, Number: 1}, 0, "WRITER_FENCED"},
		"an old writer is fenced whatever it knows":       {tail, chunklog.Write{Epoch: 2, Number: 8, Former: 90}, 0, "WRITER_FENCED"},
		"an old writer is fenced and raises no doubt":     {tail, chunklog.Write{Epoch: 2, Number: 8, Former: 99}, 0, "WRITER_FENCED"},
		"a repetition raises no doubt":                    {tail, chunklog.Write{Epoch: 3, Number: 7, Kind: chunklog.Chunk, Former: 99}, chunklog.Repeat, ""},
		"a writer knows a later record":                   {tail, chunklog.Write{Epoch: 3, Number: 8, Former: 91}, chunklog.Doubt, ""},
		"a doubt comes before a refusal":                  {tail, chunklog.Write{Epoch: 3, Number: 10, Former: 91}, chunklog.Doubt, ""},
		"a new writer knows a later record":               {tail, chunklog.Write{Epoch: 4, Number: 1, Former: 91}, chunklog.Doubt, ""},
		"a doubt comes before an ended run":               {ended, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Chunk, Run: "one", Former: 91}, chunklog.Doubt, ""},
		"a run that has ended writes no chunk":            {ended, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Chunk, Run: "one"}, 0, "STREAM_NOT_ACTIVE"},
		"nor does its next owner":                         {ended, chunklog.Write{Epoch: 4, Number: 1, Kind: chunklog.Chunk, Run: "one"}, 0, "STREAM_NOT_ACTIVE"},
		"nor behind a marker that settled it":             {settled, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Chunk, Run: "one"}, 0, "STREAM_NOT_ACTIVE"},
		"another run goes on":                             {ended, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Chunk, Run: "two"}, chunklog.Accept, ""},
		"a run may end again":                             {ended, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Terminal, Run: "one"}, chunklog.Accept, ""},
		"a marker goes behind the end":                    {ended, chunklog.Write{Epoch: 3, Number: 8, Kind: chunklog.Marker, Run: "one"}, chunklog.Accept, ""},
		"an empty stream begins with 1":                   {none, chunklog.Write{Epoch: 5, Number: 1}, chunklog.Accept, ""},
		"an empty stream begins with nothing else":        {none, chunklog.Write{Epoch: 5, Number: 2}, 0, "APPEND_OUT_OF_ORDER"},
		"a writer whose records have gone":                {none, chunklog.Write{Epoch: 5, Number: 57, Former: 80}, chunklog.Ask, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decision, err := chunklog.Decide(c.tail, c.write)
			if decision != c.decision || fault.ReasonOf(err) != c.reason {
				t.Errorf("got %v, %v; want %v, %q", decision, err, c.decision, c.reason)
			}
			want := fault.Stale
			if c.reason == "STREAM_NOT_ACTIVE" {
				want = fault.Conflict
			}
			if err != nil && fault.KindOf(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

func TestARequestIsStoredUpToATailThatIsOneOfItsRecords(t *testing.T) {
	t.Parallel()
	w := chunklog.Write{Epoch: 3, Number: 5, Kind: chunklog.Chunk, More: 2}
	for number, want := range map[int64]int64{3: 0, 4: 0, 5: 1, 6: 2, 7: 3, 8: 0} {
		tail := chunklog.Tail{Sequence: 90, Epoch: 3, Number: number, Kind: chunklog.Chunk}
		if got := w.Stored(tail); got != want {
			t.Errorf("the tail is number %d: %d are stored, want %d", number, got, want)
		}
		none, marker, other := tail, tail, tail
		none.Sequence, marker.Kind, other.Epoch = 0, chunklog.Marker, 4
		for _, tail := range []chunklog.Tail{none, marker, other} {
			if got := w.Stored(tail); got != 0 {
				t.Errorf("the tail is %+v: %d are stored, want none", tail, got)
			}
		}
	}
}

func TestAWriterWhoseRecordsHaveGone(t *testing.T) {
	t.Parallel()
	s := chunklog.Stand{Floor: 200, Top: 300, Began: 100}
	for _, c := range []struct {
		former   uint64
		kind     chunklog.Kind
		decision chunklog.Decision
		reason   string
	}{
		{100, chunklog.Chunk, chunklog.Accept, ""},
		{200, chunklog.Chunk, chunklog.Accept, ""},
		{200, chunklog.Marker, chunklog.Accept, ""},
		{201, chunklog.Chunk, chunklog.Doubt, ""},
		{201, chunklog.Marker, chunklog.Doubt, ""},
		{301, chunklog.Terminal, chunklog.Doubt, ""},
		{99, chunklog.Chunk, 0, "LOG_RENEWED"},
		{99, chunklog.Terminal, 0, "LOG_RENEWED"},
		{99, chunklog.Marker, chunklog.Anew, ""},
	} {
		decision, err := chunklog.Vanished(chunklog.Write{Kind: c.kind, Former: c.former}, s)
		if decision != c.decision || fault.ReasonOf(err) != c.reason || err != nil && fault.KindOf(err) != fault.Stale {
			t.Errorf("former %d, kind %d: got %v, %v; want %v, %q", c.former, c.kind, decision, err, c.decision, c.reason)
		}
	}
}

func TestARecordBehindNothingIsLinkedToWhatItsWriterRemembers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tail, former, want uint64 }{{0, 0, 0}, {0, 8, 8}, {9, 8, 9}, {9, 12, 9}} {
		var r chunklog.Record
		chunklog.Link(&r, chunklog.Tail{Sequence: c.tail}, c.former)
		if r.Prev != c.want {
			t.Errorf("tail %d, former %d: got %d, want %d", c.tail, c.former, r.Prev, c.want)
		}
	}
}

func TestRewind(t *testing.T) {
	t.Parallel()
	record := func(sequence uint64, kind chunklog.Kind, step int32) *chunklog.Record {
		return &chunklog.Record{Sequence: sequence, Prev: sequence - 1, Kind: kind, Step: step}
	}
	for name, c := range map[string]struct {
		records []*chunklog.Record // behind 10
		void    []uint64
		kept    int
		at      uint64
	}{
		"nothing":      {nil, nil, 0, 99},
		"all stand":    {[]*chunklog.Record{record(11, chunklog.Chunk, 1), record(12, chunklog.Chunk, 2)}, nil, 2, 99},
		"all are void": {[]*chunklog.Record{record(11, chunklog.Chunk, 3), record(12, chunklog.Chunk, 3)}, []uint64{11, 12}, 0, 10},
		"the end is void": {
			[]*chunklog.Record{record(11, chunklog.Chunk, 2), record(12, chunklog.Chunk, 3)}, []uint64{12}, 1, 11,
		},
		"what was written on top of a void chunk is void": {
			[]*chunklog.Record{record(11, chunklog.Chunk, 3), record(12, chunklog.Chunk, 2)}, []uint64{11, 12}, 0, 10,
		},
		"markers and terminal records are never void": {
			[]*chunklog.Record{record(11, chunklog.Chunk, 3), record(12, chunklog.Terminal, 0), record(13, chunklog.Marker, 0)}, []uint64{11}, 1, 10,
		},
		"what retention has removed before a void chunk is void": {
			[]*chunklog.Record{record(16, chunklog.Chunk, 3), record(17, chunklog.Chunk, 3)}, []uint64{16, 17}, 0, 10,
		},
		"so it is before a terminal record that a void chunk follows": {
			[]*chunklog.Record{record(16, chunklog.Terminal, 0), record(17, chunklog.Chunk, 3)}, []uint64{17}, 1, 10,
		},
		"what retention has removed before a chunk that stands stood": {
			[]*chunklog.Record{record(16, chunklog.Chunk, 2), record(17, chunklog.Chunk, 3)}, []uint64{17}, 1, 16,
		},
		"what a former rewind has voided is not void again": {
			[]*chunklog.Record{
				record(16, chunklog.Terminal, 0),
				{Sequence: 17, Prev: 16, Kind: chunklog.Marker, At: 10},
				record(18, chunklog.Chunk, 3),
			}, []uint64{18}, 1, 17,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rewind := chunklog.Rewind{From: 10, Step: 2}
			for _, r := range c.records {
				rewind.Take(r)
			}
			marker := chunklog.Record{Prev: 99}
			rewind.Mark(&marker, chunklog.Tail{Sequence: 99, Run: "other"})
			if len(rewind.Void) != len(c.void) || len(rewind.Kept) != c.kept || marker.At != c.at {
				t.Fatalf("got void %v, %d kept, at %d; want %v, %d, %d", rewind.Void, len(rewind.Kept), marker.At, c.void, c.kept, c.at)
			}
			for i := range c.void {
				if rewind.Void[i] != c.void[i] {
					t.Errorf("got void %v, want %v", rewind.Void, c.void)
				}
			}
		})
	}
}

func TestAMarkerKeepsTheStatusThatItsOwnRunLeft(t *testing.T) {
	t.Parallel()
	tail := chunklog.Tail{Sequence: 5, Run: "one", Kind: chunklog.Terminal, Status: chunklog.Ended}
	for run, want := range map[string]chunklog.Status{"one": chunklog.Ended, "two": chunklog.Active} {
		marker := chunklog.Record{Run: run}
		new(chunklog.Rewind).Mark(&marker, tail)
		if marker.Status != want {
			t.Errorf("run %s: got %v, want %v", run, marker.Status, want)
		}
	}
}

func TestMarkersSayWhatTheyVoid(t *testing.T) {
	t.Parallel()
	none, tail := chunklog.Tail{}, chunklog.Tail{Sequence: 90, Run: "run", Kind: chunklog.Terminal, Status: chunklog.Ended}
	for name, c := range map[string]struct {
		tail   chunklog.Tail
		former uint64
		mark   func(marker *chunklog.Record, tail chunklog.Tail)
		want   chunklog.Record
	}{
		"a rewind of nothing": {
			none, 0, new(chunklog.Rewind).Mark, chunklog.Record{},
		},
		"a rewind of what retention has removed": {
			none, 80, new(chunklog.Rewind).Mark, chunklog.Record{Prev: 80, At: 80},
		},
		"a rewind that voids nothing": {
			tail, 80, new(chunklog.Rewind).Mark, chunklog.Record{Prev: 90, At: 90, Status: chunklog.Ended},
		},
		"a rewind in a log that was begun anew": {
			none, 80, func(m *chunklog.Record, tail chunklog.Tail) {
				new(chunklog.Rewind).Mark(m, tail)
				chunklog.MarkAnew(m)
			}, chunklog.Record{Prev: 80, Anew: true},
		},
		"a resume": {
			tail, 80, func(m *chunklog.Record, _ chunklog.Tail) { chunklog.MarkResume(m) }, chunklog.Record{Prev: 90, At: 90},
		},
		"a resume of what retention has removed": {
			none, 80, func(m *chunklog.Record, _ chunklog.Tail) { chunklog.MarkResume(m) }, chunklog.Record{Prev: 80, At: 80},
		},
		"a reset": {
			tail, 80, func(m *chunklog.Record, tail chunklog.Tail) { chunklog.MarkReset(m, tail, 70) }, chunklog.Record{Prev: 90},
		},
		"a reset of what retention has removed": {
			none, 0, func(m *chunklog.Record, tail chunklog.Tail) { chunklog.MarkReset(m, tail, 70) }, chunklog.Record{Prev: 70},
		},
	} {
		got := chunklog.Record{Run: "run"}
		chunklog.Link(&got, c.tail, c.former)
		c.mark(&got, c.tail)
		if got.Prev != c.want.Prev || got.At != c.want.At || got.Anew != c.want.Anew || got.Status != c.want.Status {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	var f chunklog.Feed
	for i, c := range []struct {
		sequence uint64
		want     chunklog.Arrival
	}{{1, chunklog.InOrder}, {2, chunklog.InOrder}, {2, chunklog.Again}, {1, chunklog.Again}, {4, chunklog.AfterGap}, {3, chunklog.Again}, {5, chunklog.InOrder}} {
		if got := f.Arrive(c.sequence); got != c.want {
			t.Errorf("arrival %d of %d: got %v, want %v", i, c.sequence, got, c.want)
		}
	}
}

func TestALostTailShowsAtTheSecondCheck(t *testing.T) {
	t.Parallel()
	f := chunklog.Feed{Seen: 10}
	if f.Check(12) {
		t.Error("the first check says lost: the records may be on their way")
	}
	if !f.Check(12) {
		t.Error("the second check does not say lost")
	}
	if f.Check(12) {
		t.Error("the third check says lost again")
	}
	if f.Check(14); f.Arrive(13) != chunklog.InOrder || f.Arrive(14) != chunklog.InOrder {
		t.Error("records that were on their way are not in order")
	}
	if f.Check(14) {
		t.Error("a feed that has everything is lost")
	}
	if !f.Check(3) {
		t.Error("a log that ends before what was seen is not lost")
	}
}

// TestWhateverWritersTryTheLogStaysInOrder lets writers of several epochs
// write, repeat and guess. What is stored must be epochs that only rise, each
// with the numbers 1, 2, 3 and so on.
func TestWhateverWritersTryTheLogStaysInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var stored []chunklog.Tail
		var tail chunklog.Tail
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				w := chunklog.Write{
					Epoch:  rapid.Int64Range(1, 4).Draw(t, "epoch"),
					Number: rapid.Int64Range(1, 5).Draw(t, "number"),
					Kind:   rapid.SampledFrom([]chunklog.Kind{chunklog.Chunk, chunklog.Marker}).Draw(t, "kind"),
				}
				decision, err := chunklog.Decide(tail, w)
				switch {
				case err != nil:
				case decision == chunklog.Repeat:
					if w.Epoch != tail.Epoch || w.Number != tail.Number || w.Kind != tail.Kind {
						t.Fatalf("%+v is taken for a repetition of %+v", w, tail)
					}
				default:
					tail = chunklog.Tail{Sequence: tail.Sequence + 3, Epoch: w.Epoch, Number: w.Number, Kind: w.Kind}
					stored = append(stored, tail)
				}
			},
			"": func(t *rapid.T) {
				former := chunklog.Tail{}
				for _, r := range stored {
					if next := r.Epoch == former.Epoch && r.Number == former.Number+1; !next && (r.Epoch <= former.Epoch || r.Number != 1) {
						t.Fatalf("%+v stands behind %+v", r, former)
					}
					former = r
				}
			},
		})
	})
}
