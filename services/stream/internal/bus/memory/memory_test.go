package memory_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/bustest"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
)

func TestMemoryIsALog(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(*testing.T) bus.Bus { return memory.New(memory.Options{}) })
}
