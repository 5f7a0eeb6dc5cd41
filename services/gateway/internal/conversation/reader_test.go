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

// listed is a state service with this many runs. Each ended at the position of its turn.
type listed struct {
	statev1.RunServiceClient

	runs int32
}

func (l listed) ListRuns(_ context.Context, r *statev1.ListRunsRequest, _ ...grpc.CallOption) (*statev1.ListRunsResponse, error) {
	page := &statev1.ListRunsResponse{}
	for turn := min(r.GetBeforeTurn()-1, l.runs); turn > 0 && len(page.GetRuns()) < int(r.GetLimit()); turn-- {
		page.Runs = append(page.Runs, &statev1.Run{Turn: turn, EndPosition: int64(turn)})
	}
	return page, nil
}

func TestTheNewestRunsBehindAPositionAreRead(t *testing.T) {
	t.Parallel()
	const most = conversation.MaxRunsBehind
	for _, of := range []struct{ runs, at, first, count int32 }{
		{0, 0, 0, 0}, {1, 0, 1, 1}, {1, 1, 0, 0}, {450, 7, 8, 443}, {450, 250, 251, 200}, {most, 0, 1, most}, {most + 1, 0, 2, most}, {most + 1, 1, 2, most}, {3 * most, 0, 2*most + 1, most},
	} {
		r := conversation.Reader{Runs: listed{runs: of.runs}}
		got, err := r.RunsBehind(t.Context(), "t", &statev1.Run{Turn: of.runs + 1}, int64(of.at))
		if err != nil || int32(len(got)) != of.count || len(got) > 0 && (got[0].GetTurn() != of.first || got[len(got)-1].GetTurn() != of.runs) {
			t.Errorf("of %d runs behind %d: got %d, %v, want %d from turn %d on", of.runs, of.at, len(got), err, of.count, of.first)
		}
	}
}
