package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// clerk is a definition, and clerkHash the hash of its canonical form.
const (
	clerk     = `{"agents": [{"name": "clerk", "model": "m/x"}]}`
	clerkHash = "34793070c01216a99d6a8d9ff5483b41993cf2f6b01ffc6a5b944f330e7a38d4"
)

func put(tenant, name, definition string) *statev1.PutStoredAgentRequest {
	return &statev1.PutStoredAgentRequest{
		Tenant: tenant, Agent: &statev1.Agent{AgentType: name}, Definition: definition,
	}
}

// putAgent stores an agent, and returns its hash.
func (b *bench) putAgent(tenant, name, definition string) string {
	b.Helper()
	got, err := b.stored.PutStoredAgent(b.Context(), put(tenant, name, definition)) // by nobody: no event
	b.must(err)
	return got.GetStored().GetHash()
}

func storing(executorID string, credits int32) *statev1.ClaimRunsRequest {
	return &statev1.ClaimRunsRequest{ExecutorId: executorID, ServesStoredAgents: true, Credits: credits}
}

func clerkStart(id string) *statev1.StartRunRequest {
	r := startOf(id)
	r.AgentType = "clerk"
	return r
}

func TestAStoredAgentSaysWhatAPutHasChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.StoredAgents, c.Limits.DefinitionBytes = 2, 100 })
	for _, step := range []struct {
		definition string
		want       statev1.PutStoredAgentResponse_Outcome
	}{
		{clerk, statev1.PutStoredAgentResponse_OUTCOME_CREATED},
		{"{ \"agents\" :\n[{\"model\":\"m/x\",\"name\":\"clerk\"}]}", statev1.PutStoredAgentResponse_OUTCOME_UNCHANGED},
		{`{"agents":[{"name":"clerk","model":"m/y"}]}`, statev1.PutStoredAgentResponse_OUTCOME_CHANGED},
		{clerk, statev1.PutStoredAgentResponse_OUTCOME_CHANGED},
	} {
		r := put("acme", "clerk", step.definition)
		r.Caller = mia()
		got, err := b.stored.PutStoredAgent(t.Context(), r)
		if err != nil || got.GetOutcome() != step.want || got.GetStored().GetStoredBy() != mia().GetActor() {
			t.Errorf("%s: got %v, %v; want %v", step.definition, got, err, step.want)
		}
	}
	found, err := b.stored.GetStoredAgent(t.Context(), &statev1.GetStoredAgentRequest{Tenant: "acme", AgentType: "clerk"})
	b.must(err)
	if want := `{"agents":[{"model":"m/x","name":"clerk"}]}`; found.GetDefinition() != want || found.GetAgent().GetStored().GetHash() != clerkHash {
		t.Errorf("got %v, want %s with the hash %s", found, want, clerkHash)
	}
	if list := b.audited("acme"); len(list) != 3 || !strings.HasPrefix(list[0], `agent.stored agent:clerk done {"hash":"`) {
		t.Errorf("got entries\n%s\nwant three of agent.stored", strings.Join(list, "\n"))
	}

	refuse := func(kind fault.Kind, reason string, r *statev1.PutStoredAgentRequest) {
		t.Helper()
		_, err := b.stored.PutStoredAgent(t.Context(), r)
		b.refuses(err, kind, reason)
	}
	refuse(fault.Invalid, "DEFINITION_INVALID", put("acme", "clerk", `[1]`))
	refuse(fault.Invalid, "DEFINITION_INVALID", put("acme", "clerk", `{} {}`))
	refuse(fault.Invalid, "DEFINITION_INVALID", put("acme", "clerk", `null`))
	refuse(fault.Invalid, "AGENT_INVALID", put("acme", "", clerk))
	refuse(fault.Invalid, "AGENT_INVALID", put("acme", "\x01stored", clerk))
	exact := `{"a":"` + strings.Repeat("x", 100-len(`{"a":""}`)) + `"}`
	b.putAgent("acme", "second", exact)
	refuse(fault.TooLarge, "DEFINITION_TOO_LARGE", put("acme", "second", exact+" "))
	refuse(fault.TooLarge, "TOO_MANY_AGENTS", put("acme", "third", clerk))
	stale := put("acme", "clerk", `{}`)
	stale.ExpectedHash = proto.String("")
	refuse(fault.Stale, "AGENT_CHANGED", stale)
	_, err = b.stored.DeleteStoredAgent(t.Context(), &statev1.DeleteStoredAgentRequest{Tenant: "acme", AgentType: "clerk", ExpectedHash: proto.String("x")})
	if f := b.refuses(err, fault.Stale, "AGENT_CHANGED"); f.Meta["hash"] != clerkHash {
		t.Errorf("got the metadata %v, want the present hash", f.Meta)
	}
	b.announce()
	refuse(fault.Conflict, "AGENT_ANNOUNCED", put("other", "support", clerk))
}

