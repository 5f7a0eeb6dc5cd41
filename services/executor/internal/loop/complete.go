package loop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Message metadata for a new owner: the output is owed, and how often the model has missed it.
const (
	metadataCompletion = "completion"
	completionOwed     = "owed"   // on the note that begins the forced phase
	completionForced   = "forced" // on each reply of the forced phase
	// metadataReason is the completion reason if a limit began the forced phase.
	metadataReason = "completion_reason"
	// metadataReply marks the note that replaces an empty reply.
	metadataReply = "reply"
	replyEmpty    = "empty"
)

// maxMisses is the number of replies in the forced phase that may miss the output.
const maxMisses = 3

// Completion reasons, as in the specification.
const (
	ReasonMaxSteps = "max_steps"
	ReasonStopWhen = "stop_when"
	// A call of agent.FinishTool, or of a tool with FinishWith.
	ReasonFinishTool = "finish_tool"
	ReasonFinishWith = "finish_with"
)

func (p *Planner) hasOutput() bool { return p.start.Agent.OutputSchema != nil }

func isForced(m agent.Message) bool { return m.Metadata[metadataCompletion] == completionForced }

// isReply reports whether a message is a reply of the model or replaces one. A failed reply does not count.
func isReply(m agent.Message) bool {
	return m.Role == agent.RoleAssistant && !hasFailed(m) || m.Metadata[metadataReply] == replyEmpty
}

// runMessages returns the messages appended by the run, including the run that it continues.
func (p *Planner) runMessages(transcript []agent.Message) []agent.Message {
	return transcript[p.start.Begin:]
}

func count(messages []agent.Message, is func(agent.Message) bool) (n int) {
	for _, m := range messages {
		if is(m) {
			n++
		}
	}
	return n
}

// replyCount returns the number of the run's replies, which count against the step limit.
func (p *Planner) replyCount(transcript []agent.Message) int {
	return count(p.runMessages(transcript), func(m agent.Message) bool { return isReply(m) && !isForced(m) })
}

// replyCountWith returns the number of the run's replies including m, which may not be in the conversation yet.
func (p *Planner) replyCountWith(m agent.Message) int {
	run := p.runMessages(p.transcript)
	steps := count(run, isReply)
	if !slices.ContainsFunc(run, func(r agent.Message) bool { return r.ID == m.ID }) {
		steps++
	}
	return steps
}

func (p *Planner) maxSteps() int {
	return cmp.Or(p.start.Agent.MaxSteps, agent.DefaultMaxSteps)
}

// outputOwed reports whether the next reply must be the output.
func (p *Planner) outputOwed() bool { return p.owed(p.transcript) }

func (p *Planner) owed(transcript []agent.Message) bool {
	return p.hasOutput() && (p.replyCount(transcript) >= p.maxSteps() || p.inForcedPhase(transcript))
}

// inForcedPhase reports whether the conversation records the forced phase.
func (p *Planner) inForcedPhase(transcript []agent.Message) bool {
	return slices.ContainsFunc(p.runMessages(transcript), func(m agent.Message) bool { return m.Metadata[metadataCompletion] != "" })
}

// completionReason returns the limit that began the forced phase.
func (p *Planner) completionReason(transcript []agent.Message) string {
	for _, m := range p.runMessages(transcript) {
		if reason := m.Metadata[metadataReason]; reason != "" {
			return reason
		}
	}
	if p.owed(transcript) && !p.inForcedPhase(transcript) {
		return ReasonMaxSteps
	}
	return ""
}

// checkLimits returns the outcome if the conversation has reached a limit. If the step limit only begins the forced
// phase, it returns the reason instead.
func (p *Planner) checkLimits(transcript []agent.Message) (o *Outcome, reason string) {
	capped := p.replyCount(transcript) >= p.maxSteps()
	switch {
	case p.owed(transcript) && count(p.runMessages(transcript), isForced) >= maxMisses:
		failure := missedFailure()
		return &Outcome{
			Status: StatusFailed, FinishReason: model.FinishError, Failure: &failure, CompletionReason: p.completionReason(transcript),
		}, ""
	case capped && p.hasOutput():
		return nil, ReasonMaxSteps
	case capped:
		o := MaxStepsOutcome(p.maxSteps())
		return &o, ""
	}
	return nil, ""
}

