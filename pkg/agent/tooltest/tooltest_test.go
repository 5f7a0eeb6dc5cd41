package tooltest_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agent/tooltest"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAnEventWithAnInvalidIDIsRefusedAsInProduction(t *testing.T) {
	t.Parallel()
	host, err := tooltest.NewHost(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "a\nb", "a\xff"} {
		if err := host.Emit(t.Context(), "e", 1, agent.WithID(id)); fault.ReasonOf(err) != "EVENT_INVALID" {
			t.Errorf("Emit with the id %q = %v, want EVENT_INVALID", id, err)
		}
	}
	if got := host.Events(); len(got) != 0 {
		t.Errorf("events = %v, want none", got)
	}
}
