package uistream

import (
	"slices"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Stored is a stretch of a conversation as the state service has it.
type Stored struct {
	Messages []*eventv1.Message
	// Runs are those that wrote the messages, by their ids.
	Runs map[string]Run
	// Records have what steps showed beside their messages. The parts of a step without one
	// stand in the order of its messages, and each result at its call.
	Records map[Step]*eventv1.StepRecord
	// Last names a run that ended after all of the messages, with or without messages of its
	// own. It is empty where there is none.
	Last string
}

// Step names a step of a run.
type Step struct {
	RunID  string
	Number int32
}

// Conversation makes UI messages out of stored messages, in their order. All assistant and tool
// messages of one run become one assistant message: the one that a client built from the
// stream. Its id is the message id of the run. Where the run is not known, it is the id of the
// first stored message. Runs with the same message id write one message.
//
// A result belongs to its call, which may be in an earlier message. A result without a call is
// left out, and so are hidden messages and context messages.
//
// The message of a failed run ends with the part that Failed gives. If the run failed before
// it wrote anything, the user's message is followed by a message with that part alone.
//
// A run may have stored only results of calls in earlier messages. It has a message, without
// parts, as long as that is the last one, since the run may be about to write.
func (s Stored) Conversation() []UIMessage {
	c := conversation{Stored: s, turns: map[string]*writing{}, steps: map[Step][]*eventv1.Message{}}
	for _, m := range s.Messages {
		if step := stepOf(m); Answers(m) && s.Records[step] != nil {
			c.steps[step] = append(c.steps[step], m)
		}
	}
	for _, m := range s.Messages {
		c.add(m)
	}
	c.endLast()
	return c.finish()
}

// Conversation is Stored.Conversation for callers who know only the message ids of the runs.
func Conversation(stored []*eventv1.Message, messageIDs map[string]string) []UIMessage {
	s := Stored{Messages: stored, Runs: map[string]Run{}}
	for run, id := range messageIDs {
		s.Runs[run] = Run{MessageID: id}
	}
	return s.Conversation()
}

func stepOf(m *eventv1.Message) Step { return Step{m.GetRunId(), m.GetStep()} }

type conversation struct {
	Stored
	messages []*writing
	turns    map[string]*writing         // assistant messages, by their ids, or by the run where it has no message id
	steps    map[Step][]*eventv1.Message // the messages of steps with a record; nil once they were shown
	asking   string                      // the run of a user's message that has no answer yet; "" for none
}

// writing is an assistant message in the making.
type writing struct {
	assembly
	shown  *Translator // has seen all parts so far; nil where it has not
	run    string      // the run that writes at it now
	asked  bool        // the user's message that it answers stands before it
	step   int32       // of the last assistant message without a record
	ends   bool        // so far it has only results of calls in earlier messages
	detail Metadata
}

func (c *conversation) add(m *eventv1.Message) {
	switch {
	case Answers(m):
		c.answer(m)
	case m.GetHidden():
	case m.GetRole() == eventv1.Role_ROLE_USER:
		if c.asking != m.GetRunId() {
			c.answerWithFailure()
		}
		c.asking = m.GetRunId()
		c.begin(UIMessage{ID: m.GetId(), Role: "user", Parts: plainParts(m), Metadata: sent(m.GetUiMetadata())})
	case m.GetRole() == eventv1.Role_ROLE_SYSTEM:
		c.begin(UIMessage{ID: m.GetId(), Role: "system", Parts: plainParts(m)})
	}
}

func (c *conversation) begin(m UIMessage) *writing {
	w := &writing{assembly: assembly{message: m, open: map[string]int{}, grown: map[int]*strings.Builder{}}}
	c.messages = append(c.messages, w)
	return w
}

// answerWithFailure adds a message for a run that failed before it wrote anything: the failure
// is the answer to the user's message.
func (c *conversation) answerWithFailure() {
	run := c.Runs[c.asking]
	if run.Failure == nil || c.turns[run.MessageID] != nil {
		return
	}
	w := c.begin(UIMessage{ID: run.MessageID, Role: "assistant", Parts: []UIPart{}})
	c.turns[run.MessageID] = w
	c.enter(w, run.ID)
}

// endLast shows the end of the run that Last names.
func (c *conversation) endLast() {
	run, known := c.Runs[c.Last]
	if !known {
		return
	}
	if w := c.turns[run.MessageID]; w != nil {
		w.asked = true
		c.enter(w, run.ID)
		return
	}
	c.asking = c.Last
	c.answerWithFailure()
}

// answer adds an assistant or tool message.
func (c *conversation) answer(m *eventv1.Message) {
	w := c.writing(m)
	w.ends = w.ends && ends(m)
	c.enter(w, m.GetRunId())
	messages, recorded := c.steps[stepOf(m)]
	switch {
	case recorded:
		c.steps[stepOf(m)] = nil
		w.showStep(messages, c.Records[stepOf(m)])
	default:
		w.showMessage(m)
	}
	if c.Runs[m.GetRunId()].ID == "" && m.GetMetadata()[interrupted] != "" {
		w.detail.Interrupted = m.GetMetadata()[interrupted]
	}
	for _, p := range m.GetParts() {
		if r := p.GetToolResult(); r != nil && w.message.call(r.GetToolCallId()) < 0 {
			c.end(w, r)
		}
	}
}

// writing gives the UI message to which a stored message belongs.
func (c *conversation) writing(m *eventv1.Message) *writing {
	id := c.Runs[m.GetRunId()].MessageID
	turn := orText(id, m.GetRunId())
	w := c.turns[turn]
	if w == nil || turn == "" {
		w = c.begin(UIMessage{ID: orText(id, m.GetId()), Role: "assistant", Parts: []UIPart{}})
		w.ends, w.asked = ends(m), c.asking == m.GetRunId()
		c.turns[turn] = w
	}
	c.asking = ""
	return w
}

// enter makes the run the one that writes at the message.
func (c *conversation) enter(w *writing, run string) {
	if w.run == run || run == "" {
		return
	}
	c.endRun(w)
	w.run, w.detail.RunID = run, run
	if known := c.Runs[run]; known.ID != "" {
		w.detail = *w.detail.With(known)
	}
}

// endRun adds to the message what the end of its present run says.
func (c *conversation) endRun(w *writing) {
	run := c.Runs[w.run]
	run.end(&w.detail, slices.ContainsFunc(w.message.Parts, func(p UIPart) bool { return p.Type == "step-start" }))
	if f := run.Failure; f != nil && (!w.ends || w.asked) {
		w.ends = false
		w.takeData(Failed(run.ID, f.GetError(), f.GetCode()))
	}
}

// end gives a result to the newest open call of its id in the messages before the given one.
func (c *conversation) end(before *writing, r *eventv1.ToolResultPart) {
	for _, w := range slices.Backward(c.messages[:slices.Index(c.messages, before)]) {
		if w.message.end(r) {
			return
		}
	}
}

// finish gives the messages. It leaves out those that have only results of calls in earlier
// messages: the user's message before them was taken back, and the results stay at their calls.
func (c *conversation) finish() []UIMessage {
	var messages []UIMessage
	for i, w := range c.messages {
		c.endRun(w)
		if w.ends && i < len(c.messages)-1 {
			continue
		}
		m := w.whole()
		if detail := w.detail; detail != (Metadata{}) {
			m.Metadata = &detail
		}
		messages = append(messages, m)
	}
	return messages
}

// showStep adds the parts of a step with a record, as a client that read it live has them.
func (w *writing) showStep(messages []*eventv1.Message, record *eventv1.StepRecord) {
	if len(messages) == 0 { // they were shown with the first of them
		return
	}
	if w.shown == nil {
		w.shown = New(w.message.ID, Newest)
		w.shown.Replay(w.whole())
		w.shown.finishStep()
	}
	var parts []Part
	for _, chunk := range StepChunks(messages[0].GetStep(), messages, record) {
		parts = append(parts, w.shown.Chunk(0, chunk)...)
	}
	for _, p := range append(parts, w.shown.finishStep()...) {
		w.take(p)
	}
	for _, m := range messages {
		for _, p := range m.GetParts() {
			if r := p.GetToolResult(); r.GetApproval() != nil { // the chunks lack the error of a refused call
				w.message.addPart(p)
			}
		}
	}
}

// showMessage adds the parts of a message whose step has no record.
func (w *writing) showMessage(m *eventv1.Message) {
	w.shown = nil
	if m.GetRole() == eventv1.Role_ROLE_ASSISTANT && (w.step != m.GetStep() || len(w.message.Parts) == 0) {
		w.message.Parts = append(w.message.Parts, UIPart{Type: "step-start"})
		w.step = m.GetStep()
	}
	for _, p := range m.GetParts() {
		w.message.addPart(p)
	}
}