// MaxStepsOutcome is the end of a run that has used up its steps.
func MaxStepsOutcome(most int) Outcome {
	failure := maxStepsFailure(most)
	return Outcome{Status: StatusFailed, FinishReason: model.FinishToolCalls, Failure: &failure, CompletionReason: ReasonMaxSteps}
}

// afterStep decides the next effect after a step without an end of its own: an outcome, the note before the forced
// phase, or nothing.
func (p *Planner) afterStep(c Commit) (o *Outcome, note *agent.Message) {
	transcript := p.with(c.Messages)
	pending := slices.DeleteFunc(slices.Clone(p.pending), func(a ClientCall) bool {
		return slices.ContainsFunc(c.Consumed, func(consumed Consumed) bool { return consumed.CallID == a.CallID })
	})
	if left, open := p.answered(transcript, pending, nil); len(left.tasks) > 0 {
		return nil, nil // the next step handles them
	} else if len(open) > 0 {
		return suspendedAgain(transcript, open), nil
	}
	forced := p.inForcedPhase(transcript)
	stops, err := false, error(nil)
	if !forced {
		stops, err = p.stopsWhen(transcript)
	}
	if err != nil && p.maxSteps() == agent.NoMaxSteps { // no other limit might ever end the run
		failure := InternalFailure(err)
		return &Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: &failure}, nil
	}
	if stops {
		if !p.hasOutput() {
			return &Outcome{
				Status: StatusCompleted, Output: quote(p.work.message.Text()), FinishReason: cmp.Or(p.work.finish, model.FinishToolCalls),
				CompletionReason: ReasonStopWhen,
			}, nil
		}
		return nil, p.oweNote(ReasonStopWhen)
	}
	o, reason := p.checkLimits(transcript)
	if o == nil && reason != "" && !forced {
		return nil, p.oweNote(reason)
	}
	return o, nil
}

// stopsWhen asks the agent whether to end the run after a step. An error means no.
func (p *Planner) stopsWhen(transcript []agent.Message) (bool, error) {
	if p.start.Agent.StopWhen == nil {
		return false, nil
	}
	progress := agent.Progress{Steps: p.replyCountWith(p.work.message), Reply: p.work.message, State: p.State()}
	for _, call := range p.work.message.Calls() {
		for _, m := range transcript {
			for _, result := range m.Results() {
				if result.CallID == call.ID {
					progress.Results = append(progress.Results, result)
				}
			}
		}
	}
	return callFunction(p, "StopWhen", func() bool { return p.start.Agent.StopWhen(progress) })
}

// oweNote returns the note that begins the forced phase.
func (p *Planner) oweNote(reason string) *agent.Message {
	metadata := map[string]string{metadataCompletion: completionOwed}
	if reason != "" {
		metadata[metadataReason] = reason
	}
	note := p.note(1, p.outputInstruction(), metadata)
	return &note
}

// endText returns the effect after a reply without calls.
func (p *Planner) endText() Effect {
	w := &p.work
	if p.hasOutput() {
		return p.endMissed()
	}
	text := quote(w.message.Text())
	if p.start.Agent.Guard.OnReply != nil && w.verdict == nil {
		return p.consultGuard(true, text)
	}
	c := p.commit(nil)
	failure := w.verdict.failure()
	switch {
	case failure != nil:
		c.Outcome = &Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: failure}
	case w.verdict != nil && w.verdict.Revise != "":
		note := p.note(0, w.verdict.Revise, nil)
		p.useNoteAsReply(&note)
		c.Messages = append(c.Messages, note)
		c.Outcome, _ = p.afterStep(c)
	default:
		c.Outcome = &Outcome{Status: StatusCompleted, Output: text, FinishReason: w.finish}
	}
	return c
}

