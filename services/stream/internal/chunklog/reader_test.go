package chunklog_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func chunkOf(session string, sequence, prev uint64) *chunklog.Record {
	return &chunklog.Record{Session: session, Sequence: sequence, Prev: prev, Kind: chunklog.Chunk, Run: "run"}
}

func terminalOf(session, run string, sequence, prev uint64) *chunklog.Record {
	return &chunklog.Record{Session: session, Sequence: sequence, Prev: prev, Kind: chunklog.Terminal, Run: run, Status: chunklog.Ended}
}

func markerOf(run string, sequence, prev, at uint64) *chunklog.Record {
	return &chunklog.Record{Session: "s", Sequence: sequence, Prev: prev, Kind: chunklog.Marker, Run: run, At: at}
}

var verdicts = map[chunklog.Verdict]string{
	chunklog.Skip: "skip", chunklog.Give: "give", chunklog.Rewound: "rewound", chunklog.End: "end", chunklog.CaughtUp: "caught up",
}

// told shows stored records to a reader, settles, shows live ones, and returns
// the verdicts.
func told(r *chunklog.Reader, stored, live []*chunklog.Record) []string {
	var words []string
	for _, rec := range stored {
		words = append(words, verdicts[r.Take(rec, false)])
	}
	verdict, _ := r.Settle()
	words = append(words, verdicts[verdict])
	for _, rec := range live {
		words = append(words, verdicts[r.Take(rec, true)])
	}
	return words
}

