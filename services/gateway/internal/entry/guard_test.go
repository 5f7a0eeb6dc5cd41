package entry

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

func TestHooksThatHangAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := &Guard{Log: slog.New(slog.DiscardHandler), Before: []Hook{{Timeout: time.Second, Ask: func(context.Context, *Entry) error {
			<-release
			return nil
		}}}}
		enter := func() error { return g.Enter(t.Context(), auth.Local(), &statev1.RequestStopRequest{SessionId: "s"}) }
		for range maxHanging {
			if err := enter(); err == nil || !strings.Contains(err.Error(), "has not returned within 1s") {
				t.Fatalf("a hook that hangs: got %v", err)
			}
		}
		begun := time.Now()
		if err := enter(); err == nil || !strings.Contains(err.Error(), "1000 hooks hang") || time.Since(begun) != 0 {
			t.Errorf("beyond the limit: got %v after %v, want a refusal at once", err, time.Since(begun))
		}
		close(release)
		synctest.Wait()
		if err := enter(); err != nil {
			t.Errorf("after the hooks have returned: got %v", err)
		}
	})
}

func TestACommandWithoutAnEntryIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	g := &Guard{Before: []Hook{{Ask: func(context.Context, *Entry) error { panic("asked") }}}}
	if err := g.Enter(t.Context(), auth.Local(), &statev1.GetSessionRequest{SessionId: "s"}); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestAHookLeavesAloneWhatItDoesNotChange(t *testing.T) {
	t.Parallel()
	text := func(id string, role eventv1.Role, texts ...string) *eventv1.Message {
		m := &eventv1.Message{Id: id, Role: role}
		for _, text := range texts {
			m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}})
		}
		return m
	}
	row := text("", eventv1.Role_ROLE_CONTEXT, "The shop is closed.")
	row.Metadata = map[string]string{"kind": "notice"}
	hello := text("", eventv1.Role_ROLE_USER, "Hel", "lo")
	hello.UiMetadata, hello.UiParts = `{"at":1}`, `[{"at":0,"type":"data-x","data":1}]`
	for name, test := range map[string]struct {
		change func(*Run)
		want   []*eventv1.Message
	}{
		"nothing": {func(*Run) {}, []*eventv1.Message{row, hello}},
		"one more": {func(r *Run) { r.Messages = append([]Message{{Role: "user", Text: "First."}}, r.Messages...) },
			[]*eventv1.Message{text("", eventv1.Role_ROLE_USER, "First."), row, hello}},
		"one less": {func(r *Run) { r.Messages = r.Messages[1:] }, []*eventv1.Message{hello}},
		"another text": {func(r *Run) { r.Messages[1].Text = "Bye" }, []*eventv1.Message{row, func() *eventv1.Message {
			m := text("", eventv1.Role_ROLE_USER, "Bye") // one part less: the data parts would stand elsewhere
			m.UiMetadata = hello.GetUiMetadata()
			return m
		}()}},
		"another row": {func(r *Run) { r.Messages[0].Text = "It is open." }, []*eventv1.Message{func() *eventv1.Message {
			m := text("", eventv1.Role_ROLE_CONTEXT, "It is open.")
			m.Metadata = row.GetMetadata()
			return m
		}(), hello}},
	} {
		command := &statev1.StartRunRequest{
			SessionId: "s", OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, EarlierMessageIds: []string{"a"},
			Messages: []*eventv1.Message{proto.CloneOf(row), proto.CloneOf(hello)},
		}
		want := proto.CloneOf(command)
		want.Messages = test.want
		g := &Guard{Before: []Hook{{Timeout: time.Minute, Ask: func(_ context.Context, e *Entry) error { test.change(e.Run); return nil }}}}
		if err := g.Enter(t.Context(), auth.Local(), command); err != nil || !proto.Equal(command, want) {
			t.Errorf("%s: got %v, %v, want %v", name, command, err, want)
		}
	}
}