// endMissed returns the effect after a reply without calls in the forced phase.
func (p *Planner) endMissed() Effect {
	c := p.commit(nil)
	switch {
	case !p.outputOwed():
		_, note := p.afterStep(c)
		if note == nil {
			note = p.oweNote("")
		}
		p.useNoteAsReply(note)
		c.Messages = append(c.Messages, *note)
	case !hasContent(p.work.message):
		note := p.note(1, p.outputInstruction(), map[string]string{metadataCompletion: completionForced})
		p.useNoteAsReply(&note)
		c.Messages = append(c.Messages, note)
	}
	c.Outcome, _ = p.checkLimits(p.with(c.Messages))
	return c
}

// useNoteAsReply lets a note count as the reply if the reply is empty and so has no message.
func (p *Planner) useNoteAsReply(note *agent.Message) {
	if hasContent(p.work.message) {
		return
	}
	if note.Metadata == nil {
		note.Metadata = map[string]string{}
	}
	note.Metadata[metadataReply] = replyEmpty
}

// finishers returns the names of the tools that finish a run.
func (p *Planner) finishers() []string {
	names := []string{agent.FinishTool}
	for _, t := range p.start.Agent.Tools {
		if t.FinishWith {
			names = append(names, t.Name)
		}
	}
	return names
}

// outputInstruction returns the instruction about the owed output.
func (p *Planner) outputInstruction() string {
	if p.start.Agent.Completion == agent.CompletionNative {
		return "Give your output now: one JSON object {\"completion\": {\"tool\", \"input\"}}, and nothing else."
	}
	return fmt.Sprintf("Give your output now: make one call of %s, and nothing else.", strings.Join(p.finishers(), " or "))
}

// envelope returns the JSON output format that replaces a finishing call.
func (p *Planner) envelope() *model.Output {
	type object = map[string]any
	closed := func(properties object, required ...string) object {
		return object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	names := p.finishers()
	var forms []any
	for i, name := range names {
		at := "#/properties/completion"
		if len(names) > 1 {
			at += fmt.Sprintf("/anyOf/%d", i)
		}
		forms = append(forms, closed(object{
			"tool": object{"type": "string", "enum": []string{name}}, "input": embedSchema(p.tools.schema(name), at+"/properties/input"),
		}, "tool", "input"))
	}
	completion := forms[0]
	if len(forms) > 1 {
		completion = object{"anyOf": forms}
	}
	schema, err := json.Marshal(closed(object{"completion": completion}, "completion"))
	if err != nil { // decoded from JSON before
		panic(fmt.Sprintf("loop: the schema of a completion: %v", err))
	}
	return &model.Output{Name: "completion", Schema: schema, Strict: p.start.Agent.StrictOutput}
}

// embedSchema embeds a schema at a place inside another one and adjusts its references.
func embedSchema(raw json.RawMessage, at string) any {
	var schema any
	if err := json.Unmarshal(raw, &schema); err != nil {
		return map[string]any{"type": "object"}
	}
	return redirect(schema, at)
}

func redirect(node any, at string) any {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if ref, ok := value.(string); ok && key == "$ref" && strings.HasPrefix(ref, "#") {
				node[key] = at + strings.TrimPrefix(ref, "#")
				continue
			}
			node[key] = redirect(value, at)
		}
	case []any:
		for i := range node {
			node[i] = redirect(node[i], at)
		}
	}
	return node
}

// unwrap converts a completion in the JSON output format into a reply with the equivalent call. Any other reply
// stays and counts as a miss.
func (p *Planner) unwrap(r *Reply) {
	var envelope struct {
		Completion *struct {
			Tool  string          `json:"tool"`
			Input json.RawMessage `json:"input"`
		} `json:"completion"`
	}
	if len(r.calls) > 0 || json.Unmarshal([]byte(agent.Message{Parts: r.Parts()}.Text()), &envelope) != nil {
		return
	}
	if c := envelope.Completion; c != nil && p.tools.finishes(c.Tool) {
		r.replace("call_"+Digest(p.messageID("completion", 0)), c.Tool, asJSON(string(c.Input)))
	}
}
