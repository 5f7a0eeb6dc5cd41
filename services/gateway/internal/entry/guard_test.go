package entry

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
