package chunklog_test

import (
	"slices"
	"testing"

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
		"a resumed stream goes on": {
			chunklog.NewReader("s", "", 0), records{terminalOf("s", "run", 2, 0), markerOf("run", 3, 2, 2)}, records{terminalOf("s", "run", 4, 3)},
			[]string{"skip", "skip", "caught up", "end"},
		},
		"a reset voids terminal records, too": {
			chunklog.NewReader("s", "", 0), records{chunkOf("s", 1, 0), terminalOf("s", "run", 2, 1), markerOf("run", 3, 2, 0)}, nil,
			[]string{"give", "skip", "rewound", "caught up"},
		},
		"a marker that voids nothing is told to nobody": {
			chunklog.NewReader("s", "", 9), records{markerOf("run", 12, 8, 8), markerOf("run", 13, 12, 12)}, nil,
			[]string{"skip", "skip", "caught up"},
		},
		"a lost log's marker is told to who has anything of it": {
			chunklog.NewReader("s", "", 8), records{anewOf("s", 12, 8)}, nil,
			[]string{"rewound", "caught up"},
		},
		"a lost log's marker is not told to who has begun above it": {
			chunklog.NewReader("s", "", 9), records{anewOf("s", 12, 8), chunkOf("s", 13, 12)}, nil,
			[]string{"skip", "give", "caught up"},
		},
		"a lost log's marker is not told to who has nothing": {
			chunklog.NewReader("s", "", 0), records{anewOf("s", 12, 8)}, nil,
			[]string{"skip", "caught up"},
		},
		"a lasting reader is given every terminal record": {
			chunklog.NewLasting("s", 0), records{terminalOf("s", "one", 2, 0), terminalOf("c", "child", 3, 0), chunkOf("s", 4, 2), terminalOf("s", "two", 5, 4)}, records{terminalOf("s", "two", 6, 5), chunkOf("s", 7, 6)},
			[]string{"give", "give", "give", "give", "caught up", "give", "give"},
		},
		"a lasting reader is told that its terminal records are void": {
			chunklog.NewLasting("s", 0), records{terminalOf("s", "one", 2, 0), markerOf("two", 3, 2, 0), markerOf("two", 4, 3, 0)}, nil,
			[]string{"give", "rewound", "skip", "caught up"},
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
		{chunkOf("s", 9, 7), false},                               // it was taken
		{chunkOf("c", 10, 8), true}, {chunkOf("s", 10, 0), false}, // it stands behind another record than was taken; nothing was
	} {
		if got := r.Missed(c.record); got != c.want {
			t.Errorf("case %d: got %v, want %v", i, got, c.want)
		}
	}
}

func anewOf(session string, sequence, prev uint64) *chunklog.Record {
	return &chunklog.Record{Session: session, Sequence: sequence, Prev: prev, Kind: chunklog.Marker, Run: "run", Anew: true}
}

