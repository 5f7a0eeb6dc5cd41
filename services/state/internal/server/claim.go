package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// claimBatch is how many runs one transaction claims at most: enough to make
// it cheap, few enough to leave work for other executors.
const claimBatch = 16

type claimStream = grpc.BidiStreamingServer[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]

// ClaimRuns implements statev1.WorkServiceServer. It ends when the client has
// no more to say, when the client is gone, and when the service stops:
// Unavailable (STOPPING).
func (s *Server) ClaimRuns(stream claimStream) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	agents, err := checkHello(hello)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	broke := false
	s.suspects.Join(hello.GetExecutorId())
	defer func() { s.suspects.Leave(hello.GetExecutorId(), broke) }()
	if err := s.announce(ctx, hello, agents, s.millis()); err != nil {
		return err
	}
	c := &claimer{server: s, stream: stream, executorID: hello.GetExecutorId(), credits: newCredits(hello.GetCredits())}
	for _, a := range agents {
		c.agents = append(c.agents, a.Type)
	}
	if !s.begin(func() { c.credits.fill(stream) }) {
		return stopping()
	}
	err = c.work(ctx)
	broke = c.broke(ctx)
	return err
}

// broke reports whether the stream has ended without a word of either side: the
// executor is dead, or has reasons of its own.
func (c *claimer) broke(ctx context.Context) bool {
	select {
	case <-c.server.stopping:
		return false
	default:
	}
	_, ended := c.credits.get()
	return ctx.Err() != nil && !errors.Is(ended, io.EOF)
}

// work hands out claims and stops until the stream ends.
func (c *claimer) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	c.box = c.server.stops.join(c.executorID)
	defer c.server.stops.leave(c.box)
	c.handed.more = make(chan struct{}, 1)
	var broken error
	var beside sync.WaitGroup
	beside.Go(func() { c.tellStops(ctx) })
	beside.Go(func() {
		if broken = c.handOut(ctx); broken != nil {
			cancel()
		}
	})
	err := c.run(ctx)
	cancel()
	beside.Wait()
	return cmp.Or(broken, err)
}

// announce registers the executor and takes back what it does not know of.
func (s *Server) announce(ctx context.Context, hello *statev1.ClaimRunsRequest, agents []session.Agent, now session.Millis) error {
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	if err := s.store.Announce(ctx, hello.GetExecutorId(), agents, now); err != nil {
		return err
	}
	// The executor has opened the stream after it knew what it holds, so no
	// claim of it is too fresh to be counted as lost.
	return s.reclaimLost(ctx, hello.GetExecutorId(), hello.GetHeldRunIds(), now+1)
}

func stopping() error {
	return fault.New(fault.Unavailable, "STOPPING", "this state service stops; open the stream again, elsewhere")
}

// begin runs f in a goroutine that Stop waits for, unless Stop was called.
func (s *Server) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.streams.Go(f)
	return true
}

// checkHello gives Invalid (EXECUTOR_INVALID).
func checkHello(r *statev1.ClaimRunsRequest) ([]session.Agent, error) {
	const mostAgents, longestDescription = 1000, 4096
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "EXECUTOR_INVALID", format, args...)
	}
	if p := problem(r.GetExecutorId()); p != "" {
		return nil, bad("executor_id %s; the first request of a stream names the executor", p)
	}
	if n := len(r.GetAgents()); n == 0 || n > mostAgents {
		return nil, bad("the first request announces %d agents; announce 1 to %d", n, mostAgents)
	}
	var agents []session.Agent
	for _, a := range r.GetAgents() {
		if p := problem(a.GetAgentType()); p != "" {
			return nil, bad("agent_type %q %s", a.GetAgentType(), p)
		}
		if len(a.GetDescription()) > longestDescription || strings.ContainsRune(a.GetDescription(), 0) {
			return nil, bad("the description of agent %q is longer than %d bytes or has a zero character", a.GetAgentType(), longestDescription)
		}
		if checkBusy(a.GetOnBusy()) != nil {
			return nil, bad("on_busy of agent %q is %s, which is no policy", a.GetAgentType(), a.GetOnBusy())
		}
		agents = append(agents, session.Agent{Type: a.GetAgentType(), Description: a.GetDescription(), OnBusy: busyIn[a.GetOnBusy()]})
	}
	return agents, nil
}

// claimer hands out work on one stream.
type claimer struct {
	server     *Server
	stream     claimStream
	executorID string
	agents     []string
	credits    *credits
	box        *stopBox
	sending    sync.Mutex // one message at a time: claims, and stops beside them
	handed     handed     // claims that commands have made for this stream

	poll *time.Timer // when to look for everything again
	all  bool        // that time has come, and a look that found all of it has not
}

