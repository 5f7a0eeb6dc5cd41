package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
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
	x := s.runner.read(hello)
	executor := readExecutor(x, hello)
	if x.err != nil {
		return x.err
	}
	return s.scheduler.Serve(stream.Context(), executor, claimStream{stream, s.grants, s.callbacks})
}

// claimStream implements scheduler.Stream.
type claimStream struct {
	grpc.BidiStreamingServer[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]
	grants    *grants
	callbacks grant.CallbackKeys
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
	if claim.AgentsAbove, err = s.agentsAbove(c.Change.Session); err != nil {
		return err
	}
	claim.Grant = s.grants.sign(c.Change.Session, c.Ref())
	claim.CallbackKey = s.callbacks.Of(c.Change.Session.Tenant, c.Change.Session.SessionID)
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

// agentsAbove returns the agents of the sessions above, the parent's first. The grant of a claim does not reach these sessions.
func (s claimStream) agentsAbove(of *session.Session) (agents []string, err error) {
	for parent := of.ParentID; parent != ""; {
		above, err := s.grants.store.Session(s.Context(), session.Key{Tenant: of.Tenant, SessionID: parent})
		if errors.Is(err, fault.NotFound) { // it is being deleted, and this session with it
			return agents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the session %q above a claimed run: %w", parent, err)
		}
		agents = append(agents, above.Session.AgentType)
		parent = above.Session.ParentID
	}
	return agents, nil
}

// SendStop implements scheduler.Stream.
func (s claimStream) SendStop(runID string, stop session.Stop) error {
	stopped := &statev1.StoppedRun{RunId: runID, Stop: stopOut(&stop)}
	return s.Send(&statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Stop{Stop: stopped}})
}

// readExecutor gives Invalid (EXECUTOR_INVALID, ID_INVALID).
func readExecutor(x *reader, r *statev1.ClaimRunsRequest) scheduler.Executor {
	const reason, maxAgents, maxText = "EXECUTOR_INVALID", 1000, 4096
	if p := idProblem(r.GetExecutorId()); p != "" {
		x.refuse(reason, "executor_id %s; the first request of a stream names the executor", p)
	}
	if n := len(r.GetAgents()); n == 0 && len(r.GetProblems()) == 0 && !r.GetServesStoredAgents() || n > maxAgents {
		x.refuse(reason, "the first request announces %d agents; announce 1 to %d", n, maxAgents)
	}
	if n := len(r.GetProblems()); n > maxProblems {
		x.refuse(reason, "the first request has %d problems; the limit is %d", n, maxProblems)
	}
	executor := scheduler.Executor{ID: r.GetExecutorId(), Credits: int(r.GetCredits()), Spare: int(r.GetSpareCredits())}
	for _, p := range r.GetProblems() {
		if max(len(p.GetKind()), len(p.GetName()), len(p.GetAgentType()), len(p.GetText())) > maxText {
			x.refuse(reason, "a problem has a text of more than %d bytes", maxText)
		}
		executor.Problems = append(executor.Problems, session.Problem{
			Kind: p.GetKind(), Name: p.GetName(), Agent: p.GetAgentType(), Text: p.GetText(),
		})
	}
	for _, a := range r.GetAgents() {
		executor.Agents = append(executor.Agents, readAgent(x, reason, a))
		if x.err != nil {
			return executor
		}
	}
	if r.GetServesStoredAgents() {
		executor.Agents = append(executor.Agents, session.Agent{Type: session.StoredAgents})
	}
	executor.Held = readClaimedRuns(x, r.GetHeldRunIds())
	return executor
}

// readClaimedRuns reads the runs that an executor works on. Invalid (EXECUTOR_INVALID, ID_INVALID).
func readClaimedRuns(x *reader, runIDs []string) []string {
	const limit = 100_000
	if len(runIDs) > limit {
		x.refuse("EXECUTOR_INVALID", "an executor cannot hold %d runs; the limit is %d", len(runIDs), limit)
		return nil
	}
	return x.eachID("a held run id", runIDs)
}

// maxProblems bounds the problems of an executor, and the problems in an answer of ListAgents.
const maxProblems = 1000

// problemsOut returns the problems of all executors, each once, by kind and name.
func problemsOut(of map[string][]session.Problem) []*statev1.Problem {
	executors := map[session.Problem]int64{}
	for _, problems := range of {
		for _, p := range problems {
			executors[p]++
		}
	}
	var out []*statev1.Problem
	for p, n := range executors {
		out = append(out, &statev1.Problem{Kind: p.Kind, Name: p.Name, AgentType: p.Agent, Text: p.Text, Executors: n})
	}
	slices.SortFunc(out, func(a, b *statev1.Problem) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()),
			cmp.Compare(a.GetAgentType(), b.GetAgentType()), cmp.Compare(a.GetText(), b.GetText()))
	})
	return out[:min(len(out), maxProblems)]
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
