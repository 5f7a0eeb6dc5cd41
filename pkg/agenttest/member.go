package agenttest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/services/executor"
)

// member is an executor.
type member struct {
	network *cuttable
	stop    context.CancelFunc
	gone    atomic.Bool // it has vanished: whatever it still does must have no effect
	ended   chan struct{}
}

// errGone is the result of a tool for a vanished executor. Nothing receives it.
var errGone = errors.New("the executor has vanished")

// vanish cuts off the executor, and ends it.
func (m *member) vanish() {
	m.gone.Store(true)
	m.network.sever()
	m.stop()
}

// join starts an executor with all agents.
func (s *System) join() {
	s.T.Helper()
	var c executor.Config
	s.must(config.Load(&c, []string{
		"HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL=10m", "HOLDFAST_EXECUTOR_MODEL_TIMEOUT=24h",
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + stateAddress, "HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + streamAddress,
		"HOLDFAST_GATEWAY_PUBLIC_URL=" + gatewayURL,
	}))
	ctx, stop := context.WithCancel(s.T.Context())
	m := &member{network: &cuttable{Network: s.network}, stop: stop, ended: make(chan struct{})}
	registry := executor.NewRegistry()
	s.must(registry.Model(provider, models{s.T, s.config.Models}))
	for _, a := range s.agents {
		a.Tools = m.guarded(a.Tools)
		s.must(registry.Register(a))
	}
	service, err := executor.New(ctx, c, executor.Peers{
		Registry: registry, Network: m.network, Log: s.log,
		Passed: func(ctx context.Context, point string) { s.pass(ctx, m, point) },
	})
	s.must(err)
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	s.ended.Go(func() {
		defer close(m.ended)
		if err := service.Run(ctx); err != nil {
			s.T.Errorf("an executor ended with %v", err)
		}
		_ = service.Close() // its connections may be cut
	})
}

// pass notes a point, and crashes the executor there if it is the one to crash at.
func (s *System) pass(ctx context.Context, m *member, point string) {
	s.mu.Lock()
	s.passed = append(s.passed, point)
	crash := len(s.passed) == s.crash
	s.mu.Unlock()
	if crash {
		m.vanish()
		s.join() //nolint:contextcheck // the next executor outlives this one
	}
	if m.gone.Load() {
		<-ctx.Done()
	}
}

// guarded returns the tools, which do nothing after the executor has vanished.
func (m *member) guarded(tools []agent.Tool) []agent.Tool {
	tools = slices.Clone(tools)
	for i, tool := range tools {
		if tool.Execute == nil {
			continue
		}
		tools[i].Execute = func(ctx context.Context, call *agent.Call) (any, error) {
			if m.gone.Load() {
				return nil, errGone
			}
			return tool.Execute(ctx, call)
		}
	}
	return tools
}

// stopMembers ends all executors.
func (s *System) stopMembers() {
	s.mu.Lock()
	members := slices.Clone(s.members)
	s.mu.Unlock()
	for _, m := range members {
		m.stop()
		<-m.ended
	}
}

// cuttable is an executor's network. Severed, it never connects again.
type cuttable struct {
	rpc.Network

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// DialContext dials, unless the network is severed.
func (c *cuttable) DialContext(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.Network.DialContext(ctx, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.Join(errGone, conn.Close())
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cuttable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}
