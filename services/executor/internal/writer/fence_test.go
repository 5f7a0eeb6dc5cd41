package writer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

func TestALossyWriterThatIsFencedWhenItSettlesFailsEveryCallFromThenOn(t *testing.T) {
	t.Parallel()
	rewind := func(ctx context.Context, w *writer.Writer) error {
		_, err := w.Rewind(ctx, &streamv1.RewindRequest{Step: 1}, time.Second)
		return err
	}
	terminal := func(ctx context.Context, w *writer.Writer) error {
		_, err := w.Terminal(ctx, &streamv1.Terminal{RunId: "r"})
		return err
	}
	for name, first := range map[string]func(context.Context, *writer.Writer) error{"before a rewind": rewind, "before the end": terminal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &log{answer: away}
				w := open(t, l)
				write(t, w, text(1, "a"))
				if _, err := w.Flush(t.Context()); err != nil || !w.Lossy() {
					t.Fatalf("Flush = %v, lossy %v; want it lossy", err, w.Lossy())
				}
				l.answer = func(int) error { return fault.New(fault.Stale, "WRITER_FENCED", "newer") }
				if err := first(t.Context(), w); !errors.Is(err, writer.ErrFenced) {
					t.Errorf("the first call = %v, want ErrFenced", err)
				}
				attempts := len(l.numbers)
				_, flush := w.Flush(t.Context())
				_, lost := w.Lost(t.Context())
				for call, err := range map[string]error{
					"Write": w.Write(t.Context(), text(1, "b")), "Flush": flush, "Lost": lost, "Err": w.Err(),
					"Rewind": rewind(t.Context(), w), "Terminal": terminal(t.Context(), w),
				} {
					if !errors.Is(err, writer.ErrFenced) {
						t.Errorf("%s = %v, want ErrFenced", call, err)
					}
				}
				if len(l.numbers) != attempts {
					t.Errorf("%d attempts after the fence, want none", len(l.numbers)-attempts)
				}
			})
		})
	}
}
