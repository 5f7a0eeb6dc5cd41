package follow

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

func TestAClaimThatBeganAfterTheLastReadIsFollowedLive(t *testing.T) {
	t.Parallel()
	const before, since = 5, 9
	c := claims{epoch: before, steps: 1}
	f := &Follow{}
	first := position.Position{Step: 2, Attempt: 1}.Sequence()
	stored := &live.Record{Epoch: since, First: first, Last: first, Attempt: &streamv2.Attempt{}}
	if valid, err := c.check(stored, f); valid || err != nil {
		t.Fatalf("a stored record of an unknown claim is valid: %v, %v; want a read of the steps first", valid, err)
	}
	if !c.hasUnknown() {
		t.Fatal("the stored records have no unknown claim, want one")
	}
	c.know(since, 1)
	if valid, err := c.check(stored, f); !valid || err != nil {
		t.Errorf("the stored record is valid: %v, %v; want true once the state service knows the claim", valid, err)
	}
	if !c.accept(&live.Record{Epoch: since, First: first + 1, Last: first + 1}) {
		t.Error("a live record of the claim is dropped, want it sent")
	}
}

func TestAClaimThatTheDatabaseHasLostIsNotFollowed(t *testing.T) {
	t.Parallel()
	const known, lost, next = 5, 9, 12
	c := claims{epoch: known, steps: 1}
	first := position.Position{Step: 2, Attempt: 1}.Sequence()
	_, _ = c.check(&live.Record{Epoch: lost, First: first, Last: first, Attempt: &streamv2.Attempt{}}, &Follow{})
	if !c.hasUnknown() {
		t.Fatal("the stored records have no unknown claim, want one")
	}
	c.know(known, 1)
	if c.accept(&live.Record{Epoch: lost, First: first + 1, Last: first + 1}) {
		t.Error("a live record of a lost claim is sent, want it dropped")
	}
	if !c.accept(&live.Record{Epoch: next, First: first + 2, Last: first + 2}) {
		t.Error("a live record of the next claim is dropped, want it sent")
	}
}
