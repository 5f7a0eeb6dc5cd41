package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// verdict is the fate of an executor's call.
type verdict int

const (
	pass verdict = iota
	failBefore
	failAfter
	dieBefore
	dieAfter
)

// faults apply to all executors.
type faults struct {
	// gate, if set, may delay or refuse an append.
	gate func(ctx context.Context, r *streamv2.AppendRequest) error
	// streamDown refuses all appends.
	streamDown atomic.Bool
	// refuse, if set, may refuse a unary call to the state service.
	refuse func(request any) error
	// stopsByHeartbeat removes stops from the claim streams.
	stopsByHeartbeat bool
	// alterClaim, if set, changes claims before the executor receives them.
	alterClaim func(c *statev1.Claim)
}

// connection is an executor's connection to the services.
type connection struct {
	system *system
	decide func(call int, method string) verdict

	silent atomic.Bool // fails the heartbeats

	mu      sync.Mutex
	calls   int // without heartbeats, whose number depends on the clock
	dead    bool
	onDeath func()
	cancels []context.CancelFunc // of the open streams
}

var errConnection = fault.New(fault.Unavailable, "UNAVAILABLE", "the connection is broken")

// next counts a call and returns its fate.
func (c *connection) next(method string) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	heartbeat := strings.HasSuffix(method, "/Heartbeat")
	switch {
	case c.dead, heartbeat && c.silent.Load():
		return failBefore
	case heartbeat:
		return pass
	}
	c.calls++
	if c.decide == nil {
		return pass
	}
	return c.decide(c.calls, method[strings.LastIndexByte(method, '/')+1:])
}

// kill cuts the executor off permanently.
func (c *connection) kill() {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	c.dead = true
	onDeath := c.onDeath
	c.mu.Unlock()
	c.cutStreams()
	if onDeath != nil {
		onDeath()
	}
}

// cutStreams breaks the open streams. The executor may open others.
func (c *connection) cutStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cancel := range c.cancels {
		cancel()
	}
	c.cancels = nil
}

// count returns how many calls were made.
func (c *connection) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// faultyConn passes calls on to the services, or fails them.
type faultyConn struct{ *connection }

func (c faultyConn) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	v := c.next(method)
	if v == dieBefore {
		c.kill()
	}
	if v == failBefore || v == dieBefore {
		return errConnection
	}
	err := c.invoke(ctx, method, request, response, options...)
	if v == dieAfter {
		c.kill()
	}
	if v == failAfter || v == dieAfter {
		return errConnection
	}
	return err
}

func (c faultyConn) invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	p := c.system
	if r, ok := request.(*streamv2.AppendRequest); ok {
		return p.append(ctx, method, r, response, options...)
	}
	if p.faults.refuse != nil {
		if err := p.faults.refuse(request); err != nil {
			return err
		}
	}
	err := p.stateAPI.Invoke(ctx, method, request, response, options...)
	if err == nil {
		p.traffic.record(request, response)
	}
	return err
}

// append appends to the current log.
func (p *system) append(ctx context.Context, method string, r *streamv2.AppendRequest, response any, options ...grpc.CallOption) error {
	if p.faults.streamDown.Load() {
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "the log is down")
	}
	if p.faults.gate != nil {
		if err := p.faults.gate(ctx, r); err != nil {
			return err
		}
	}
	log := p.logs.get()
	err := log.conn.Invoke(ctx, method, r, response, options...)
	log.record(r, err)
	return err
}

func (c faultyConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		cancel()
		return nil, errConnection
	}
	c.cancels = append(c.cancels, cancel)
	s, err := c.system.stateAPI.NewStream(ctx, desc, method, options...)
	if err != nil {
		return nil, err
	}
	if method != statev1.WorkService_ClaimRuns_FullMethodName {
		return s, nil
	}
	return claimStream{s, c.system}, nil
}

// claimStream observes the messages of a claim stream.
type claimStream struct {
	grpc.ClientStream
	system *system
}

func (s claimStream) SendMsg(m any) error {
	if r := m.(*statev1.ClaimRunsRequest); r.GetExecutorId() != "" {
		s.system.traffic.announce(r)
	}
	return s.ClientStream.SendMsg(m)
}

