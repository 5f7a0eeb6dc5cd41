package stream_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream"
)

// The embedded log survives a restart. Its loss, or an older copy, costs one new attempt.
func TestAnEmbeddedLogIsKeptOrCostsOneAttempt(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	older := t.TempDir()
	h := start(t, c)
	w := h.writer(refOf("kept"))
	w.say(t, "a", "b")
	h.stop()
	if err := os.CopyFS(older, os.DirFS(c.DataDir)); err != nil {
		t.Fatal(err)
	}

	w.fixture = start(t, c)
	r := w.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(1, 2)})
	r.expect(t, "caught up")
	w.say(t, "c")
	r.expect(t, "c")
	w.stored(t, &streamv2.ReadRequest{Stream: w.ref}, "a", "b", "c")
	w.stop()

	for i, directory := range []string{older, t.TempDir()} {
		c.DataDir = directory
		w.fixture = start(t, c)
		w.appendUntilLost(t)
		again := fmt.Sprint("again ", i)
		w.begin(t, again)
		w.stored(t, &streamv2.ReadRequest{Stream: w.ref}, again)
		w.say(t, "d")
		w.stored(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(w.attempt, 1)}, "d")
		w.stop()
	}
}

func TestTwoServicesDoNotShareADirectory(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	start(t, c)
	_, err := stream.New(t.Context(), c, stream.Peers{Log: slog.New(slog.DiscardHandler)})
	refused(t, err, fault.Invalid, "CONFIG_INVALID")
}
