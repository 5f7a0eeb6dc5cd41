package session

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// modeSchemas has one schema: a state has a mode, "idle" by default, and no text "bad".
func modeSchemas() SchemaFuncs {
	return SchemaFuncs{
		Fill: func(_, state string) (string, error) {
			if strings.Contains(state, "mode") {
				return state, nil
			}
			merged, err := merge(state, []StateOp{{"mode", OpReplace, `"idle"`}}, 1000)
			return merged.state, err
		},
		Check: func(_, before, after string) error {
			if strings.Contains(after, "bad") && !strings.Contains(before, "bad") {
				return fault.New(fault.Invalid, "STATE_INVALID", "it is bad")
			}
			return nil
		},
	}
}

func TestANewSessionHasTheDefaultsOfItsAgentsSchema(t *testing.T) {
	t.Parallel()
	v := &View{Agent: &Agent{StateSchema: "s"}}
	_, created, err := Create{Key: sessionKey, AgentType: "a", State: `{"n":1}`, Schemas: modeSchemas()}.Decide(v)
	if want := `{"n":1,"mode":"idle"}`; err != nil || created.State != want {
		t.Errorf("Create: %v with the state %s, want %s", err, created.State, want)
	}
	send := Send{RunRequest: RunRequest{Key: sessionKey, AgentType: "a", RunID: "r", Schemas: modeSchemas()}, NewSession: Create{State: "{}"}}
	_, started, err := send.Decide(v)
	if want := `{"mode":"idle"}`; err != nil || started.Session.State != want {
		t.Errorf("Send: %v with the state %s, want %s", err, started.Session.State, want)
	}
	_, created, err = Create{Key: sessionKey, AgentType: "a", State: `{}`, Schemas: modeSchemas()}.Decide(&View{Agent: &Agent{}})
	if err != nil || created.State != "{}" {
		t.Errorf("Create without a schema: %v with the state %s, want {}", err, created.State)
	}
}

func TestEveryWriteFromOutsideKeepsToTheSchema(t *testing.T) {
	t.Parallel()
	bad := []StateOp{{"n", OpReplace, `"bad"`}}
	request := RunRequest{Key: sessionKey, RunID: "r2", Schemas: modeSchemas(), Limits: Limits{State: 1000}}
	view := func(status Status) *View {
		v := runningView()
		v.Run, v.Live, v.Session.Status = nil, nil, status
		v.OwnAgent = &Agent{StateSchema: "s"}
		return v
	}
	for name, decide := range map[string]func() error{
		"Create": func() error {
			_, _, err := Create{Key: sessionKey, AgentType: "a", State: `{"n":"bad"}`, Schemas: modeSchemas()}.Decide(&View{Agent: &Agent{StateSchema: "s"}})
			return err
		},
		"Send": func() error {
			c := request
			c.AgentType = "a"
			_, _, err := Send{RunRequest: c, NewSession: Create{State: `{"n":"bad"}`}}.Decide(&View{Agent: &Agent{StateSchema: "s"}})
			return err
		},
		"SaveState": func() error {
			_, _, err := SaveState{Key: sessionKey, State: `{"n":"bad"}`, Limits: Limits{State: 1000}, Schemas: modeSchemas()}.Decide(view(Paused))
			return err
		},
		"MergeState": func() error {
			_, _, err := MergeState{Key: sessionKey, Ops: bad, Limits: Limits{State: 1000}, Schemas: modeSchemas()}.Decide(view(Paused))
			return err
		},
		"Resume": func() error {
			_, _, err := Resume{RunRequest: request, Addition: Addition{Ops: bad}}.Decide(view(Paused))
			return err
		},
	} {
		if err := decide(); fault.ReasonOf(err) != "STATE_INVALID" {
			t.Errorf("%s: %v, want STATE_INVALID", name, err)
		}
	}
	for name, need := range map[string]Need{
		"SaveState": SaveState{}.Need(), "MergeState": MergeState{}.Need(),
		"Resume": Resume{Addition: Addition{Ops: bad}}.Need(), "Retry": Retry{Addition: Addition{Ops: bad}}.Need(),
		"BranchAndStart": BranchAndStart{Addition: Addition{Ops: bad}}.Targets()[1].Need,
	} {
		if !need.OwnAgent {
			t.Errorf("%s does not read the agent", name)
		}
	}
}
