package stream_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
)

func TestARestartedServiceKeepsEverythingAndReadersGoOn(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	h := start(t, c)
	w := h.writer(refOf("kept"), "run", 1)
	w.say(t, 1, "a", "b")
	r := h.read(t, &streamv1.ReadRequest{Stream: w.ref})
	equal(t, []string{r.next(t), r.next(t), r.next(t)}, "a", "b", "caught up")
	cursor := w.last
	h.stop()
	_, err := r.drain()
	refused(t, err, fault.Unavailable, "LOG_UNAVAILABLE")

	w.house = start(t, c)
	r = w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cursor})
	equal(t, []string{r.next(t)}, "caught up")
	w.say(t, 1, "c")
	refused(t, w.writer(w.ref, "run", 1).text(t.Context(), 1, "x"), fault.Stale, "APPEND_OUT_OF_ORDER")
	w.end(t, ended("run"))
	equal(t, r.rest(t), "c", "end run")
	equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref}).rest(t), "a", "b", "c", "end run")
}

func TestALostLogTruncatesOldCursorsAndTakesTheRunningWriter(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T) stream.Config{
		"memory":    func(*testing.T) stream.Config { return onMemory() },
		"jetstream": onJetStream,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t, config(t))
			w := h.writer(refOf("lost"), "run", 1)
			w.say(t, 1, "a", "b", "c")
			cursor := w.last
			h.stop()

			w.house = start(t, config(t)) // a new directory
			equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cursor}).rest(t), "truncated")
			w.say(t, 1, "d")
			if w.last <= cursor {
				t.Errorf("got sequence %d in the new log, want one above %d", w.last, cursor)
			}
			for _, old := range []int64{0, cursor - 1} {
				equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: old}).rest(t), "truncated")
			}
			r := w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cursor})
			equal(t, []string{r.next(t), r.next(t)}, "d", "caught up")
		})
	}
}

func TestTwoServicesDoNotShareADirectory(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	start(t, c)
	_, err := stream.New(t.Context(), c, stream.Peers{Log: slog.New(slog.DiscardHandler)})
	refused(t, err, fault.Invalid, "CONFIG_INVALID")
}

func TestAWrongConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	for variable, spoil := range map[string]func(*stream.Config){
		"HOLDFAST_STREAM_BUS":             func(c *stream.Config) { c.Bus = "kafka" },
		"HOLDFAST_STREAM_DATA_DIR":        func(c *stream.Config) { c.DataDir = "" },
		"HOLDFAST_STREAM_NAMESPACE":       func(c *stream.Config) { c.Namespace = "a.b" },
		"HOLDFAST_STREAM_PARTITIONS":      func(c *stream.Config) { c.Partitions = 65 },
		"HOLDFAST_STREAM_REPLICAS":        func(c *stream.Config) { c.Replicas = 0 },
		"HOLDFAST_STREAM_TTL":             func(c *stream.Config) { c.TTL = 0 },
		"HOLDFAST_STREAM_PARTITION_BYTES": func(c *stream.Config) { c.PartitionBytes = 1 },
		"HOLDFAST_STREAM_CHUNK_BYTES":     func(c *stream.Config) { c.ChunkBytes = 1 << 30 },
		"HOLDFAST_STREAM_CHECK":           func(c *stream.Config) { c.Check = 0 },
		"HOLDFAST_STREAM_BOOT_TIMEOUT":    func(c *stream.Config) { c.BootTimeout = -1 },
		"HOLDFAST_STREAM_READER_CHUNKS":   func(c *stream.Config) { c.ReaderChunks = 0 },
		"HOLDFAST_STREAM_READER_BYTES":    func(c *stream.Config) { c.ReaderBytes = 0 },
	} {
		c := stream.Defaults()
		spoil(&c)
		_, err := stream.New(t.Context(), c, stream.Peers{})
		f, ok := errors.AsType[*fault.Fault](err)
		if !ok || f.Reason != "CONFIG_INVALID" || len(f.Detail) < len(variable) || f.Detail[:len(variable)] != variable {
			t.Errorf("%s: got %v, want a fault that names it", variable, err)
		}
	}
}