// claim claims at most limit runs and sends them: with all, those that nobody else can
// end as well, which come last. It returns how many,
// and whether there may be more, but for the last: it has found as many as it may, of
// which another replica may have been faster with some.
// Of the limit, which is credits that the caller has taken, it gives back what it does
// not send.
func (c *claimer) claim(ctx context.Context, limit int, all bool) (n int, more bool, err error) {
	select {
	case <-c.server.stopping:
		return 0, false, stopping()
	default:
	}
	s, used := c.server, 0
	defer func() { c.credits.back(limit - used) }()
	command := session.Claim{ExecutorID: c.executorID, Now: s.millis()}
	need := session.Need{State: true, Journal: true, Calls: true, Tail: s.tail()}
	runs, more, err := c.due(ctx, store.Queued{ExecutorID: c.executorID, AgentTypes: c.agents, Now: command.Now}, need, limit, command.Decide)
	if err != nil {
		return 0, false, err
	}
	used, err = c.send(ctx, runs)
	n = len(runs)
	if err != nil || !all || n == limit {
		return n, more, err
	}
	orphaned := session.ClaimOrphaned{Claim: command, After: session.Millis(s.config.OrphanedAfter.Milliseconds())}
	orphans, _, err := c.due(ctx, store.Orphaned{ExecutorID: c.executorID, Now: command.Now}, need, limit-n, orphaned.Decide)
	if err != nil {
		return n, more, err
	}
	sent, err := c.send(ctx, orphans)
	used += sent
	return n + len(orphans), more, err // what more there is of these comes with the next poll
}

// tail is what a claim carries of the conversation.
func (s *Server) tail() session.Tail {
	return session.Tail{Messages: s.config.Limits.TailMessages, Bytes: s.config.Limits.TailBytes}
}

// claimWithin bounds one transaction of claims, so that a database that has
// vanished without a word does not hold a stream. What it may have claimed
// nevertheless comes back by the executor's list of runs.
const claimWithin = 10 * time.Second

func (c *claimer) due(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) (done []store.Decided, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	found := 0
	done, err = c.server.store.UpdateDue(ctx, due, need, limit, func(v *session.View) (*session.Change, error) {
		found++ // of all attempts: one look too many does no harm
		return decide(v)
	})
	return done, found >= limit, err
}

// send hands the claims over, and returns how many. Those that could not be sent are
// released.
func (c *claimer) send(ctx context.Context, claims []store.Decided) (sent int, err error) {
	for i, claim := range claims {
		answer, err := executeOut(claim)
		if err == nil {
			err = c.server.used(ctx, claim, answer)
		}
		if err == nil && !fitted(answer) {
			c.giveUp(ctx, claim, proto.Size(answer))
			continue
		}
		if err == nil {
			err = c.out(answer)
		}
		if err != nil {
			c.giveBack(ctx, claims[i:])
			return sent, err
		}
		c.server.stops.handed(c.box, claim.Change.Runs[0].RunID)
		sent++
	}
	return sent, nil
}

// mostClaim is how large a claim may be: what one message may have, less some
// room for its frame.
const mostClaim = rpc.DefaultMaxMessageBytes - 64<<10

// fitted reports whether the claim can be sent, after it has left messages out
// where it must: the executor reads those that it was not handed.
func fitted(answer *statev1.ClaimRunsResponse) bool {
	if proto.Size(answer) <= mostClaim {
		return true
	}
	claim := answer.GetExecute()
	if n := len(claim.GetMessages()); n > 1 {
		claim.Messages = claim.Messages[n-1:]
	}
	return proto.Size(answer) <= mostClaim
}

// giveUp ends a run that no executor can be handed. Given back, it would be
// claimed again at once, and break one stream after the other.
func (c *claimer) giveUp(ctx context.Context, d store.Decided, size int) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	s, run := c.server, d.Change.Runs[0]
	s.log.ErrorContext(ctx, "a run is too large to be handed to an executor and fails", "session", d.View.Session.SessionID, "run", run.RunID, "bytes", size)
	command := session.Finish{
		Ref: session.Ref{Key: d.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch}, Now: s.millis(),
		Outcome: session.Outcome{Status: session.RunFailed, Failure: &session.Failure{
			Error: "What the conversation has to go on with is too large.", Code: "framework_internal_error",
			Detail: fmt.Sprintf("the claim of the run has %d bytes; the limit is %d: give smaller inputs and answers to calls", size, mostClaim),
		}},
	}
	_, err := spread(ctx, s, session.Target{Key: command.Key, Need: command.Need()}, size, command.Now, alone(command.Decide))
	if err != nil {
		s.log.WarnContext(ctx, "a run that is too large was not ended; it is found again", "run", run.RunID, "error", err)
	}
}

func (c *claimer) giveBack(ctx context.Context, claims []store.Decided) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	for _, d := range claims {
		run := d.Change.Runs[0]
		ref := session.Ref{Key: d.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch}
		if err := c.server.release(ctx, ref, 0); err != nil {
			// Not lost: the executor does not hold it, and says so.
			c.server.log.WarnContext(ctx, "release of a claim that could not be sent failed", "run", run.RunID, "error", err)
		}
	}
}

func executeOut(d store.Decided) (*statev1.ClaimRunsResponse, error) {
	claim := claimOut(d)
	var err error
	if claim.Journal, err = journalOut(d.View.Journal); err != nil {
		return nil, err
	}
	if claim.Messages, err = messagesOut(d.View.Tail); err != nil {
		return nil, err
	}
	if claim.Calls, err = callsOut(d.View.Calls); err != nil {
		return nil, err
	}
	return &statev1.ClaimRunsResponse{Work: &statev1.ClaimRunsResponse_Execute{Execute: claim}}, nil
}

func claimOut(d store.Decided) *statev1.Claim {
	s, run := d.Change.Session, &d.Change.Runs[0]
	return &statev1.Claim{Session: sessionOut(s), Run: runOut(s.Key, run), Epoch: s.Epoch, Journal: &statev1.Journal{}}
}
