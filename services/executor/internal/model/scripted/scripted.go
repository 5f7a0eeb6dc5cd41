package scripted

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Model replies from its script.
type Model struct {
	script   *Script
	attempts attempts
}

var _ model.Model = (*Model)(nil)

// New returns a model of a script. Its only state is the counts of "attempts".
func New(script *Script) *Model {
	return &Model{script: script, attempts: attempts{counts: make(map[[sha256.Size]byte]int)}}
}

// Generate yields the reply of the first matching rule. An unknown model gives provider_not_found. A
// conversation without a matching rule and a failing template give provider_invalid_request. None of these is
// retryable.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		s, reply, err := m.selectReply(r)
		if err != nil {
			yield(nil, err)
			return
		}
		s.yield = model.FilterEvents(yield, "")
		if err := s.write(ctx, reply); err != nil && !s.stopped {
			yield(nil, err)
		}
	}
}

// selectReply finds the reply. It is a separate function so that a waiting reply does not keep the conversation
// in memory.
func (m *Model) selectReply(r model.Request) (*replyWriter, reply, error) {
	character, ok := m.script.models[r.Model]
	if !ok {
		return nil, nil, &model.Error{
			Code: model.CodeNotFound,
			Message: fmt.Sprintf("the script has no model %q, only %q",
				r.Model, slices.Sorted(maps.Keys(m.script.models))),
		}
	}
	conv := newConversation(r)
	rule := m.matchRule(character, &conv, r)
	if rule == nil {
		return nil, nil, model.InvalidRequest("no rule of the scripted model %q matches the last user message %.200q "+
			"(user turn %d, step %d, last role %q, forced %t, output %t): add a rule without \"when\"",
			r.Model, conv.LastUser, conv.UserCount, conv.step, conv.lastRole, conv.forced, conv.output)
	}
	return &replyWriter{
		data: conv.templateData, replyCount: conv.replyCount, promptWords: conv.wordCount, script: character,
	}, rule.Reply, nil
}

// matchRule returns the first matching rule and sets its match in conv; nil if none matches.
func (m *Model) matchRule(c *modelScript, conv *conversation, r model.Request) *rule {
	for i := range c.Rules {
		rule := &c.Rules[i]
		match, ok := rule.When.matches(*conv)
		if !ok {
			continue
		}
		if rule.When != nil && rule.When.Attempts > 0 && !m.attempts.count(rule.When.Attempts, i, r) {
			continue
		}
		conv.Match, conv.Group = match, rule.When.namedGroups(match)
		return rule
	}
	return nil
}
