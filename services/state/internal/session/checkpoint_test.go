package session

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestACheckpointIDContainsItsStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		step := rapid.Int32Min(1).Draw(r, "step")
		id := CheckpointID(rapid.String().Draw(r, "session"), step, Millis(rapid.Int64Min(0).Draw(r, "now")), rapid.StringMatching(`[0-9a-f]{6}`).Draw(r, "random"))
		if first, last := CheckpointSteps(id); first != step || last != step {
			r.Errorf("%q: got the steps %d to %d, want %d", id, first, last, step)
		}
	})
}

func TestACheckpointIDOfAnotherFormMayBelongToAnyStep(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"", "cp-1", "cpv1-", "cpv1-s", "cpv1-x-s1-t5", "cpv1-x-s1-5-abcdef", "cpv1-x-1-t5-abcdef", "cpv1-x-s-t5-abcdef", "cpv1-x-s2147483648-t5-abcdef", "x-s1-t5-abcdef", "cpv1-s1-t5-abcdef",
	} {
		if first, last := CheckpointSteps(id); first != 0 || last != math.MaxInt32 {
			t.Errorf("%q: got the steps %d to %d, want any", id, first, last)
		}
	}
}
