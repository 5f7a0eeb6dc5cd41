package figures_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/bench/internal/figures"
)

func TestTheSpreadIsTheMedianAndTheEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		all  []float64
		want figures.Spread
		text string
	}{
		{[]float64{2}, figures.Spread{Median: 2, Min: 2, Max: 2}, "2.00 (2.00..2.00)"},
		{[]float64{4, 1}, figures.Spread{Median: 2.5, Min: 1, Max: 4}, "2.50 (1.00..4.00)"},
		{[]float64{9, 0.333, 2}, figures.Spread{Median: 2, Min: 0.333, Max: 9}, "2.00 (0.33..9.00)"},
	} {
		got, ok := figures.Of(test.all)
		if !ok || got != test.want || got.Format(2) != test.text {
			t.Errorf("%v: got %v, %t, %s, want %v, %s", test.all, got, ok, got.Format(2), test.want, test.text)
		}
	}
	if got, ok := figures.Of(nil); ok {
		t.Errorf("of nothing: got %v, want none", got)
	}
}

func TestTheColumnsOfATableAreAligned(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	if err := figures.Table(&got, []string{"a", "bb"}, [][]string{{"wide", "–"}, {"x"}}); err != nil {
		t.Fatal(err)
	}
	want := "| a    | bb |\n| ---- | -- |\n| wide | –  |\n| x    |    |\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}