func TestOnlyRetentionAndALostLogLoseRecords(t *testing.T) {
	t.Parallel()
	type records = []*chunklog.Record
	stand := func(first, floor uint64) chunklog.Stand {
		return chunklog.Stand{First: first, Floor: floor, Top: 200, Began: 2}
	}
	for name, c := range map[string]struct {
		cursor     uint64
		taken      *chunklog.Record // after the cursor, before rest
		stand      chunklog.Stand
		rest       records
		hole, lost bool
	}{
		"no hole":                               {4, nil, stand(110, 100), records{chunkOf("s", 110, 4)}, false, false},
		"the first record ever":                 {0, nil, stand(110, 100), records{chunkOf("s", 110, 0)}, false, false},
		"a record below the floor is missing":   {4, nil, stand(3, 100), records{chunkOf("s", 110, 50)}, true, true},
		"the first records are missing":         {0, nil, stand(110, 100), records{chunkOf("s", 110, 50)}, true, true},
		"nothing above the cursor can be lost":  {100, nil, stand(90, 100), records{terminalOf("s", "run", 110, 105)}, true, false},
		"a session had too many records":        {4, nil, stand(110, 1), records{chunkOf("s", 110, 50)}, true, true},
		"it has lost more since":                {4, nil, stand(120, 1), records{chunkOf("s", 110, 50)}, true, true},
		"it has lost all since":                 {4, nil, stand(0, 150), records{chunkOf("s", 110, 50)}, true, true},
		"records before it are kept":            {4, nil, stand(4, 1), records{chunkOf("s", 110, 50)}, true, false},
		"a marker explains the hole":            {4, nil, stand(110, 100), records{terminalOf("s", "run", 110, 50), markerOf("run", 111, 110, 4)}, true, false},
		"a marker of a sibling does not":        {4, nil, stand(110, 100), records{terminalOf("c", "run", 110, 50), markerOf("run", 111, 110, 4)}, true, true},
		"a marker explains a session's hole":    {4, nil, stand(110, 1), records{terminalOf("s", "run", 110, 50), markerOf("run", 111, 110, 4)}, true, false},
		"a marker's void records are no hole":   {4, nil, stand(111, 100), records{markerOf("run", 111, 50, 4)}, false, false},
		"what a marker left standing is lost":   {4, nil, stand(111, 100), records{markerOf("run", 111, 50, 40)}, true, true},
		"nothing was kept behind what was read": {4, chunkOf("s", 60, 4), stand(110, 100), records{chunkOf("s", 110, 50)}, true, false},
		"a lost log explains nothing":           {4, nil, chunklog.Stand{First: 110, Floor: 100, Top: 200, Began: 101}, records{anewOf("s", 110, 50)}, true, true},
		"nor does its marker later":             {4, nil, chunklog.Stand{First: 110, Floor: 100, Top: 200, Began: 101}, records{chunkOf("s", 110, 50), anewOf("s", 111, 50)}, true, true},
		"from the beginning of a lost log":      {0, nil, chunklog.Stand{First: 110, Floor: 100, Top: 200, Began: 101}, records{anewOf("s", 110, 50)}, true, true},
		"a lost log's marker behind all":        {50, nil, chunklog.Stand{First: 110, Floor: 100, Top: 200, Began: 101}, records{anewOf("s", 110, 50)}, false, false},
		"a chunk of a lost log stands behind":   {4, chunkOf("s", 60, 4), chunklog.Stand{First: 110, Floor: 100, Top: 200, Began: 101}, records{chunkOf("s", 110, 0)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := chunklog.NewReader("s", "", c.cursor)
			if c.taken != nil {
				r.Take(c.taken, false)
			}
			if hole := r.Hole(c.rest[0]); hole != c.hole {
				t.Fatalf("got hole %v, want %v", hole, c.hole)
			}
			if c.hole && r.Lost(c.stand, c.rest) != c.lost {
				t.Errorf("got lost %v, want %v", !c.lost, c.lost)
			}
		})
	}
}

