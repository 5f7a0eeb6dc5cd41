package stream_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

func TestSessionsAreSpreadOverIndependentSystems(t *testing.T) {
	t.Parallel()
	systems := []*natstest.Solo{natstest.StartSolo(t, t.TempDir()), natstest.StartSolo(t, t.TempDir()), natstest.StartSolo(t, t.TempDir())}
	c := onNATS(systems[0])
	c.NATSURL = systems[0].URL() + " ; " + systems[1].URL() + ";" + systems[2].URL()
	one, two := start(t, c), start(t, c)
	for i := range 24 {
		ref := refOf(fmt.Sprint("spread ", i))
		w := one.writer(ref, "run", 1)
		child := one.writer(&streamv1.StreamRef{Tenant: "acme", RootSessionId: ref.GetSessionId(), SessionId: "child"}, "below", 1)
		w.say(t, 1, "a")
		child.say(t, 1, "c")
		r := two.read(t, &streamv1.ReadRequest{Stream: ref, Family: true})
		equal(t, []string{r.next(t), r.next(t), r.next(t)}, "a", "c", "caught up")
		w.end(t, ended("run"))
		equal(t, r.rest(t), "end run")
		equal(t, two.listAll(t, &streamv1.ListRequest{Stream: ref, Family: true}), "a", "c", "end run")
	}
	for name, order := range map[string][]int{"swapped": {1, 0, 2}, "fewer": {0, 1}, "one": {0}} {
		var urls []string
		for _, i := range order {
			urls = append(urls, systems[i].URL())
		}
		wrong := c
		wrong.NATSURL = strings.Join(urls, ";")
		_, err := stream.New(t.Context(), wrong, stream.Peers{Log: slog.New(slog.DiscardHandler)})
		if fault.ReasonOf(err) != "CONFIG_INVALID" {
			t.Errorf("%s: got %v, want CONFIG_INVALID: sessions would be looked for in the wrong system", name, err)
		}
	}
}

func TestASystemThatIsAwayTakesOnlyItsSessions(t *testing.T) {
	t.Parallel()
	systems := []*natstest.Solo{natstest.StartSolo(t, t.TempDir()), natstest.StartSolo(t, t.TempDir())}
	c := onNATS(systems[0])
	c.NATSURL += ";" + systems[1].URL()
	h := start(t, c)
	var writers []*writer
	for i := range 16 {
		w := h.writer(refOf(fmt.Sprint("away ", i)), "run", 1)
		w.say(t, 1, "a")
		writers = append(writers, w)
	}
	systems[1].Stop()
	lost := 0
	for _, w := range writers {
		switch err := w.text(t.Context(), 1, "b"); {
		case err == nil:
			equal(t, h.stored(t, w.ref), "a", "b", "caught up")
		case errors.Is(err, fault.Unavailable):
			lost++
		default:
			t.Errorf("got %v, want LOG_UNAVAILABLE", err)
		}
	}
	if lost == 0 || lost == len(writers) {
		t.Errorf("%d of %d sessions are away, want some", lost, len(writers))
	}
}
