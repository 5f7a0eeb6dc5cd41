package e2e

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestFiveReplicasBootAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	states := harness.StartStates(t, 5, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(t))
	key := &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"}
	for i, p := range states {
		conn := harness.DialInternal(t, p.Address)
		if i == 0 {
			announce(t, statev1.NewWorkServiceClient(conn))
			_, err := statev1.NewRunServiceClient(conn).StartRun(t.Context(), &statev1.StartRunRequest{
				Tenant: key.GetTenant(), SessionId: key.GetSessionId(), AgentType: "a",
				Messages: []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hello"}}}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got, err := statev1.NewSessionServiceClient(conn).GetSession(t.Context(), key); err != nil || got.GetSession().GetTurn() != 1 {
			t.Errorf("replica %d: got %v, %v; want the session that another one has made", i, got, err)
		}
	}
}

// announce registers an agent and waits for it.
func announce(t *testing.T, work statev1.WorkServiceClient) {
	t.Helper()
	stream, err := work.ClaimRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&statev1.ClaimRunsRequest{ExecutorId: "e", Agents: []*statev1.Agent{{AgentType: "a"}}}); err != nil {
		t.Fatal(err)
	}
	harness.WaitFor(t, spansLimit, "the executor to be known", func() (bool, string) {
		beat, err := work.Heartbeat(t.Context(), &statev1.HeartbeatRequest{ExecutorId: "e"})
		if err != nil {
			return false, err.Error()
		}
		return !beat.GetForgotten(), "it is not"
	})
}
