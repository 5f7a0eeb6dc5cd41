package session

import (
	"cmp"
	"path"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// AgentRules is what an agent permits to those who send it messages.
type AgentRules struct {
	CallerTools        *CallerTools `json:"callerTools,omitempty"` // nil if callers bring none
	CallerInstructions bool         `json:"callerInstructions,omitempty"`
}

// CallerTools permits callers to bring tools.
type CallerTools struct {
	Allow []string `json:"allow"` // patterns, as in agent.CallerTools
	Max   int32    `json:"max"`
	Taken []string `json:"taken,omitempty"` // names of the agent's own tools
}

// permits reports whether a pattern permits the name of a tool.
func (t CallerTools) permits(name string) bool {
	return slices.ContainsFunc(t.Allow, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// CallerInput is what a request adds to its agent, for the turn that it begins.
type CallerInput struct {
	Tools        []string // the names
	Instructions bool     // there are some
}

// checkPermitted gives Denied (CALLER_TOOLS_REFUSED), TooLarge (CALLER_TOOLS_TOO_LARGE) or Invalid (CALLER_TOOLS_INVALID)
// if the agent does not permit the input. A nil agent permits nothing.
func (in CallerInput) checkPermitted(name string, a *Agent) error {
	var rules AgentRules
	if a != nil && a.Rules != nil {
		rules = *a.Rules
	}
	if in.Instructions && !rules.CallerInstructions {
		return fault.New(fault.Denied, "CALLER_TOOLS_REFUSED",
			"the agent %q takes no instructions of callers; omit instructions, or set callerInstructions: true in its definition", name)
	}
	permitted := rules.CallerTools
	switch {
	case len(in.Tools) == 0:
		return nil
	case permitted == nil:
		return fault.New(fault.Denied, "CALLER_TOOLS_REFUSED",
			"the agent %q takes no tools of callers; omit tools, or set callerTools: {allow: [NAMES]} in its definition", name)
	case len(in.Tools) > int(permitted.Max):
		return fault.New(fault.TooLarge, "CALLER_TOOLS_TOO_LARGE",
			"the request has %d tools; the agent %q takes %d of a caller: send less, or raise callerTools.max in its definition",
			len(in.Tools), name, permitted.Max)
	}
	for _, tool := range in.Tools {
		switch {
		case !permitted.permits(tool):
			return fault.New(fault.Denied, "CALLER_TOOLS_REFUSED",
				"the agent %q does not take the tool %q of a caller; omit it, or add its name to callerTools.allow in the definition",
				name, tool)
		case slices.Contains(permitted.Taken, tool):
			return fault.New(fault.Invalid, "CALLER_TOOLS_INVALID",
				"the agent %q has a tool %q of its own; rename the tool of the caller", name, tool)
		}
	}
	return nil
}

// CheckCallerInput checks the input of a request whose change begins a run: see CallerInput. The views are those of the
// change.
func (c RunRequest) CheckCallerInput(change *Change, views ...*View) error {
	if len(c.Caller.Tools) == 0 && !c.Caller.Instructions {
		return nil
	}
	name := cmp.Or(change.Session.AgentType, c.AgentType)
	for _, v := range views {
		for _, a := range []*Agent{v.Agent, v.OwnAgent} {
			if a != nil && a.Type == name {
				return c.Caller.checkPermitted(name, a)
			}
		}
	}
	if v := views[0]; v.Session != nil && v.OwnAgent == nil {
		return &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{OwnAgent: true}}}}
	}
	return c.Caller.checkPermitted(name, nil)
}