func (s claimStream) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			return err
		}
		r := m.(*statev1.ClaimRunsResponse)
		if r.GetStop() != nil && s.system.faults.stopsByHeartbeat {
			proto.Reset(r)
			continue
		}
		if claim := r.GetExecute(); claim != nil {
			if alter := s.system.faults.alterClaim; alter != nil {
				alter(claim)
			}
			s.system.traffic.claim(claim)
		}
		return nil
	}
}

// traffic records what executors write and receive.
type traffic struct {
	mu         sync.Mutex
	changed    chan struct{} // closed at the next write
	effects    map[string]bool
	writes     map[string][]string // effective writes, by session, in their order
	commits    []*statev1.CommitStepRequest
	releases   []*statev1.ReleaseRunRequest
	heartbeats int
	held       [][]string // run ids of heartbeats that list them
	announced  []*statev1.ClaimRunsRequest
	claims     map[string]*statev1.Claim // by claimKey
}

func claimKey(sessionID string, epoch int64) string { return fmt.Sprint(sessionID, " ", epoch) }

// next returns a channel that is closed at the next write.
func (t *traffic) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// wake ends the waits of next. The caller holds mu.
func (t *traffic) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// record records a write that the state service has accepted.
func (t *traffic) record(request, response any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r := request.(type) {
	case *statev1.RecordPlanRequest:
		t.effect(r.GetRun(), r.GetStep(), "plan")
	case *statev1.RecordResultRequest:
		t.effect(r.GetRun(), r.GetStep(), "result "+r.GetResult().GetResult().GetToolCallId())
	case *statev1.CommitStepRequest:
		if t.effect(r.GetRun(), r.GetStep(), fmt.Sprint("commit ", r.GetStep())) {
			t.commits = append(t.commits, proto.CloneOf(r))
		}
	case *statev1.FinishRunRequest:
		t.effect(r.GetRun(), 0, "finish")
	case *statev1.ReleaseRunRequest:
		t.releases = append(t.releases, proto.CloneOf(r))
	case *statev1.HeartbeatRequest:
		t.heartbeats++
		if r.GetHeld() != nil {
			t.held = append(t.held, r.GetHeld().GetRunIds())
		}
	}
	t.wake()
}

// effect records a write, and reports whether it is no repetition. The caller holds mu.
func (t *traffic) effect(run *statev1.RunRef, step int32, name string) (first bool) {
	if t.effects == nil {
		t.effects, t.writes = map[string]bool{}, map[string][]string{}
	}
	key := fmt.Sprint(run.GetSessionId(), " ", step, " ", name)
	if step == 0 {
		key += " " + run.GetRunId()
	}
	if t.effects[key] {
		return false
	}
	t.effects[key] = true
	t.writes[run.GetSessionId()] = append(t.writes[run.GetSessionId()], name)
	return true
}

func (t *traffic) announce(r *statev1.ClaimRunsRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announced = append(t.announced, proto.CloneOf(r))
	t.wake()
}

func (t *traffic) claim(c *statev1.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claims == nil {
		t.claims = map[string]*statev1.Claim{}
	}
	t.claims[claimKey(c.GetSession().GetSessionId(), c.GetEpoch())] = proto.CloneOf(c)
	t.wake()
}

// written returns the effective writes of the session.
func (p *system) written(sessionID string) []string {
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	return slices.Clone(p.traffic.writes[sessionID])
}

// recordedResults returns the ids of calls with a result in the journal of the session.
func (p *system) recordedResults(sessionID string) []string {
	var ids []string
	for _, write := range slices.Backward(p.written(sessionID)) {
		id, ok := strings.CutPrefix(write, "result ")
		if !ok {
			break
		}
		ids = append(ids, id)
	}
	return ids
}

// released returns the requests that released the run.
func (p *system) released(runID string) []*statev1.ReleaseRunRequest {
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	var list []*statev1.ReleaseRunRequest
	for _, r := range p.traffic.releases {
		if r.GetRun().GetRunId() == runID {
			list = append(list, r)
		}
	}
	return list
}

// commits returns the committed steps.
func (p *system) commits() []*statev1.CommitStepRequest {
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	return slices.Clone(p.traffic.commits)
}

// announced returns the first requests of the claim streams.
func (p *system) announced() []*statev1.ClaimRunsRequest {
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	return slices.Clone(p.traffic.announced)
}

// heartbeats returns the number of accepted heartbeats.
func (p *system) heartbeats() int {
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	return p.traffic.heartbeats
}
