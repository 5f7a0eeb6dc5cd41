package position_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/position"
)

func TestAPositionSurvivesPackingAndSequencesOrderLikePositions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) position.Position {
			return position.Position{
				Step:    rapid.Int32Range(0, position.MaxStep).Draw(t, name+" step"),
				Attempt: rapid.Int32Range(0, position.Stored).Draw(t, name+" attempt"),
				N:       rapid.Int32Range(0, position.MaxN).Draw(t, name+" n"),
			}
		}
		a, b := draw("a"), draw("b")
		if got := position.Of(a.Sequence()); got != a {
			t.Fatalf("Of(Sequence(%v)) = %v", a, got)
		}
		want := slices.Compare([]int32{a.Step, a.Attempt, a.N}, []int32{b.Step, b.Attempt, b.N})
		if got := sign(a.Sequence() - b.Sequence()); got != want {
			t.Fatalf("%v against %v: sequences order as %d, positions as %d", a, b, got, want)
		}
		if s := a.Sequence(); !position.Valid(s) || s >= 1<<53 {
			t.Fatalf("%v packs into %d, which JavaScript does not hold", a, s)
		}
	})
}

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func TestTheMomentsOfAStepComeInTheirOrder(t *testing.T) {
	t.Parallel()
	first, last := position.Attempts(1)
	moments := []int64{
		position.Ended(6), position.Start(7),
		position.Position{Step: 7, Attempt: 1, N: 1}.Sequence(), position.OutsideStep(7, 0),
		position.Position{Step: 7, Attempt: first, N: 1}.Sequence(),
		position.Position{Step: 7, Attempt: last, N: position.MaxChunks}.Sequence(), position.OutsideStep(7, 1),
		position.Position{Step: 7, Attempt: position.Stored, N: position.MaxChunks}.Sequence(),
		position.Committed(7), position.Ended(7) - 1, position.Ended(7), position.Start(8),
	}
	for i := range moments[1:] {
		if moments[i] >= moments[i+1] {
			t.Errorf("moment %d is at %v, not before moment %d at %v", i, position.Of(moments[i]), i+1, position.Of(moments[i+1]))
		}
	}
}

func TestNoTwoClaimsShareAnAttempt(t *testing.T) {
	t.Parallel()
	next := int32(1)
	for claims := int32(0); claims <= position.MaxClaims; claims++ {
		first, last := position.Attempts(claims)
		if first != next || last < first || last >= position.Stored {
			t.Fatalf("Attempts(%d) = %d, %d; want them from %d on and below %d", claims, first, last, next, position.Stored)
		}
		next = last + 1
	}
	if first, last := position.Attempts(position.MaxClaims + 1); first != 0 || last != 0 {
		t.Errorf("Attempts(%d) = %d, %d; want none", position.MaxClaims+1, first, last)
	}
}