func TestReader(t *testing.T) {
	t.Parallel()
	type records = []*chunklog.Record
	for name, c := range map[string]struct {
		reader       *chunklog.Reader
		stored, live records
		want         []string
	}{
		"stored, then live": {
			chunklog.NewReader("s", "", 0), records{chunkOf("s", 1, 0), chunkOf("s", 5, 1)}, records{chunkOf("s", 6, 5)},
			[]string{"give", "give", "caught up", "give"},
		},
		"what was taken is skipped": {
			chunklog.NewReader("s", "", 5), records{chunkOf("s", 5, 1), chunkOf("s", 7, 5)}, records{chunkOf("s", 7, 5), chunkOf("s", 8, 7)},
			[]string{"skip", "give", "caught up", "skip", "give"},
		},
		"a stored terminal record that is the last one ends": {
			chunklog.NewReader("s", "", 0), records{chunkOf("s", 1, 0), terminalOf("s", "run", 2, 1)}, nil,
			[]string{"give", "skip", "end"},
		},
		"a stored terminal record with a chunk behind it does not": {
			chunklog.NewReader("s", "", 0), records{terminalOf("s", "run", 2, 1), chunkOf("s", 3, 2)}, nil,
			[]string{"skip", "give", "caught up"},
		},
		"a live terminal record ends": {
			chunklog.NewReader("s", "", 0), nil, records{terminalOf("s", "run", 2, 0)},
			[]string{"caught up", "end"},
		},
		"only the terminal record of the run ends": {
			chunklog.NewReader("s", "two", 0), records{terminalOf("s", "one", 2, 0), chunkOf("s", 3, 2)}, records{terminalOf("s", "one", 4, 3), terminalOf("s", "two", 5, 4)},
			[]string{"skip", "give", "caught up", "skip", "end"},
		},
		"a run's stored terminal record ends at once": {
			chunklog.NewReader("s", "one", 0), records{terminalOf("s", "one", 2, 0)}, nil,
			[]string{"end", "caught up"},
		},
		"a marker of another run displaces a terminal record": {
			chunklog.NewReader("s", "", 0), records{terminalOf("s", "one", 2, 0), markerOf("two", 3, 2, 2)}, nil,
			[]string{"skip", "skip", "caught up"},
		},
		"a marker of the same run does not": {
			chunklog.NewReader("s", "", 0),
			records{terminalOf("s", "one", 2, 0), {Session: "s", Sequence: 3, Prev: 2, Kind: chunklog.Marker, Run: "one", At: 2, Status: chunklog.Ended}}, nil,
			[]string{"skip", "skip", "end"},
		},
		"a marker is told to who was given what it voids": {
			chunklog.NewReader("s", "", 0), records{chunkOf("s", 1, 0), chunkOf("s", 2, 1), markerOf("run", 3, 2, 1)}, nil,
			[]string{"give", "give", "rewound", "caught up"},
		},
		"a marker is not told to others": {
			chunklog.NewReader("s", "", 0), records{chunkOf("s", 1, 0), markerOf("run", 3, 2, 1)}, nil,
			[]string{"give", "skip", "caught up"},
		},
		"a second marker is told only for what came after the first": {
			chunklog.NewReader("s", "", 0),
			records{chunkOf("s", 1, 0), chunkOf("s", 2, 1), markerOf("run", 3, 2, 1), markerOf("run", 4, 3, 1), chunkOf("s", 5, 4), markerOf("run", 6, 5, 4)}, nil,
			[]string{"give", "give", "rewound", "skip", "give", "rewound", "caught up"},
		},
		"a cursor above a marker's at may hold what it voids": {
			chunklog.NewReader("s", "", 2), records{markerOf("run", 3, 2, 1)}, nil,
			[]string{"rewound", "caught up"},
		},
		"a child's terminal record does not end the family": {
			chunklog.NewReader("s", "", 0), records{chunkOf("s", 1, 0), chunkOf("c", 2, 0), terminalOf("c", "child", 3, 2)}, records{terminalOf("c", "child", 4, 3)},
			[]string{"give", "give", "skip", "caught up", "skip"},
		},
		"a child's chunk does not displace the root's terminal record": {
			chunklog.NewReader("s", "", 0), records{terminalOf("s", "run", 1, 0), chunkOf("c", 2, 0)}, nil,
			[]string{"skip", "give", "end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := told(c.reader, c.stored, c.live); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestALiveRecordShowsThatOneWasMissed(t *testing.T) {
	t.Parallel()
	r := chunklog.NewReader("s", "", 4)
	r.Take(chunkOf("c", 9, 3), true)
	for i, c := range []struct {
		record *chunklog.Record
		want   bool
	}{
		{chunkOf("s", 10, 4), false}, {chunkOf("s", 10, 2), false}, {chunkOf("s", 10, 5), true},
		{chunkOf("c", 10, 9), false}, {chunkOf("c", 12, 10), true}, {chunkOf("d", 10, 0), false}, {chunkOf("d", 12, 10), true},
		{chunkOf("s", 9, 7), false}, // it was taken
	} {
		if got := r.Missed(c.record); got != c.want {
			t.Errorf("case %d: got %v, want %v", i, got, c.want)
		}
	}
}

func TestOnlyRetentionLosesRecords(t *testing.T) {
	t.Parallel()
	type records = []*chunklog.Record
	for name, c := range map[string]struct {
		cursor, floor uint64
		rest          records
		hole, lost    bool
	}{
		"no hole":                              {4, 100, records{chunkOf("s", 110, 4)}, false, false},
		"the first record ever":                {0, 100, records{chunkOf("s", 110, 0)}, false, false},
		"a record below the floor is missing":  {4, 100, records{chunkOf("s", 110, 50)}, true, true},
		"the first records are missing":        {0, 100, records{chunkOf("s", 110, 50)}, true, true},
		"nothing above the cursor can be lost": {100, 100, records{terminalOf("s", "run", 110, 105)}, true, false},
		"a marker explains the hole":           {4, 100, records{terminalOf("s", "run", 110, 50), markerOf("run", 111, 110, 4)}, true, false},
		"a marker's void records are no hole":  {4, 100, records{markerOf("run", 111, 50, 4)}, false, false},
		"what a marker left standing is lost":  {4, 100, records{markerOf("run", 111, 50, 40)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := chunklog.NewReader("s", "", c.cursor)
			if hole := r.Hole(c.rest[0]); hole != c.hole {
				t.Fatalf("got hole %v, want %v", hole, c.hole)
			}
			if c.hole && r.Lost(c.floor, c.rest) != c.lost {
				t.Errorf("got lost %v, want %v", !c.lost, c.lost)
			}
		})
	}
}

func TestStranded(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		cursor, last, floor, top uint64
		want                     bool
	}{
		{0, 0, 100, 200, false}, {201, 150, 100, 200, true}, {150, 150, 100, 200, false}, {160, 150, 100, 200, false},
		{50, 0, 100, 200, true}, {100, 0, 100, 200, false}, {50, 40, 30, 200, false},
	} {
		if got := chunklog.Stranded(c.cursor, c.last, c.floor, c.top); got != c.want {
			t.Errorf("case %d: got %v, want %v", i, got, c.want)
		}
	}
}

// log is a whole log in a list, and what its readers must end up with.
type log struct {
	next    uint64
	records []*chunklog.Record // stored, all sessions
	tail    chunklog.Tail
	epoch   int64
	number  int64
	step    int32
}

func (l *log) put(r *chunklog.Record) {
	l.next++
	l.number++
	r.Sequence, r.Session, r.Epoch, r.Number = l.next, "s", l.epoch, l.number
	chunklog.Link(r, l.tail, 0)
	l.records = append(l.records, r)
	l.tail = chunklog.TailOf(r)
}

// floor is what a log says that cannot tell voided from expired records.
func (l *log) floor() uint64 {
	if len(l.records) == 0 {
		return l.next
	}
	return l.records[0].Sequence - 1
}

// standing returns the sequences of the chunks that stand.
func (l *log) standing() []uint64 {
	var sequences []uint64
	for _, r := range l.records {
		switch r.Kind {
		case chunklog.Chunk:
			sequences = append(sequences, r.Sequence)
		case chunklog.Marker:
			sequences = upTo(sequences, r.At)
		case chunklog.Terminal:
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

// watcher is a reader and what it holds.
type watcher struct {
	reader *chunklog.Reader
	held   []uint64
}

func (w *watcher) take(r *chunklog.Record, live bool) {
	switch w.reader.Take(r, live) {
	case chunklog.Give:
		w.held = append(w.held, r.Sequence)
	case chunklog.Rewound:
		w.held = upTo(w.held, r.At)
	case chunklog.Skip, chunklog.End, chunklog.CaughtUp:
	}
}

// TestReadersHoldWhatStands lets a writer append, lose its place and rewind,
// void records be removed late or never, and readers come, take a few records,
// and come back with their cursor. Whoever has caught up holds exactly the
// chunks that stand.
func TestReadersHoldWhatStands(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &log{epoch: 1}
		var watchers []*watcher
		var voided []uint64
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				l.put(&chunklog.Record{Kind: chunklog.Chunk, Step: l.step + 1, Run: fmt.Sprint(l.epoch)})
			},
			"commit": func(*rapid.T) { l.step++ },
			"end": func(*rapid.T) {
				l.put(&chunklog.Record{Kind: chunklog.Terminal, Run: fmt.Sprint(l.epoch), Status: chunklog.Ended})
			},
			"rewind": func(t *rapid.T) {
				rewind := chunklog.Rewind{Step: l.step}
				from := rapid.Uint64Range(0, l.next).Draw(t, "from")
				for _, r := range l.records {
					if r.Sequence > from {
						rewind.Take(r)
					}
				}
				if rapid.Bool().Draw(t, "takeover") {
					l.epoch, l.number = l.epoch+1, 0
				}
				marker := &chunklog.Record{Run: fmt.Sprint(l.epoch)}
				rewind.Mark(marker, l.tail)
				l.put(marker)
				voided = append(voided, rewind.Void...)
			},
			"remove": func(t *rapid.T) {
				l.records = slices.DeleteFunc(l.records, func(r *chunklog.Record) bool { return slices.Contains(voided, r.Sequence) })
				voided = nil
			},
			"join": func(*rapid.T) {
				watchers = append(watchers, &watcher{reader: chunklog.NewReader("s", "", 0)})
			},
			"take": func(t *rapid.T) {
				if len(watchers) == 0 {
					t.Skip("nobody reads")
				}
				w := rapid.SampledFrom(watchers).Draw(t, "who")
				count := rapid.IntRange(0, 5).Draw(t, "count")
				for _, r := range after(l.records, w.reader.Cursor(), count) {
					w.take(r, false)
				}
			},
			"come back": func(t *rapid.T) {
				if len(watchers) == 0 {
					t.Skip("nobody reads")
				}
				w := rapid.SampledFrom(watchers).Draw(t, "who")
				w.reader = chunklog.NewReader("s", "", w.reader.Cursor())
			},
			"": func(t *rapid.T) {
				want := l.standing()
				for i, w := range watchers {
					copied := *w.reader
					all := &watcher{reader: &copied, held: slices.Clone(w.held)}
					for _, r := range after(l.records, w.reader.Cursor(), len(l.records)) {
						if all.reader.Hole(r) && all.reader.Lost(l.floor(), after(l.records, all.reader.Cursor(), len(l.records))) {
							t.Fatalf("reader %d: voided records look lost before %+v", i, r)
						}
						all.take(r, false)
					}
					if !slices.Equal(all.held, want) {
						t.Fatalf("reader %d holds %v, want %v", i, all.held, want)
					}
				}
			},
		})
	})
}

// after returns up to count records after the cursor.
func after(records []*chunklog.Record, cursor uint64, count int) []*chunklog.Record {
	i := slices.IndexFunc(records, func(r *chunklog.Record) bool { return r.Sequence > cursor })
	if i < 0 {
		return nil
	}
	return records[i:min(i+count, len(records))]
}
