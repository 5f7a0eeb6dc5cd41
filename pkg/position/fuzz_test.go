package position_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/position"
)

func FuzzAValidSequenceIsPackedAsItWasUnpacked(f *testing.F) {
	for _, seed := range []int64{0, 1, -1, 1 << 52, 1<<53 - 1, 1 << 53, position.Committed(7), position.Ended(position.MaxStep), -1 << 63, 1<<63 - 1} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sequence int64) {
		p := position.Of(sequence)
		if p.Step < 0 || p.Attempt < 0 || p.N < 0 || !position.Valid(p.Sequence()) {
			t.Errorf("%d is %+v", sequence, p)
		}
		if position.Valid(sequence) && p.Sequence() != sequence {
			t.Errorf("%d is packed as %d", sequence, p.Sequence())
		}
	})
}