func TestACursorHasToBeOfThisLog(t *testing.T) {
	t.Parallel()
	type records = []*chunklog.Record
	stand := chunklog.Stand{Floor: 150, Top: 200, Began: 100}
	young := chunklog.Stand{Floor: 99, Top: 99, Began: 100}
	for name, c := range map[string]struct {
		cursor uint64
		stored records
		stand  chunklog.Stand
		astray bool
		family bool // so it is when the cursor is that of a family
	}{
		"above everything":                        {201, nil, stand, true, true},
		"of a log before this one":                {98, records{chunkOf("s", 160, 98)}, stand, true, true},
		"the beginning of the log":                {99, records{chunkOf("s", 160, 0)}, stand, false, true},
		"the beginning of a log without a record": {99, nil, young, false, false},
		"below the floor, with records behind":    {120, records{chunkOf("s", 160, 140)}, stand, false, true},
		"below the floor, and nothing behind":     {120, nil, stand, true, true},
		"the floor, and nothing behind":           {150, nil, stand, false, false},
		"above the floor, and nothing behind":     {160, nil, stand, true, true},
		"the next record names it":                {160, records{chunkOf("s", 170, 160)}, stand, false, false},
		"a record of a sibling names it":          {160, records{chunkOf("c", 165, 140), chunkOf("s", 170, 160)}, stand, false, false},
		"the next record names another":           {160, records{chunkOf("s", 170, 155)}, stand, true, true},
		"a marker voids it":                       {160, records{chunkOf("s", 165, 0), markerOf("run", 170, 161, 155)}, stand, false, false},
		"a reset voids it":                        {160, records{markerOf("run", 170, 160, 0)}, stand, false, false},
		"a marker voids what comes after it":      {160, records{markerOf("run", 170, 168, 165)}, stand, true, true},
		"a marker voids what comes before it":     {160, records{markerOf("run", 170, 158, 155)}, stand, true, true},
		"a marker of a lost log voids nothing":    {160, records{anewOf("s", 170, 165)}, stand, true, true},
	} {
		for family, want := range map[bool]bool{false: c.astray, true: c.family} {
			if got := chunklog.Astray(chunklog.Cursor{Sequence: c.cursor, Family: family}, c.stored, c.stand); got != want {
				t.Errorf("%s (family %v): got %v, want %v", name, family, got, want)
			}
		}
	}
	for recorded, want := range map[uint64]bool{0: true, 120: false, 121: true} {
		for _, family := range []bool{false, true} {
			if got := chunklog.Astray(chunklog.Cursor{Sequence: 120, Family: family, Recorded: recorded}, nil, stand); got != want {
				t.Errorf("a cursor below the floor where %d is recorded (family %v): got %v, want %v", recorded, family, got, want)
			}
		}
	}
	for _, c := range []struct {
		cursor uint64
		stored records
		want   bool
	}{
		{0, nil, true}, {5, nil, false}, {5, records{chunkOf("s", 5, 0)}, true}, {5, records{chunkOf("s", 6, 5)}, false},
	} {
		if got := chunklog.Proves(c.cursor, c.stored); got != c.want {
			t.Errorf("cursor %d: got proof %v, want %v", c.cursor, got, c.want)
		}
	}
}

func TestAReaderThatCannotGoOnReadsOnWhereTheNextRecordNamesItsCursor(t *testing.T) {
	t.Parallel()
	s := chunklog.Stand{Floor: 100}
	for want, stored := range map[uint64][]*chunklog.Record{
		100: {chunkOf("s", 110, 90)}, 105: {chunkOf("s", 110, 105)},
	} {
		if got := s.From(stored); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	if got := s.From(nil); got != 100 {
		t.Errorf("without a record: got %d, want the floor", got)
	}
}

func TestWhatTheStateServiceHasRecordedIsAccountedFor(t *testing.T) {
	t.Parallel()
	s := chunklog.Stand{Floor: 150, Top: 200, Began: 100}
	for _, c := range []struct {
		recorded, last, start uint64
		want                  chunklog.Account
	}{
		{160, 160, 0, chunklog.Stands}, {160, 170, 0, chunklog.Stands}, {150, 0, 0, chunklog.Stands}, {150, 120, 0, chunklog.Stands},
		{160, 0, 0, chunklog.Missing}, {160, 159, 0, chunklog.Missing}, {160, 159, 180, chunklog.Missing},
		{99, 0, 0, chunklog.Gone}, {99, 170, 0, chunklog.Gone}, {99, 0, 98, chunklog.Gone}, {99, 0, 99, chunklog.Stands}, {99, 170, 160, chunklog.Stands},
	} {
		if got := chunklog.AccountFor(c.recorded, c.last, c.start, s); got != c.want {
			t.Errorf("recorded %d, last %d, start %d: got %v, want %v", c.recorded, c.last, c.start, got, c.want)
		}
	}
}
