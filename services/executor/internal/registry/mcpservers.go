package registry

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// mcpServers is a pool of connected MCP servers: one for each configuration, shared by all sets
// of agents and all runs that use it, and closed after the last of them. After a reload, an
// unchanged server keeps its session, and a removed one lives as long as the runs with its tools. Safe for concurrent use.
type mcpServers struct {
	mu      sync.Mutex
	list    []*lease
	closing sync.WaitGroup
}

// lease is one MCP server in use. The mu of all guards its users.
type lease struct {
	*mcptool.Server
	all    *mcpServers
	config mcptool.Config
	sets   int // of agents
	runs   map[user]bool
}

// user is a held run of an executor.
type user struct {
	catalog *Catalog // the executor's
	runID   string
}

// connect returns the server of a configuration for one more set of agents.
func (s *mcpServers) connect(ctx context.Context, c mcptool.Config, p mcptool.Peers) (*lease, error) {
	if connected := s.find(c); connected != nil {
		return connected, nil
	}
	opened, err := mcptool.Open(ctx, c, p)
	if err != nil {
		return nil, err
	}
	connected := &lease{Server: opened, all: s, config: c, sets: 1, runs: map[user]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, connected)
	return connected, nil
}

// find returns a connected server for one more set; nil for none.
func (s *mcpServers) find(c mcptool.Config) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, connected := range s.list {
		if reflect.DeepEqual(connected.config, c) {
			connected.sets++
			return connected
		}
	}
	return nil
}

// hold keeps the server open until the run has ended. The caller holds a set with it.
func (l *lease) hold(u user) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.runs[u] = true
}

// retain adds the use by another set.
func (l *lease) retain() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.sets++
}

// release ends the use by one set.
func (l *lease) release() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.sets--
	l.all.closeIdle()
}

// releaseEnded ends the use by runs that the executor no longer executes. live returns those that it executes. A run is live when
// it begins to use a server, so live must be called while mu is locked.
func (s *mcpServers) releaseEnded(c *Catalog, live func() []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return
	}
	ids := live()
	for _, l := range s.list {
		maps.DeleteFunc(l.runs, func(u user, _ bool) bool { return u.catalog == c && !slices.Contains(ids, u.runID) })
	}
	s.closeIdle()
}

// empty reports whether there is no server.
func (s *mcpServers) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) == 0
}

// closeIdle closes the servers without users. The caller holds mu.
func (s *mcpServers) closeIdle() {
	s.list = slices.DeleteFunc(s.list, func(l *lease) bool {
		idle := l.sets == 0 && len(l.runs) == 0
		if idle {
			s.closing.Go(func() { _ = l.Close() }) // always nil
		}
		return idle
	})
}

// closeAll closes all servers and waits until they have ended.
func (s *mcpServers) closeAll() {
	s.mu.Lock()
	for _, l := range s.list {
		s.closing.Go(func() { _ = l.Close() }) // always nil
	}
	s.list = nil
	s.mu.Unlock()
	s.closing.Wait()
}
