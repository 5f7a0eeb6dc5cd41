package loop

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// modelCalls makes the model calls of a step: the requests, and what follows when one fails or is refused.
type modelCalls struct {
	run        *run
	answers    *answers
	compaction *compaction
	trial      trial
}

// trial counts the model calls of a step. Each step begins with the agent's own model; which model answered
// before is not stored.
type trial struct {
	attempt int // calls so far over all models
	model   int // 0 is the agent's own, followed by its fallbacks
	retries int // of this model
	// context means that the agent was asked for rows of context. They count for all calls of the step.
	context bool
}

// defaultRetries is the number of retries after transient failures of a model.
const defaultRetries = 3

// next returns the next model call of the step, or what is needed before it: rows of context, or a summary. If a function of the agent was
// abandoned, the effect means nothing.
func (m *modelCalls) next() Effect {
	a := m.run.start.Agent
	name := append([]string{a.Model}, a.Fallbacks...)[m.trial.model]
	if m.asksForContext() {
		return m.contextCall(name)
	}
	lessons, messages, older := m.view(name)
	if m.run.awaitsStop {
		return nil
	}
	if len(older) > 0 {
		return m.summaryCall(older, m.compaction.learned(a.Model))
	}
	system := a.SystemPrompt
	if a.Prompt != nil {
		view := m.run.view(m.run.currentState())
		var err error
		system, err = callFunction(m.run, "Prompt", func(ctx context.Context) (string, error) { return a.Prompt(ctx, &view) })
		if m.run.awaitsStop {
			return nil
		}
		if err != nil {
			return failed(InternalFailure(err))
		}
	}
	m.trial.attempt++
	request := m.request(name, messages, lessons)
	request.System = m.run.start.Caller.system(system)
	return CallModel{Step: m.run.step, Attempt: m.trial.attempt, Model: name, Request: request}
}

// view returns what a model sees of the conversation, as the lessons of earlier refusals demand: see visibleMessages.
// notes follow the transcript.
func (m *modelCalls) view(name string, notes ...agent.Message) (lessons learned, messages, older []agent.Message) {
	lessons = m.compaction.learned(name, notes...)
	late, _ := m.answers.notices()
	messages, older = m.compaction.visibleMessages(lessons, late, notes...)
	return lessons, messages, older
}

// request returns a model request without the system prompt.
func (m *modelCalls) request(name string, messages []agent.Message, lessons learned) model.Request {
	a, tools := m.run.start.Agent, m.run.tools
	provider, short, _ := strings.Cut(name, "/")
	r := model.Request{
		Model: short, Messages: m.endWithUserMessage(m.run.sendContext(messages)), Tools: lessons.accepted(m.run.offered(), tools.finishes),
		MaxOutputTokens: a.MaxOutputTokens, Temperature: a.Temperature, Cache: a.Cache, Options: a.ProviderOptions[provider],
	}
	switch {
	case lessons.output < 0:
		r.MaxOutputTokens = 0
	case lessons.output > 0 && r.MaxOutputTokens > 0:
		r.MaxOutputTokens = min(r.MaxOutputTokens, lessons.output)
	}
	if lessons.noTemperature {
		r.Temperature = nil
	}
	switch {
	case !m.run.outputOwed():
	case a.Completion == agent.CompletionNative:
		// The tools stay, because the conversation contains their calls.
		r.Choice = model.ChoiceNone
		r.Output = tools.envelope()
	default:
		r.Choice = model.ChoiceRequired
		r.Tools = slices.DeleteFunc(r.Tools, func(t model.Tool) bool { return !tools.finishes(t.Name) })
	}
	return r
}

// endWithUserMessage ensures that the conversation ends with a message to the model: providers refuse one that ends with the
// model's own message. The added message is not stored.
func (m *modelCalls) endWithUserMessage(messages []agent.Message) []agent.Message {
	last := agent.RoleAssistant
	for _, message := range slices.Backward(messages) {
		if message.Role != agent.RoleContext && message.Role != agent.RoleSystem {
			last = message.Role
			break
		}
	}
	if last != agent.RoleAssistant {
		return messages
	}
	line := "Continue."
	if m.run.outputOwed() {
		line = m.run.tools.outputInstruction()
	}
	return append(messages, m.run.note(2, line, nil))
}

const summarySystem = "You summarise the beginning of a conversation between a user and an assistant, so that the assistant can go on " +
	"without it. Keep what was asked and decided, facts, names, numbers and ids, results of tools that still matter, and what is left " +
	"to do. Reply with the summary and nothing else."

// summaryCall returns the call of the agent's own model that summarizes the older messages.
func (m *modelCalls) summaryCall(older []agent.Message, lessons learned) Compact {
	name := m.run.start.Agent.Model
	if lessons.tokens > 0 {
		older = m.compaction.newest(older, lessons.tokens)
	}
	instruction := m.run.note(2, "Summarise the conversation so far.", nil)
	request := m.request(name, append(slices.Clone(older), instruction), lessons)
	request.System = summarySystem
	request.Output = nil
	request.Choice = model.ChoiceNone
	request.Tools = m.run.offered()
	return Compact{Step: m.run.step, Run: m.run.view(m.run.currentState()), Older: older, Model: name, Request: request}
}

// afterFailure returns the effect after a failed call: the delay before its retry, or the call of the agent's next
// model. It returns nil if the run fails.
func (m *modelCalls) afterFailure(f Failure, err error) Effect {
	a, most := m.run.start.Agent, defaultRetries
	if a.MaxRetries != nil {
		most = *a.MaxRetries
	}
	switch {
	case f.Retryable && m.trial.retries < most:
		m.trial.retries++
		jitter := 0.0
		if m.run.start.Jitter != nil {
			jitter = m.run.start.Jitter()
		}
		return Wait{Step: m.run.step, For: backoff(m.trial.retries, err, jitter), Cause: f}
	case m.trial.model < len(a.Fallbacks) && f.Code != model.CodeInvalidRequest:
		m.trial.model++
		m.trial.retries = 0
		return pendingRequest{}
	}
	return nil
}

func failed(f Failure) Finish {
	return Finish{Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: &f}}
}
