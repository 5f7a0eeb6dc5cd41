package conversation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// hung is a state service that never answers.
type hung struct{ statev1.RunServiceClient }

func (hung) GetRun(ctx context.Context, _ *statev1.GetRunRequest, _ ...grpc.CallOption) (*statev1.GetRunResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAHungStateServiceIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := conversation.Reader{Runs: hung{}}
		began := time.Now()
		_, err := r.Run(ctx, "default", &statev1.Run{})
		if took := time.Since(began); took > 2*time.Second || !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != "STATE_TIMEOUT" {
			t.Errorf("got %v after %v, want STATE_TIMEOUT after 2s", err, took)
		}
	})
}

func TestACancelledReadIsNoTimeout(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := conversation.Reader{Runs: hung{}}
	if _, err := r.Run(ctx, "default", &statev1.Run{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
