package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// changingCatalog is a catalog with replaceable agents.
type changingCatalog struct {
	catalog.Static // serves no stored agents

	mu      sync.Mutex
	agents  catalog.Static
	changed chan struct{}
}

func (s *changingCatalog) set(agents ...catalog.Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents = agents
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *changingCatalog) Types() []catalog.Type {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents.Types()
}

func (s *changingCatalog) Resolve(ctx context.Context, f catalog.For) (catalog.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents.Resolve(ctx, f)
}

func (*changingCatalog) ChildHooks() map[string]agent.Hooks { return nil }

func (*changingCatalog) Problems() []catalog.Problem { return nil }

func (s *changingCatalog) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func TestAgentsThatChangeAreAnnouncedAgainWhileRunsGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		s := &changingCatalog{changed: make(chan struct{})}
		p.catalog = s
		p.open()
		time.Sleep(time.Minute)
		if len(p.announced()) != 0 {
			t.Fatalf("announced = %v without an agent", p.announced())
		}
		slow := define("slow", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			pause(ctx, 10*time.Second)
			if endsWithResults(r) {
				sendText(say, "done")
				return nil
			}
			sendCalls(say, "nothing", `{}`)
			return nil
		}))
		s.set(slow)
		run := p.startRun("s", "slow", "hi")
		time.Sleep(5 * time.Second)
		waiting := define("new", stepReplies(textReply("new")))
		waiting.OnBusy = agent.BusyEnqueue
		s.set(slow, waiting)
		if ended := p.end(run); ended.GetStatus() != completed || ended.GetAttempt() != 1 || len(p.released(run)) != 0 {
			t.Errorf("run = %v, want it completed by its first claim", ended)
		}
		again := p.announced()[len(p.announced())-1]
		var names []string
		for _, a := range again.GetAgents() {
			names = append(names, a.GetAgentType()+" "+a.GetOnBusy().String())
		}
		if want := []string{"new BUSY_POLICY_ENQUEUE", "slow BUSY_POLICY_UNSPECIFIED"}; !slices.Equal(names, want) || !slices.Equal(again.GetHeldRunIds(), []string{run}) {
			t.Errorf("announced %v holding %v, want %v", names, again.GetHeldRunIds(), want)
		}
	})
}
