package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFlagsChooseWhatIsMeasured(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   string
		peers  string
		runs   []int
		rounds int
		window time.Duration
	}{
		{"", strings.Join(names(contenders()), ","), []int{1, 16, 64}, 3, 6 * time.Second},
		{"-quick", strings.Join(names(contenders()), ","), []int{1, 16, 64}, 1, 3 * time.Second},
		{"-window 9s -quick -rounds 2", strings.Join(names(contenders()), ","), []int{1, 16, 64}, 2, 9 * time.Second},
		{"-peers floor,holdfast -runs 4", "floor,holdfast", []int{4}, 3, 6 * time.Second},
	} {
		o, err := parse(strings.Fields(test.args), io.Discard)
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		if got := strings.Join(names(o.peers), ","); got != test.peers {
			t.Errorf("%q: got peers %s, want %s", test.args, got, test.peers)
		}
		if !slices.Equal(o.runs, test.runs) || o.rounds != test.rounds || o.window != test.window {
			t.Errorf("%q: got %v, %d, %v, want %v, %d, %v", test.args, o.runs, o.rounds, o.window, test.runs, test.rounds, test.window)
		}
	}
}

func TestFlagsThatMeasureNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"-rounds 0", "-window 0s", "-runs 0", "-runs 1,", "-peers nobody", "floor"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%q: got no error, want one", args)
		}
	}
}

func TestTheReportHasTheMediansAndWhyAPeerIsMissing(t *testing.T) {
	t.Parallel()
	d := &driver{
		options:  options{rounds: 3, runs: []int{1, 64}, window: time.Second, peers: []contender{{name: "fast", promise: "nothing."}, {name: "absent"}}},
		failures: map[string]error{"absent": errors.New("skipped: there is no network")},
		samples: map[key][]sample{
			{"fast", 1}:  {{step: 3}, {step: 1}, {step: 2}},
			{"fast", 64}: {{step: 0.5, database: 0.25, rate: 4000}},
		},
	}
	var text strings.Builder
	if err := d.report(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| fast                                  | 2.00 (1.00..3.00) | 0.50 (0.50..0.50) | 0.25 (0.25..0.25) | 4000 (4000..4000) |\n",
		"| absent                                | –                 | –                 | –                 | –                 |\n",
		"- fast: nothing.\n", "skipped: there is no network\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s\nwant in it %q", text.String(), want)
		}
	}
}
