package loop

import (
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// run is what all parts of a planner read: the run, its agent, and the committed conversation. Only the Planner
// moves it to the next step.
type run struct {
	start      Start
	tools      *toolbox
	transcript []agent.Message
	callIDs    map[string]bool // of the session
	rows       contextRows     // of the transcript
	state      agent.State     // after the committed steps
	step       int             // the step in flight
	// awaitsStop means that calls or a function of the agent were abandoned. Stopped, with the reason, replaces any
	// effect.
	awaitsStop bool
}

// commit adds a step's messages to the transcript and begins the next step.
func (r *run) commit(messages []agent.Message) {
	r.transcript = r.with(messages)
	for _, m := range messages {
		for _, call := range m.Calls() {
			r.callIDs[call.ID] = true
		}
	}
	r.state = r.currentState()
	r.step++
}

// with returns the transcript followed by messages. It is valid until the next call.
func (r *run) with(messages []agent.Message) []agent.Message {
	r.transcript = slices.Grow(r.transcript, len(messages))
	return append(r.transcript, messages...)
}

// messages returns the messages appended by the run, including the run that it continues.
func (r *run) messages(transcript []agent.Message) []agent.Message {
	return transcript[r.start.Begin:]
}

// sinceReply returns the messages of the run since the last reply of the model.
func (r *run) sinceReply() []agent.Message {
	messages := r.messages(r.transcript)
	return messages[answeredBefore(messages):]
}

// currentState returns the custom state with the writes so far: see Start.Now.
func (r *run) currentState() agent.State {
	if r.start.Now == nil {
		return r.state
	}
	return r.start.Now()
}

func (r *run) messageID(kind string, n int) string {
	return MessageID(r.start.Run, r.step, kind, n)
}

// note returns a hidden message of the runtime to the model, the n-th of the step.
func (r *run) note(n int, text string, metadata map[string]string) agent.Message {
	return agent.Message{
		ID: r.messageID("note", n), Role: agent.RoleUser, Hidden: true, Metadata: metadata, Parts: []agent.Part{agent.Text{Text: text}},
	}
}

// replyCount returns the number of the run's replies, which count against the step limit.
func (r *run) replyCount(transcript []agent.Message) int {
	return count(r.messages(transcript), func(m agent.Message) bool { return isReply(m) && !isForced(m) })
}

// replyCountWith returns the number of the run's replies including m, which may not be in the conversation yet.
func (r *run) replyCountWith(m agent.Message) int {
	messages := r.messages(r.transcript)
	steps := count(messages, isReply)
	if !slices.ContainsFunc(messages, func(reply agent.Message) bool { return reply.ID == m.ID }) {
		steps++
	}
	return steps
}

func (r *run) maxSteps() int { return cmp.Or(r.start.Agent.MaxSteps, agent.DefaultMaxSteps) }

func (r *run) hasOutput() bool { return r.start.Agent.OutputSchema != nil }

// outputOwed reports whether the next reply must be the output.
func (r *run) outputOwed() bool { return r.owed(r.transcript) }

func (r *run) owed(transcript []agent.Message) bool {
	return r.hasOutput() && (r.replyCount(transcript) >= r.maxSteps() || r.inForcedPhase(transcript))
}

// inForcedPhase reports whether the conversation records the forced phase.
func (r *run) inForcedPhase(transcript []agent.Message) bool {
	return slices.ContainsFunc(r.messages(transcript), func(m agent.Message) bool { return m.Metadata[metadataCompletion] != "" })
}
