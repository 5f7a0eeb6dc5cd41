package cloudflare

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// slowSessions answer after a second.
type slowSessions struct {
	statev1.SessionServiceClient
	reads int
}

func (s *slowSessions) GetSession(ctx context.Context, _ *statev1.GetSessionRequest, _ ...grpc.CallOption) (*statev1.GetSessionResponse, error) {
	s.reads++
	select {
	case <-time.After(time.Second):
		return &statev1.GetSessionResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestReadersOfAnInstanceShareAReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sessions := &slowSessions{}
		i := newInstance(&Sockets{Sessions: &conversation.Reader{Sessions: sessions, Policy: retry.Policy{Now: time.Now}}}, instanceKey{tenant: "acme", session: "s1"})
		const readers = 10
		got := make(chan *reading, readers)
		for range readers {
			go func() {
				now, err := i.read(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- now
			}()
			synctest.Wait()
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := i.read(brief); err == nil {
			t.Error("a reader waits longer than its context")
		}
		for range readers {
			if now := <-got; now == nil || now.number > 2 {
				t.Errorf("got %v", now)
			}
		}
		if sessions.reads != 2 {
			t.Errorf("the session was read %d times", sessions.reads)
		}
	})
}
