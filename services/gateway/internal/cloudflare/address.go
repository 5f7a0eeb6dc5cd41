package cloudflare

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// address is the address of an instance.
type address struct {
	segment string // the agent in the path, as the client knows it
	name    string
	agent   string // the announced agent
	session string
	initial string               // state of an instance without a session; "" for none
	open    bool                 // every caller with the scope chat may write the state
	tools   *statev1.CallerTools // that pages may bring; nil for none
}

// resolve finds the instance of a path. NotFound (AGENT_NOT_FOUND), Conflict (AGENT_AMBIGUOUS),
// Invalid (ID_INVALID).
func (s *Sockets) resolve(ctx context.Context, r *http.Request) (address, error) {
	a := address{segment: r.PathValue("agent"), name: r.PathValue("name")}
	agents, err := s.Sessions.Agents(ctx, "")
	if err != nil {
		return a, err
	}
	names, byName := make([]string, len(agents)), map[string]*statev1.Agent{}
	for i, known := range agents {
		names[i], byName[known.GetAgentType()] = known.GetAgentType(), known
	}
	if a.agent, err = findAgent(names, a.segment); err != nil {
		return a, err
	}
	known := byName[a.agent]
	a.initial, a.open = s.initialState(known.GetStateSchema()), clientWritable(known.GetStateSchema())
	a.tools = known.GetRules().GetCallerTools()
	a.session = sessionID(a.agent, a.name)
	if err := httpapi.CheckID("the name of the instance", a.name); err != nil {
		return a, err
	}
	return a, httpapi.CheckID("the agent and the name of the instance together", a.session)
}

// initialState returns the defaults of a schema, as a new session has them; "" for none.
func (s *Sockets) initialState(schema string) string {
	if schema == "" {
		return ""
	}
	compiled, err := s.schemas.Compile(json.RawMessage(schema))
	if err != nil { // the executor has announced a schema that this gateway does not know yet
		return ""
	}
	state, err := compiled.ApplyDefaults(nil)
	if err != nil || string(state) == noState {
		return ""
	}
	return string(state)
}

// clientWritable reports whether an agent lets its clients write the custom state: whether its state schema says
// "x-client-writable": true.
func clientWritable(schema string) bool {
	var keywords struct {
		Open bool `json:"x-client-writable"`
	}
	return json.Unmarshal([]byte(schema), &keywords) == nil && keywords.Open
}

// findAgent finds the agent of a path: the one with this name, or else the one whose name the
// clients turn into it.
func findAgent(names []string, segment string) (string, error) {
	found := ""
	for _, name := range names {
		switch {
		case name == segment:
			return name, nil
		case kebab(name) != segment:
		case found != "":
			return "", fault.New(fault.Conflict, "AGENT_AMBIGUOUS",
				"%q names the agents %q and %q; rename one, or use the exact name", segment, found, name)
		default:
			found = name
		}
	}
	if found == "" {
		return "", fault.New(fault.NotFound, "AGENT_NOT_FOUND", "no agent %.50q is announced", segment)
	}
	return found, nil
}

// kebab returns the name of an agent in a path, as the npm package agents makes it: ChatAgent is
// chat-agent, LOUD_AGENT is loud-agent.
func kebab(name string) string {
	if name == strings.ToUpper(name) && name != strings.ToLower(name) {
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	var out strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			out.WriteByte('-')
			r += 'a' - 'A'
		}
		out.WriteRune(r)
	}
	return strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(out.String(), "-"), "_", "-"), "-")
}

// sessionID returns the session of an instance. Different instances have different sessions, also if
// an agent has a colon in its name.
func sessionID(agent, name string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(agent) + ":" + name
}
