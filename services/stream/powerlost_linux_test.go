package stream_test

import (
	"os"
	"path/filepath"
	"testing"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// TestALogWhoseMachineWentDownBeginsAnew tells the embedded server that the
// machine was booted since it was killed, which only Linux says.
func TestALogWhoseMachineWentDownBeginsAnew(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	h := start(t, c)
	w := h.writer(refOf("down"), "run", 1)
	w.say(t, 1, "a", "b")
	h.stop()
	h = start(t, c) // an ordinary restart
	equal(t, h.stored(t, w.ref), "a", "b", "caught up")
	h.stop()

	note := filepath.Join(c.DataDir, "holdfast.boot")
	if _, err := os.Stat(note); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(note, []byte(`{"boot": "another", "open": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.house = start(t, c)
	equal(t, w.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: w.last}).rest(t), "truncated")
	w.tellAgain(t, "a2")
	cursor := w.last
	w.house.stop()
	h = start(t, c) // and not once more
	r := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cursor})
	equal(t, []string{r.next(t)}, "caught up")
}
