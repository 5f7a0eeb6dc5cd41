package executor

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// servers is the MCP servers that are connected: one for each configuration, shared by
// all sets of agents and runs that use it, and closed behind the last of them. So a server
// that a reload leaves as it is keeps its session, and one that is gone lives as long as a run
// that has its tools. Safe for concurrent use.
type servers struct {
	mu      sync.Mutex
	list    []*lease
	closing sync.WaitGroup
}

// lease is one MCP server in use. Its users are guarded by the mu of all.
type lease struct {
	*mcptool.Server
	all    *servers
	config mcptool.Config
	sets   int // of agents
	runs   map[user]bool
}

// user is a run in the hands of an executor.
type user struct {
	by    *catalog
	runID string
}

// connect gives the server of a configuration to a set.
func (s *servers) connect(ctx context.Context, c mcptool.Config, p mcptool.Peers) (*lease, error) {
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

func (s *servers) find(c mcptool.Config) *lease {
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

// hold keeps the server until the run has ended. The caller keeps a set that uses it.
func (l *lease) hold(u user) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.runs[u] = true
}

// release ends the use by a set.
func (l *lease) release() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.sets--
	l.all.closeIdle()
}

// sweep notes which runs of an executor have ended. A run that holds a server is among the
// live ones until it ends, so that live has to be asked behind the lock.
func (s *servers) sweep(by *catalog, live func() []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return
	}
	ids := live()
	for _, l := range s.list {
		maps.DeleteFunc(l.runs, func(u user, _ bool) bool { return u.by == by && !slices.Contains(ids, u.runID) })
	}
	s.closeIdle()
}

// empty reports whether there is no server.
func (s *servers) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) == 0
}

// closeIdle closes the servers that nobody uses. The caller holds mu.
func (s *servers) closeIdle() {
	s.list = slices.DeleteFunc(s.list, func(l *lease) bool {
		idle := l.sets == 0 && len(l.runs) == 0
		if idle {
			s.closing.Go(func() { _ = l.Close() }) // gives nil
		}
		return idle
	})
}

// closeAll closes all servers and waits until they have ended.
func (s *servers) closeAll() {
	s.mu.Lock()
	for _, l := range s.list {
		s.closing.Go(func() { _ = l.Close() }) // gives nil
	}
	s.list = nil
	s.mu.Unlock()
	s.closing.Wait()
}