func TestARunOfAStoredAgentWaitsForAnExecutorThatServesThem(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Scheduler.Poll = 5 * time.Millisecond })
		old := b.open("old", 9) // knows no stored agents
		hash := b.putAgent("acme", "clerk", clerk)
		_, err := b.runs.StartRun(t.Context(), clerkStart("s1"))
		b.must(err)
		b.advance(time.Second)
		b.expectReason("s1", statev1.QueuedReason_REASON_NO_EXECUTOR,
			`the agent "clerk" is stored, and no executor serves stored agents: set HOLDFAST_EXECUTOR_STORED_AGENTS`)
		new := b.announcing(storing("new", 9))
		claim := new.execute()
		if run := claim.GetRun(); run.GetAgentType() != "clerk" || run.GetDefinition() != hash {
			t.Errorf("got the claim of %v, want the clerk with the hash %s", run, hash)
		}
		got, err := b.work.GetDefinition(t.Context(), &statev1.GetDefinitionRequest{Run: refTo(claim), Hash: hash})
		if err != nil || got.GetDefinition() != `{"agents":[{"model":"m/x","name":"clerk"}]}` {
			t.Errorf("got %v, %v", got, err)
		}
		b.finish(refTo(claim))
		// The executor is idle now, so the next run is handed over.
		changed := b.putAgent("acme", "clerk", `{"agents":[{"name":"clerk","model":"m/y"}]}`)
		again := clerkStart("s1")
		again.AgentType = "" // of an existing session
		started, err := b.runs.StartRun(t.Context(), again)
		b.must(err)
		claim = new.execute()
		if run := claim.GetRun(); run.GetRunId() != started.GetRun().GetRunId() || run.GetDefinition() != changed {
			t.Errorf("got the claim of %v, want the new run with the hash %s", run, changed)
		}
		_, err = b.work.GetDefinition(t.Context(), &statev1.GetDefinitionRequest{Run: refTo(claim), Hash: hash})
		b.refuses(err, fault.NotFound, "DEFINITION_NOT_FOUND")
		select {
		case got := <-old.got:
			t.Errorf("an executor that knows no stored agents got %v", got)
		default:
		}
	})
}

func TestTheListOfAgentsHasTheStoredOnesOfTheTenant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.putAgent("acme", "clerk", clerk)
	b.putAgent("other", "clerk", clerk)
	b.putAgent("other", "secret", clerk)
	b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "e1", Agents: []*statev1.Agent{{AgentType: "support"}}, ServesStoredAgents: true})
	list := func() *statev1.ListAgentsResponse {
		t.Helper()
		got, err := b.sessions.ListAgents(t.Context(), &statev1.ListAgentsRequest{Tenant: "acme"})
		b.must(err)
		return got
	}
	got := list()
	if a := got.GetAgents(); len(a) != 2 || a[0].GetAgentType() != "clerk" || a[0].GetExecutors() != 1 || a[0].GetStored().GetHash() != clerkHash ||
		a[1].GetAgentType() != "support" || a[1].GetStored() != nil || len(got.GetUnservedAgentTypes()) != 0 {
		t.Errorf("got %v, want the stored clerk and the announced support", got)
	}
	b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "e2", Agents: []*statev1.Agent{{AgentType: "clerk"}}})
	got = list()
	if a := got.GetAgents(); len(a) != 2 || a[0].GetStored() != nil || len(got.GetProblems()) != 1 || got.GetProblems()[0].GetName() != "clerk" {
		t.Errorf("got %v, want the executor's clerk, and a problem of the stored one", got)
	}
}
