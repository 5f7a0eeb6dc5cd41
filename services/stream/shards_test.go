package stream_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

func TestFamiliesAreSpreadOverIndependentSystems(t *testing.T) {
	t.Parallel()
	systems := []*natstest.Solo{natstest.StartSolo(t, t.TempDir()), natstest.StartSolo(t, t.TempDir()), natstest.StartSolo(t, t.TempDir())}
	c := onNATS(systems[0].URL() + " ; " + systems[1].URL() + ";" + systems[2].URL())
	one, two := start(t, c), start(t, c)
	for i := range 24 {
		ref := refOf(fmt.Sprint("spread ", i))
		root := one.writer(ref)
		child := one.writer(&streamv2.StreamRef{Tenant: "acme", RootSessionId: ref.GetSessionId(), SessionId: "child"})
		root.say(t, "a")
		child.say(t, "c")
		r := two.read(t, &streamv2.ReadRequest{Stream: ref, Family: true})
		r.expect(t, "a", "c", "caught up")
		root.say(t, "b")
		r.expect(t, "b")
		two.stored(t, &streamv2.ReadRequest{Stream: child.ref}, "c")
	}
}

func TestASystemThatIsAwayTakesOnlyItsSessions(t *testing.T) {
	t.Parallel()
	systems := []*natstest.Solo{natstest.StartSolo(t, t.TempDir()), natstest.StartSolo(t, t.TempDir())}
	h := start(t, onNATS(systems[0].URL()+";"+systems[1].URL()))
	var writers []*writer
	for i := range 16 {
		w := h.writer(refOf(fmt.Sprint("away ", i)))
		w.say(t, "a")
		writers = append(writers, w)
	}
	systems[1].Stop()
	away := 0
	for _, w := range writers {
		if err := w.append(t.Context(), "b"); err != nil {
			refused(t, err, fault.Unavailable, "LOG_UNAVAILABLE")
			away++
			continue
		}
		h.stored(t, &streamv2.ReadRequest{Stream: w.ref}, "a", "b")
	}
	if away == 0 || away == len(writers) {
		t.Errorf("%d of %d sessions are away, want some", away, len(writers))
	}
}
