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
	// Records are what steps have shown beside their messages. A step without one is shown
	// in the order of its messages, the results of its calls where the calls are.
	Records map[Step]*eventv1.StepRecord
	// Last names a run whose end is behind all of the messages, whether it has stored any
	// of them or not; empty for none.
	Last string
}

// Step names a step of a run.
type Step struct {
	RunID  string
	Number int32
}

// Conversation makes UI messages of stored ones, in their order. All assistant and tool
// messages of one run become one assistant message, the one that a client has that was
// there; its id is that of the run, or that of the first stored message where the run is
// not known. Runs with one message id write one message. The result of a call that an
// earlier message has left open stands there; one whose call is nowhere is left out, as
// hidden and context messages are.
//
// What a failed run has written ends with the part that Failed gives. A question whose run
// has failed without an answer is followed by a message with that part alone.
//
// A run that has nothing but results of earlier messages has a message while that is the
// last one: it may be about to speak.
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

// Conversation is Stored.Conversation where nothing but the message ids of the runs is known.
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
	turns    map[string]*writing         // assistant messages, by id, or by run where nobody knows that
	steps    map[Step][]*eventv1.Message // the messages of steps with a record, until they are shown
	asking   string                      // the run of the question that has no answer yet; "" for none
}

// writing is a UI message that is made.
type writing struct {
	assembly
	shown  *Translator // knows the parts; nil: it has to learn them
	run    string      // that writes
	asked  bool        // its question stands before it
	step   int32       // of the last assistant message that had no record
	ends   bool        // it has nothing but ends of calls of others
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

// answerWithFailure gives the question that nothing has answered a message, where its run
// has failed: the failure is the answer.
func (c *conversation) answerWithFailure() {
	run := c.Runs[c.asking]
	if run.Failure == nil || c.turns[run.MessageID] != nil {
		return
	}
	w := c.begin(UIMessage{ID: run.MessageID, Role: "assistant", Parts: []UIPart{}})
	c.turns[run.MessageID] = w
	c.enter(w, run.ID)
}

// endLast ends the run that is the last one.
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

// answer adds a message of an answer.
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

// writing gives the UI message to which the message belongs.
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

// enter has the run write at the message from now on.
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

// endRun adds to the message what the end of the run says that has written at it so far.
func (c *conversation) endRun(w *writing) {
	run := c.Runs[w.run]
	run.end(&w.detail, slices.ContainsFunc(w.message.Parts, func(p UIPart) bool { return p.Type == "step-start" }))
	if f := run.Failure; f != nil && (!w.ends || w.asked) {
		w.ends = false
		w.takeData(Failed(run.ID, f.GetError(), f.GetCode()))
	}
}

// end ends the newest call of that id that a message before the one has left open.
func (c *conversation) end(before *writing, r *eventv1.ToolResultPart) {
	for _, w := range slices.Backward(c.messages[:slices.Index(c.messages, before)]) {
		if w.message.end(r) {
			return
		}
	}
}

// finish gives the messages without those whose runs have ended calls of others and have
// nothing of their own: that was taken back, and the ends stay.
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

// showStep shows a step that has a record, as the client that was there has it.
func (w *writing) showStep(messages []*eventv1.Message, record *eventv1.StepRecord) {
	if len(messages) == 0 { // it is shown already
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
			if r := p.GetToolResult(); r.GetApproval() != nil { // it has the words of the refusal as well
				w.message.addPart(p)
			}
		}
	}
}

// showMessage shows a message of a step without a record.
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
