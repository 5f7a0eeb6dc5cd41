package server

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const countSchema = `{"type":"object","properties":{"count":{"type":"integer","default":0},"name":{"type":"string"}},"required":["name"]}`

// announceSchema announces the agent with a schema of its custom state.
func (b *bench) announceSchema(schema string) {
	b.Helper()
	b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "announcer", Agents: []*statev1.Agent{{AgentType: "support", StateSchema: schema}}}).cancel()
}

func TestAWriteThatBreaksTheAnnouncedSchemaIsRefusedWithItsPlaceAndRule(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announceSchema(countSchema)
		if got, want := b.create("s").GetCustomState(), `{"count":0}`; got != want {
			t.Errorf("the new session has the state %s, want %s", got, want)
		}
		_, err := b.sessions.CreateSession(t.Context(), &statev1.CreateSessionRequest{Tenant: "acme", SessionId: "t", AgentType: "support", CustomState: `{"count":"many"}`})
		b.refuses(err, fault.Invalid, "STATE_INVALID")
		_, err = b.sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: `{"count":1.5}`})
		b.refuses(err, fault.Invalid, "STATE_INVALID")
		_, err = b.sessions.MergeState(t.Context(), &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", Ops: []*statev1.StateOp{{Key: "count", Op: &statev1.StateOp_Replace{Replace: `"x"`}}}})
		if f := b.refuses(err, fault.Invalid, "STATE_INVALID"); !strings.Contains(f.Detail, "/count must be") {
			t.Errorf("the detail %q does not name the place and the rule", f.Detail)
		}
		start := startOf("u")
		start.CustomState = `{"name":1}`
		_, err = b.runs.StartRun(t.Context(), start)
		b.refuses(err, fault.Invalid, "STATE_INVALID")
		if got := b.start("v").GetSession().GetCustomState(); got != `{"count":0}` {
			t.Errorf("the session of a run has the state %s, want the defaults", got)
		}

		_, err = b.sessions.MergeState(t.Context(), &statev1.MergeStateRequest{Tenant: "acme", SessionId: "s", Ops: []*statev1.StateOp{{Key: "count", Op: &statev1.StateOp_Replace{Replace: `2`}}}})
		b.must(err) // name was missing before, too
	})
}

func TestAnAgentWithoutASchemaTakesAnyState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	b.create("s")
	_, err := b.sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "s", CustomState: `{"count":"many"}`})
	b.must(err)
}

func TestAnAnnouncedSchemaHasALimitAndCompiles(t *testing.T) {
	t.Parallel()
	padded := func(n int) string { return countSchema + strings.Repeat(" ", n-len(countSchema)) }
	for schema, ok := range map[string]bool{
		padded(agent.MaxStateSchema): true, padded(agent.MaxStateSchema + 1): false, `{"type":"nothing"}`: false, `{`: false,
	} {
		var x reader
		readExecutor(&x, &statev1.ClaimRunsRequest{ExecutorId: "e", Agents: []*statev1.Agent{{AgentType: "a", StateSchema: schema}}})
		if (x.err == nil) != ok {
			t.Errorf("a schema of %d bytes: %v", len(schema), x.err)
		}
	}
}

func TestAnEditBehindAChangeOfAgentHasTheDefaultsOfTheNewAgent(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "e1", Credits: 10, Agents: []*statev1.Agent{{AgentType: "support"}, {AgentType: "b", StateSchema: countSchema}}})
		s.talk("s", "u1")
		toB := startOf("s")
		toB.AgentType, toB.RequestKey = "b", "m2"
		toB.Messages[0].Id = "m2"
		_, err := b.runs.StartRun(t.Context(), toB)
		b.must(err)
		s.commit(endingStep(refTo(s.execute()), 2, completed))
		edit := editing("s", said(eventv1.Role_ROLE_USER, "u1", "hello!"))
		edit.AgentType = "b"
		got, err := b.runs.StartRun(t.Context(), edit)
		b.must(err)
		if state, want := got.GetSession().GetCustomState(), `{"count":0}`; state != want {
			t.Errorf("got the state %s, want %s", state, want)
		}
	})
}
