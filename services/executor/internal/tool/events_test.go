package tool

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// A chat would take such an event for the runtime's own.
func TestAToolCannotEmitEventsOfTheRuntime(t *testing.T) {
	t.Parallel()
	h := NewHost(agent.State{}, nil, 1<<10, nil)
	for _, name := range runtimeEvents {
		if err := h.Emit(t.Context(), name, 1); fault.ReasonOf(err) != "EVENT_INVALID" {
			t.Errorf("%s: got %v, want EVENT_INVALID", name, err)
		}
	}
	if err := h.Emit(t.Context(), "outputs", 1); err != nil {
		t.Error(err)
	}
}
