package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Model says what its script tells it to say.
type Model struct {
	script   *Script
	attempts attempts
}

var _ model.Model = (*Model)(nil)

// New makes a model of a script. It keeps nothing but the counts of "attempts".
func New(script *Script) *Model {
	return &Model{script: script, attempts: attempts{counts: make(map[[sha256.Size]byte]int)}}
}

// Generate replies as the first rule that matches says. A name that the script
// does not know fails with provider_not_found, a conversation that no rule
// matches and a template that cannot be rendered with provider_invalid_request;
// none is retryable.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		character, ok := m.script.models[r.Model]
		if !ok {
			yield(nil, &model.Error{
				Code: model.CodeNotFound,
				Message: fmt.Sprintf("the script has no model %q, only %q",
					r.Model, slices.Sorted(maps.Keys(m.script.models))),
			})
			return
		}
		conv := look(r)
		rule := m.choose(character, &conv, r)
		if rule == nil {
			yield(nil, &model.Error{
				Code: model.CodeInvalidRequest,
				Message: fmt.Sprintf("no rule of the scripted model %q matches the last user message %.200q (user turn %d, step %d, last role %q): add a rule without \"when\"",
					r.Model, conv.LastUser, conv.UserCount, conv.step, conv.lastRole),
			})
			return
		}
		s := speech{yield: yield, conv: conv, character: character}
		if err := s.say(ctx, rule.Reply); err != nil && !s.stopped {
			yield(nil, err)
		}
	}
}

// choose gives the first rule that matches, with its match in conv; nil when none does.
func (m *Model) choose(c *character, conv *conversation, r model.Request) *rule {
	for i := range c.Rules {
		rule := &c.Rules[i]
		match, ok := rule.When.holds(*conv)
		if !ok {
			continue
		}
		if rule.When != nil && rule.When.Attempts > 0 && !m.attempts.next(rule.When.Attempts, i, r) {
			continue
		}
		conv.Match, conv.Group = match, rule.When.groups(match)
		return rule
	}
	return nil
}

// toJSON makes one JSON value of the text of arguments.
func toJSON(text string) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage("{}")
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	// Marshalling a string cannot fail.
	quoted, _ := json.Marshal(text)
	return quoted
}
