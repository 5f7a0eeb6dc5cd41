package stream_test

import (
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

func TestALostLogTruncatesOldCursorsAndItsWriterTellsAnew(t *testing.T) {
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
			truncated := w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cursor})
			frame, err := truncated.stream.Recv()
			if err != nil || frame.GetTruncated().GetFloor() <= cursor {
				t.Fatalf("got %v, %v; want truncated with a floor above %d", frame, err, cursor)
			}
			floor := frame.GetTruncated().GetFloor()
			equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref, RecordedSequence: cursor}).rest(t), "truncated")
			loaded := w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: floor, RecordedSequence: cursor})
			equal(t, []string{loaded.next(t)}, "caught up")

			for range 3 {
				refused(t, w.text(t.Context(), 1, "d"), fault.Stale, "LOG_RENEWED")
			}
			if answer := w.rewind(t, cursor-2, 1); answer.GetAt() != 0 || answer.GetVoided() != 0 || len(answer.GetKept()) != 0 || answer.GetSequence() <= floor {
				t.Errorf("got %v, want a marker above %d that says that nothing stands", answer, floor)
			}
			w.say(t, 1, "d")
			for _, old := range []int64{0, cursor - 1, cursor, cursor + 1} {
				equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: old}).rest(t), "truncated")
			}
			w.end(t, ended("run"))
			equal(t, loaded.rest(t), "d", "end run")
			equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: floor}).rest(t), "d", "end run")
			fresh := w.writer(refOf("fresh"), "run", 1)
			fresh.say(t, 1, "f")
			equal(t, w.stored(t, fresh.ref), "f", "caught up")
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
