package livelog_test

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
)

// at packs a position.
func at(step, attempt, n int32) int64 {
	return position.Position{Step: step, Attempt: attempt, N: n}.Sequence()
}

func begins(epoch, sequence int64, chunks int) livelog.Request {
	return livelog.Request{Epoch: epoch, Records: []livelog.Record{{Sequence: sequence, Chunks: chunks, Attempt: &livelog.Attempt{}}}}
}

func goesOn(epoch, sequence int64, chunks int) livelog.Request {
	return livelog.Request{Epoch: epoch, After: sequence - 1, Records: []livelog.Record{{Sequence: sequence, Chunks: chunks}}}
}

func boundary(epoch, sequence int64) livelog.Request {
	p := position.Of(sequence)
	return livelog.Request{Epoch: epoch, Records: []livelog.Record{{Sequence: sequence, Boundary: &livelog.Boundary{
		Committed: p.Attempt == position.Stored, Ended: sequence != position.Committed(p.Step),
	}}}}
}

// join combines requests into one.
func join(first livelog.Request, others ...livelog.Request) livelog.Request {
	for _, r := range others {
		first.Records = append(first.Records, r.Records...)
	}
	return first
}

func check(epoch, after int64) livelog.Request { return livelog.Request{Epoch: epoch, After: after} }

