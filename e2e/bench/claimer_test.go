package bench_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// claimedAgent is served by the benchmark.
const claimedAgent = "claimed"

// claimer is an executor that claims runs. The benchmark appends their chunks.
type claimer struct {
	conn   *grpc.ClientConn
	claims statev1.WorkService_ClaimRunsClient
}

// startClaimed starts a system in which the benchmark owns a run of each session as its executor. Readers see
// the start of the runs; the appenders add the rest.
func startClaimed(b *testing.B, o harness.Options, sessions int, session func(i int) string) (*harness.System, *claimer, []*appender) {
	b.Helper()
	o.Executors, o.LogLevel = harness.NoExecutors, "warn"
	o.StateEnv = append(o.StateEnv, "HOLDFAST_STATE_SILENT_AFTER=1h") // the claimer sends no heartbeats
	s := harness.Start(b, o)
	c := newClaimer(b, s)
	claimed := make(chan map[string]*statev1.Claim, 1)
	go func() { claimed <- c.take(b, sessions) }()
	err := some(sessions, func(i int) error {
		ctx, cancel := context.WithTimeout(b.Context(), attachLimit)
		defer cancel()
		return s.Ask(ctx, session(i), claimedAgent, "Wait.")
	})
	if err != nil {
		b.Fatal(err)
	}
	claims := <-claimed
	if b.Failed() {
		b.FailNow()
	}
	conns := dialStream(b, s.Stream.Address)
	writers := make([]*appender, sessions)
	err = some(sessions, func(i int) error {
		claim := claims[session(i)]
		if claim == nil {
			return fmt.Errorf("the run of %s was not claimed", session(i))
		}
		writers[i] = claimedAppender(conns[i%len(conns)], claim)
		return writers[i].begin(b.Context())
	})
	if err != nil {
		b.Fatal(err)
	}
	return s, c, writers
}

func newClaimer(b *testing.B, s *harness.System) *claimer {
	b.Helper()
	c := &claimer{conn: harness.DialInternal(b, s.State.Address)}
	var err error
	if c.claims, err = statev1.NewWorkServiceClient(c.conn).ClaimRuns(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := c.claims.Send(&statev1.ClaimRunsRequest{ExecutorId: "benchmark", Agents: []*statev1.Agent{{AgentType: claimedAgent}}}); err != nil {
		b.Fatal(err)
	}
	s.WaitAgent(b, claimedAgent)
	return c
}

// take claims n runs and returns the claims by session.
func (c *claimer) take(b *testing.B, n int) map[string]*statev1.Claim {
	claims := map[string]*statev1.Claim{}
	if err := c.claims.Send(&statev1.ClaimRunsRequest{Credits: int32(n)}); err != nil {
		b.Error(err)
		return nil
	}
	for len(claims) < n {
		work, err := c.claims.Recv()
		if err != nil {
			b.Errorf("claim run %d of %d: %v", len(claims)+1, n, err)
			return nil
		}
		if claim := work.GetExecute(); claim != nil {
			claims[claim.GetSession().GetSessionId()] = claim
		}
	}
	return claims
}

// finish commits messages as the steps of a claimed run. The last one ends the run.
func (c *claimer) finish(ctx context.Context, claim *statev1.Claim, texts []string) error {
	run := &statev1.RunRef{
		Tenant: claim.GetSession().GetTenant(), SessionId: claim.GetSession().GetSessionId(), RunId: claim.GetRun().GetRunId(), Epoch: claim.GetEpoch(),
	}
	first := claim.GetSession().GetStepCount() + 1
	for i, text := range texts {
		r := &statev1.CommitStepRequest{
			Run: run, Step: first + int32(i),
			Messages: []*eventv1.Message{{Id: fmt.Sprint("answer-", i), Role: eventv1.Role_ROLE_ASSISTANT, Parts: []*eventv1.Part{textPart(text)}}},
		}
		if i == len(texts)-1 {
			r.Outcome = &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED}
		}
		if _, err := statev1.NewWorkServiceClient(c.conn).CommitStep(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// appender writes to one session like an executor: through gRPC, fenced, one append in flight.
type appender struct {
	client streamv2.StreamServiceClient
	stream *streamv2.StreamRef
	claim  *statev1.Claim
	run    string
	epoch  int64
	at     position.Position // of the last chunk
	stands int64
}

func claimedAppender(conn *grpc.ClientConn, claim *statev1.Claim) *appender {
	session := claim.GetSession()
	attempt, _ := position.Attempts(session.GetClaims())
	return &appender{
		client: streamv2.NewStreamServiceClient(conn),
		stream: &streamv2.StreamRef{Tenant: session.GetTenant(), RootSessionId: session.GetSessionId(), SessionId: session.GetSessionId()},
		claim:  claim, run: claim.GetRun().GetRunId(), epoch: claim.GetEpoch(),
		at: position.Position{Step: session.GetStepCount() + 1, Attempt: attempt}, stands: session.GetPosition(),
	}
}

// appenders returns n appenders without a claim, for a lone stream service.
func appenders(conns []*grpc.ClientConn, n int, session func(i int) string) []*appender {
	all := make([]*appender, n)
	for i := range all {
		id := session(i)
		all[i] = &appender{
			client: streamv2.NewStreamServiceClient(conns[i%len(conns)]),
			stream: &streamv2.StreamRef{Tenant: streamTenant, RootSessionId: id, SessionId: id},
			run:    "run_4fcu3ou6kzybimpoixfu6jirdy", epoch: 1, at: position.Position{Step: 1, Attempt: 1},
		}
	}
	return all
}

// begin appends the start of the run.
func (a *appender) begin(ctx context.Context) error {
	started := &eventv1.RunStarted{Turn: a.claim.GetRun().GetTurn(), MessageId: a.claim.GetRun().GetMessageId()}
	return a.append(ctx,
		&eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: started}},
		&eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
}

// say appends a chunk with the text.
func (a *appender) say(ctx context.Context, text string) error {
	return a.append(ctx, &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}})
}

func (a *appender) append(ctx context.Context, chunks ...*eventv1.Chunk) error {
	for _, c := range chunks {
		c.AgentId, c.AgentType, c.Timestamp, c.Step = a.run, claimedAgent, time.Now().UnixMilli(), a.at.Step
	}
	r := &streamv2.AppendRequest{Stream: a.stream, Epoch: a.epoch, Records: []*streamv2.Record{{Chunks: slices.Clone(chunks)}}}
	if a.at.N == 0 {
		r.Records[0].Attempt = &streamv2.Attempt{RunId: a.run, Stands: a.stands}
	} else {
		r.After = a.at.Sequence()
	}
	a.at.N++
	r.Records[0].Sequence = a.at.Sequence()
	a.at.N += int32(len(chunks)) - 1
	_, err := a.client.Append(ctx, r)
	return err
}
