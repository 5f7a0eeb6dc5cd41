package server

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxClaimBytes bounds a claim: one message, less space for its frame.
const maxClaimBytes = rpc.DefaultMaxMessageBytes - 64<<10

// ClaimRuns implements statev1.WorkServiceServer.
func (s *workService) ClaimRuns(stream grpc.BidiStreamingServer[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	executor, err := executorIn(hello)
	if err != nil {
		return err
	}
	return s.scheduler.Serve(stream.Context(), executor, claimStream{stream, s.grants})
}

// claimStream implements scheduler.Stream.
type claimStream struct {
	grpc.BidiStreamingServer[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]
	grants *grants
}

// Credits implements scheduler.Stream.
func (s claimStream) Credits() (int, error) {
	r, err := s.Recv()
	return int(r.GetCredits()), err
}

// SendClaim implements scheduler.Stream. It sends only the last message of the conversation if
// all are too large together: the executor then reads the others.
func (s claimStream) SendClaim(c scheduler.Claim) error {
	claim, err := claimOut(c)
	if err != nil {
		return err
	}
	claim.Grant = s.grants.sign(c.Change.Session, c.Ref())
	work := &statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Execute{Execute: claim}}
	size := proto.Size(work)
	if n := len(claim.GetMessages()); size > maxClaimBytes && n > 1 {
		claim.Messages = claim.Messages[n-1:]
		size = proto.Size(work)
	}
	if size > maxClaimBytes {
		return &scheduler.OversizedError{Bytes: size, Limit: maxClaimBytes}
	}
	return s.Send(work)
}

// SendStop implements scheduler.Stream.
func (s claimStream) SendStop(runID string, stop session.Stop) error {
	stopped := &statev1.StoppedRun{RunId: runID, Stop: stopOut(&stop)}
	return s.Send(&statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Stop{Stop: stopped}})
}

// executorIn gives Invalid (EXECUTOR_INVALID, ID_INVALID).
func executorIn(r *statev1.ClaimRunsRequest) (scheduler.Executor, error) {
	const maxAgents, maxDescription = 1000, 4096
	invalid := func(format string, args ...any) (scheduler.Executor, error) {
		return scheduler.Executor{}, invalid("EXECUTOR_INVALID", format, args...)
	}
	if p := idProblem(r.GetExecutorId()); p != "" {
		return invalid("executor_id %s; the first request of a stream names the executor", p)
	}
	if n := len(r.GetAgents()); n == 0 || n > maxAgents {
		return invalid("the first request announces %d agents; announce 1 to %d", n, maxAgents)
	}
	executor := scheduler.Executor{ID: r.GetExecutorId(), Held: r.GetHeldRunIds(), Credits: int(r.GetCredits()), Spare: int(r.GetSpareCredits())}
	for _, a := range r.GetAgents() {
		if p := idProblem(a.GetAgentType()); p != "" {
			return invalid("agent_type %q %s", a.GetAgentType(), p)
		}
		if len(a.GetDescription()) > maxDescription || strings.ContainsRune(a.GetDescription(), 0) {
			return invalid("the description of agent %q is longer than %d bytes or has a zero character", a.GetAgentType(), maxDescription)
		}
		if checkBusy(a.GetOnBusy()) != nil {
			return invalid("on_busy of agent %q is %s, which is not a policy", a.GetAgentType(), a.GetOnBusy())
		}
		if err := checkStateSchema(a.GetStateSchema()); err != nil {
			return invalid("state_schema of agent %q: %v", a.GetAgentType(), err)
		}
		executor.Agents = append(executor.Agents, session.Agent{
			Type: a.GetAgentType(), Description: a.GetDescription(), OnBusy: busyIn[a.GetOnBusy()], StateSchema: a.GetStateSchema(), Remote: a.GetRemote(),
		})
	}
	return executor, checkHeld(executor.Held)
}

// checkStateSchema accepts an empty schema.
func checkStateSchema(schema string) error {
	switch n := len(schema); {
	case n == 0:
		return nil
	case n > agent.MaxStateSchema:
		return fmt.Errorf("it has %d bytes, %d are allowed", n, agent.MaxStateSchema)
	}
	_, err := agent.CompileSchema(json.RawMessage(schema))
	return err
}
