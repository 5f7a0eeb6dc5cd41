package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestANewRunMayGiveTheSessionToAnotherAgent(t *testing.T) {
	t.Parallel()
	send := func(change func(*Send, *View)) (*Change, Started, error) {
		v := runningView()
		v.Run, v.Live, v.Session.Status = nil, nil, Completed
		v.Agent, v.OwnAgent = &Agent{Type: "b", StateSchema: "s"}, &Agent{Type: "a"}
		c := Send{RunRequest: RunRequest{Key: sessionKey, AgentType: "b", RunID: "r2", Schemas: modeSchemas(), Limits: Limits{State: 1000, Waiting: 9}}}
		change(&c, v)
		return c.Decide(v)
	}
	change, started, err := send(func(*Send, *View) {})
	if err != nil || started.Run.AgentType != "b" || change.Session.AgentType != "b" || change.Session.State != `{"mode":"idle"}` || !change.NewState {
		t.Errorf("Send: %v, run of %q, session of %q with the state %s", err, started.Run.AgentType, change.Session.AgentType, change.Session.State)
	}
	for name, c := range map[string]struct {
		change func(*Send, *View)
		reason string
	}{
		"an unknown agent":       {func(_ *Send, v *View) { v.Agent = nil }, "AGENT_MISMATCH"},
		"a sub-session":          {func(_ *Send, v *View) { v.Session.ParentID = "p" }, "AGENT_MISMATCH"},
		"a live run":             {func(c *Send, v *View) { v.Session.Status, c.OnBusy = Active, BusyEnqueue }, "AGENT_MISMATCH"},
		"waiting runs":           {func(_ *Send, v *View) { v.Session.Waiting = 1 }, "AGENT_MISMATCH"},
		"answers":                {func(c *Send, _ *View) { c.Answers = []Answer{{}} }, "AGENT_MISMATCH"},
		"from a remote agent":    {func(_ *Send, v *View) { v.OwnAgent.Remote = true }, "AGENT_MISMATCH"},
		"to a remote agent":      {func(_ *Send, v *View) { v.Agent.Remote = true }, "AGENT_MISMATCH"},
		"a suspended session":    {func(_ *Send, v *View) { v.Session.Status = SuspendedClientTool }, "SESSION_SUSPENDED"},
		"a state that is no fit": {func(_ *Send, v *View) { v.Session.State = `{"n":"bad"}` }, "STATE_INVALID"},
	} {
		if _, _, err := send(c.change); fault.ReasonOf(err) != c.reason {
			t.Errorf("%s: %v, want %s", name, err, c.reason)
		}
	}
	if _, _, err := send(func(_ *Send, v *View) { v.OwnAgent = nil }); !needsMore(err, Need{OwnAgent: true}) {
		t.Errorf("without the session's agent: %v, want to read it", err)
	}
	v := runningView()
	v.Session.Status, v.Live, v.Agent, v.OwnAgent = Failed, nil, &Agent{}, &Agent{}
	if _, _, err := (Resume{RunRequest: RunRequest{Key: sessionKey, AgentType: "b"}}).Decide(v); fault.ReasonOf(err) != "AGENT_MISMATCH" {
		t.Errorf("Resume: %v, want AGENT_MISMATCH", err)
	}
}

func TestARestoredStateHasTheDefaultsOfTheSessionsAgent(t *testing.T) {
	t.Parallel()
	own := &Agent{Type: "b", StateSchema: "s"}
	request := RunRequest{Key: sessionKey, AgentType: "b", RunID: "next", Schemas: modeSchemas(), Bodies: testBodies, Limits: Limits{State: 1000}}
	view := func() *View {
		v := rewindableView()
		v.Session.AgentType, v.OwnAgent = "b", own
		v.Checkpoint, v.CheckpointState = v.RewindPoint.Checkpoint, v.RewindPoint.State
		return v
	}
	send := Send{RunRequest: request}
	send.Messages = []Message{{ID: "new"}}
	ops := Addition{Ops: []StateOp{{"x", OpReplace, "1"}}}
	for name, decide := range map[string]func() (*Change, error){
		"Edit": func() (*Change, error) {
			change, _, err := Edit{Send: send, Target: "ask"}.Decide(view())
			return change, err
		},
		"Regenerate": func() (*Change, error) {
			change, _, err := Regenerate{Send: Send{RunRequest: request}, Target: "ask"}.Decide(view())
			return change, err
		},
		"Resume": func() (*Change, error) {
			change, _, err := Resume{RunRequest: request, CheckpointID: "cp", Addition: ops}.Decide(view())
			return change, err
		},
		"RewindTo": func() (*Change, error) {
			change, _, err := RewindTo{Key: sessionKey, CheckpointID: "cp", Schemas: modeSchemas()}.Decide(view())
			return change, err
		},
		"Branch": func() (*Change, error) {
			other := request
			other.SessionID = "branch"
			change, _, err := BranchAndStart{RunRequest: other, From: sessionKey, CheckpointID: "cp", Addition: ops}.Decide(&View{}, view())
			return change, err
		},
	} {
		change, err := decide()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := `{"then":true,"mode":"idle"}`
		if name == "Resume" || name == "Branch" {
			want = `{"then":true,"mode":"idle","x":1}`
		}
		if s := change.Session; s.State != want || !change.NewState || change.StateWrite != nil || s.StateVersion != s.Version {
			t.Errorf("%s: got the state %s in version %d, stored whole: %t; want %s", name, s.State, s.StateVersion, change.NewState, want)
		}
	}
	for name, need := range map[string]Need{"Edit": Edit{Send: send}.Need(), "Regenerate": Regenerate{Send: send}.Need(), "Resume": Resume{CheckpointID: "cp"}.Need(), "RewindTo": RewindTo{}.Need()} {
		if !need.OwnAgent {
			t.Errorf("%s does not read the session's agent", name)
		}
	}
}
