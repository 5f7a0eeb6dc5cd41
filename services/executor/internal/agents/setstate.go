package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// stateSetter is a key of setState: the value that a successful call writes into the custom state.
type stateSetter struct {
	at    value
	key   string
	from  string   // result or argument; empty for a constant
	path  []string // in the result, or in the arguments
	value any      // of a constant
}

// readSetState reads setState: an object of keys with constants, {result: path} or {argument: path}.
func readSetState(s *section) []stateSetter {
	var setters []stateSetter
	members, _ := s.field("setState").members()
	for _, m := range members {
		setter := stateSetter{at: m.value, key: m.name}
		if members, ok := m.members(); ok && len(members) == 1 && (members[0].name == "result" || members[0].name == "argument") {
			path, isText := members[0].text()
			if !isText || path == "" && members[0].name == "argument" {
				s.record(m.value, "setState", s.what, fmt.Sprintf("setState.%s: %s must be a path, as a.b", m.name, members[0].name))
			}
			setter.from = members[0].name
			if path != "" {
				setter.path = strings.Split(path, ".")
			}
		} else if constant, err := decode(m.json()); err == nil {
			setter.value = constant
		}
		setters = append(setters, setter)
	}
	return setters
}

// withSetState returns the tool with the writes of setState after each success. Keys that the state schema of the
// agent does not name are mistakes, if it names any.
func (t placedTool) withSetState(what string, stateSchema json.RawMessage) agent.Tool {
	if len(t.setState) == 0 {
		return t.tool
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(stateSchema, &schema) // a broken schema is reported at its own place
	for _, s := range t.setState {
		if _, known := schema.Properties[s.key]; !known && schema.Properties != nil {
			s.at.mistake("%s: tool %q: the stateSchema has no property %q, which setState writes", what, t.tool.Name, s.key)
		}
	}
	if t.tool.Execute == nil {
		t.at.mistake("%s: tool %q: setState is for tools that the executor runs, not for client tools and sub-agents", what, t.tool.Name)
		return t.tool
	}
	run := t.tool.Execute
	t.tool.Execute = func(ctx context.Context, call *agent.Call) (any, error) {
		result, err := run(ctx, call)
		if err != nil {
			return nil, err
		}
		if err := setState(call, t.setState, result); err != nil {
			return nil, fmt.Errorf("the tool has run, but its result cannot be written into the custom state: %w", err)
		}
		return result, nil
	}
	return t.tool
}

// setState writes the values of a successful call. A null deletes its key. A value that is missing in the result or
// in the arguments is not written.
func setState(call *agent.Call, setters []stateSetter, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	from := map[string]any{}
	if from["result"], err = decode(text); err != nil {
		return err
	}
	if len(call.Input) > 0 {
		if from["argument"], err = decode(call.Input); err != nil {
			return err
		}
	}
	return call.Update(func(draft agent.State) error {
		for _, s := range setters {
			found, exists := s.value, true
			if s.from != "" {
				found, exists = lookUp(from[s.from], s.path)
			}
			switch {
			case !exists:
			case found == nil:
				delete(draft, s.key)
			default:
				draft[s.key] = found
			}
		}
		return nil
	})
}