func TestATailDecidesWhatMayFollow(t *testing.T) {
	t.Parallel()
	const lost, fenced, ahead, accept, repeat = "RECORDS_LOST", "WRITER_FENCED", "LOG_AHEAD", "accept", "repeat"
	none, chunk := livelog.Tail{}, livelog.Tail{Epoch: 2, Last: at(3, 2, 7)}
	committed := livelog.Tail{Epoch: 2, Last: position.Committed(3)}
	outside := livelog.Tail{Epoch: 2, Last: position.OutsideStep(3, 0)}
	for name, c := range map[string]struct {
		tail    livelog.Tail
		request livelog.Request
		want    string
	}{
		"the first attempt of a session":           {none, begins(1, at(1, 1, 1), 2), accept},
		"a boundary in an empty log":               {none, boundary(1, position.Committed(4)), accept},
		"chunks in an empty log":                   {none, goesOn(1, at(1, 1, 5), 2), lost},
		"a check of an empty log":                  {none, check(1, 0), repeat},
		"a check that misses its record":           {none, check(1, at(1, 1, 1)), lost},
		"chunks behind the tail":                   {chunk, goesOn(2, at(3, 2, 8), 3), accept},
		"the tail again":                           {chunk, goesOn(2, at(3, 2, 7), 1), repeat},
		"the tail again, with those before it":     {chunk, goesOn(2, at(3, 2, 5), 3), repeat},
		"a record before the tail again":           {chunk, goesOn(2, at(3, 2, 3), 2), repeat},
		"the first record of the attempt again":    {chunk, begins(2, at(3, 2, 1), 2), repeat},
		"chunks that are stored in part":           {chunk, goesOn(2, at(3, 2, 7), 2), lost},
		"chunks behind a hole":                     {chunk, goesOn(2, at(3, 2, 9), 1), lost},
		"the next attempt":                         {chunk, begins(2, at(3, 3, 1), 1), accept},
		"the next owner's attempt":                 {chunk, begins(3, at(3, 33, 1), 1), accept},
		"a later step's attempt":                   {chunk, begins(2, at(4, 1, 1), 1), accept},
		"an earlier attempt":                       {chunk, begins(2, at(3, 1, 1), 1), lost},
		"an earlier attempt's chunks":              {chunk, goesOn(2, at(3, 1, 9), 1), lost},
		"the same record of another owner":         {chunk, goesOn(3, at(3, 2, 7), 1), lost},
		"a boundary behind chunks":                 {chunk, boundary(2, position.Committed(3)), accept},
		"a boundary before the tail":               {chunk, boundary(2, position.Committed(2)), lost},
		"a check that finds its record":            {chunk, check(2, at(3, 2, 7)), repeat},
		"a check that finds a later record":        {chunk, check(2, at(3, 2, 6)), lost},
		"a later owner's attempt at the same step": {chunk, begins(3, at(3, 1, 1), 1), ahead},
		"a later owner's attempt below the log":    {committed, begins(3, at(2, 33, 1), 1), ahead},
		"a later owner's boundary below the log":   {committed, boundary(3, position.Ended(2)), ahead},
		"an old owner's next chunk":                {chunk, goesOn(1, at(3, 2, 8), 1), fenced},
		"an old owner's attempt":                   {chunk, begins(1, at(9, 1, 1), 1), fenced},
		"an old owner's boundary":                  {chunk, boundary(1, position.Ended(9)), fenced},
		"an old owner's repetition":                {chunk, goesOn(1, at(3, 2, 7), 1), fenced},
		"an old owner's check":                     {chunk, check(1, at(3, 2, 7)), fenced},
		"the boundary again":                       {committed, boundary(2, position.Committed(3)), repeat},
		"the end behind the commit":                {committed, boundary(2, position.Ended(3)), accept},
		"the commit behind the end":                {livelog.Tail{Epoch: 2, Last: position.Ended(3)}, boundary(2, position.Committed(3)), lost},
		"chunks behind a boundary":                 {committed, goesOn(2, at(3, 2, 8), 1), lost},
		"an attempt behind a boundary":             {committed, begins(2, at(4, 1, 1), 1), accept},
		"chunks below an end outside a step":       {outside, goesOn(2, at(3, 32, 8), 1), lost},
		"an attempt behind an end outside a step":  {outside, begins(3, at(3, 65, 1), 1), accept},
		"the same attempt below an end outside it": {outside, begins(2, at(3, 32, 1), 1), lost},
		"the rest of a step and the next one":      {chunk, join(goesOn(2, at(3, 2, 8), 3), boundary(2, position.Committed(3)), begins(2, at(4, 1, 1), 2)), accept},
		"a step whose first chunks are lost":       {chunk, join(goesOn(2, at(3, 2, 9), 3), boundary(2, position.Committed(3))), lost},
		"a step and the boundary of the tail":      {committed, join(goesOn(2, at(3, 2, 8), 3), boundary(2, position.Committed(3))), repeat},
		"a boundary and the attempt of the tail":   {chunk, join(boundary(2, position.Committed(2)), begins(2, at(3, 2, 1), 2)), repeat},
		"an old owner's step and the next one":     {chunk, join(goesOn(1, at(3, 2, 8), 3), boundary(1, position.Committed(3))), fenced},
	} {
		if err := livelog.Validate(c.request); err != nil {
			t.Errorf("%s: the request is invalid: %v", name, err)
		}
		store, err := livelog.Decide(c.tail, c.request)
		got := fault.ReasonOf(err)
		switch {
		case store:
			got += accept
		case err == nil:
			got = repeat
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestARequestThatNoWriterSendsIsInvalid(t *testing.T) {
	t.Parallel()
	with := func(r livelog.Request, change func(*livelog.Record)) livelog.Request {
		r.Records = slices.Clone(r.Records)
		change(&r.Records[0])
		return r
	}
	first, next, commit := begins(1, at(1, 1, 1), 1), goesOn(1, at(1, 1, 2), 1), boundary(1, position.Committed(1))
	for name, r := range map[string]livelog.Request{
		"no epoch":                              begins(0, at(1, 1, 1), 1),
		"a negative after":                      check(1, -1),
		"an after beyond all positions":         check(1, 1<<53),
		"a negative sequence":                   with(first, func(r *livelog.Record) { r.Sequence = -1 }),
		"a sequence beyond all positions":       with(first, func(r *livelog.Record) { r.Sequence = 1 << 53 }),
		"step 0":                                begins(1, at(0, 1, 1), 1),
		"attempt 0":                             begins(1, at(1, 0, 1), 1),
		"n 0":                                   begins(1, at(1, 1, 0), 1),
		"the positions of a stored step":        goesOn(1, at(1, position.Stored, 2), 1),
		"too many chunks":                       goesOn(1, at(1, 1, position.MaxChunks), 2),
		"an attempt without chunks":             begins(1, at(1, 1, 1), 0),
		"an attempt that does not begin":        begins(1, at(1, 1, 2), 1),
		"chunks at the beginning of an attempt": goesOn(1, at(1, 1, 0), 1),
		"stands behind the attempt":             with(first, func(r *livelog.Record) { r.Attempt = &livelog.Attempt{Stands: at(1, 1, 1)} }),
		"a negative stands":                     with(first, func(r *livelog.Record) { r.Attempt = &livelog.Attempt{Stands: -1} }),
		"chunks that follow something else":     {Epoch: 1, After: 0, Records: next.Records},
		"a boundary with chunks":                with(commit, func(r *livelog.Record) { r.Chunks = 1 }),
		"a boundary with an attempt":            with(commit, func(r *livelog.Record) { r.Attempt = &livelog.Attempt{} }),
		"a boundary within an attempt":          with(commit, func(r *livelog.Record) { r.Sequence = at(1, 1, 5) }),
		"a boundary at step 0":                  boundary(1, position.Committed(0)),
		"a commit that ends nothing":            with(commit, func(r *livelog.Record) { r.Boundary = &livelog.Boundary{} }),
		"a commit at the end's place":           with(commit, func(r *livelog.Record) { r.Sequence = position.Ended(1) }),
		"an end at the commit's place":          with(commit, func(r *livelog.Record) { r.Boundary = &livelog.Boundary{Committed: true, Ended: true} }),
		"a record of nothing":                   with(next, func(r *livelog.Record) { r.Chunks = 0 }),
		"a hole between two records":            join(first, goesOn(1, at(1, 1, 3), 1)),
		"a record twice":                        join(next, next),
		"a boundary before the chunks":          join(commit, next),
		"chunks behind a boundary":              join(first, commit, goesOn(1, position.Committed(1)+1, 1)),
		"an attempt below the one before":       join(begins(1, at(1, 2, 1), 1), first),
		"a malformed record behind a good one":  join(first, boundary(1, position.Committed(0))),
		"a last behind the boundary":            with(commit, func(r *livelog.Record) { r.Boundary = &livelog.Boundary{Committed: true, Last: position.Ended(1)} }),
	} {
		if err := livelog.Validate(r); fault.ReasonOf(err) != "RECORD_INVALID" {
			t.Errorf("%s: got %v, want RECORD_INVALID", name, err)
		}
	}
}

func TestASurveyFindsTheAttemptsThatWereReplaced(t *testing.T) {
	t.Parallel()
	type record struct {
		session string
		last    int64
	}
	survey := livelog.AttemptSurvey{}
	replaced := map[record]bool{
		{"a", at(1, 1, 3)}: true, {"a", at(1, 2, 9)}: true, {"a", at(1, 33, 2)}: false, {"a", position.Committed(1)}: false,
		{"a", at(2, 1, 4)}: false, {"a", position.Ended(2)}: false, {"a", at(3, 1, 1)}: false, {"a", position.OutsideStep(3, 1)}: false,
		{"b", at(1, 1, 3)}: false, {"b", at(2, 1, 3)}: true, {"b", at(2, 2, 1)}: false,
	}
	for _, r := range []record{
		{"a", at(1, 1, 3)}, {"a", at(1, 2, 9)}, {"b", at(1, 1, 3)}, {"a", at(1, 33, 2)}, {"a", position.Committed(1)},
		{"b", at(2, 1, 3)}, {"a", at(2, 1, 4)}, {"b", at(2, 2, 1)}, {"a", position.Ended(2)}, {"a", at(3, 1, 1)}, {"a", position.OutsideStep(3, 1)},
	} {
		survey.Add(r.session, r.last)
	}
	for r, want := range replaced {
		if got := survey.Superseded(r.session, r.last); got != want {
			t.Errorf("%s %+v: got replaced %v, want %v", r.session, position.Of(r.last), got, want)
		}
	}
}
