package memory

import (
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/bustest"
)

func TestMemoryIsALog(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(_ *testing.T, o bustest.Options) bus.Bus {
		return New(Options{SessionRecords: o.SessionRecords})
	})
}

func TestMemoryIsALogThatMayLoseItsEnd(t *testing.T) {
	t.Parallel()
	bustest.PowerCut(t, &forgetful{Log: New(Options{})})
}

// forgetful is a log that can be put back to what it was. Nobody follows it
// meanwhile.
type forgetful struct {
	*Log
	noted *Log
}

func (f *forgetful) Open(*testing.T) bus.Bus { return f.Log }
func (f *forgetful) Snapshot(*testing.T)     { f.noted = copied(f.Log) }
func (f *forgetful) Restore(*testing.T)      { f.Log = copied(f.noted) }

func copied(l *Log) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := New(l.options)
	c.began.Store(l.began.Load())
	c.first, c.head, c.bytes = l.first, l.head, l.bytes
	c.entries, c.streams = slices.Clone(l.entries), maps.Clone(l.streams)
	for s, sequences := range c.streams {
		c.streams[s] = slices.Clone(sequences)
	}
	return c
}
