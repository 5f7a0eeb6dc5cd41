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
	c := conversationBuilder{Stored: s, answers: map[string]*answerBuilder{}, recorded: map[Step][]*eventv1.Message{}}
	for _, m := range s.Messages {
		if step := stepOf(m); IsPartOfAnswer(m) && s.Records[step] != nil {
			c.recorded[step] = append(c.recorded[step], m)
		}
	}
	for _, m := range s.Messages {
		c.add(m)
	}
	c.endLastRun()
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

type conversationBuilder struct {
	Stored
	messages     []*answerBuilder
	answers      map[string]*answerBuilder   // assistant messages, by their ids, or by the run where it has no message id
	recorded     map[Step][]*eventv1.Message // the messages of steps with a record; nil once they were shown
	openQuestion string                      // the run of a user's message that has no answer yet; "" for none
}

// answerBuilder is an assistant message in the making.
type answerBuilder struct {
	assembly
	translator    *Translator // has seen all parts so far; nil where it has not
	run           string      // the run that writes at it now
	afterQuestion bool        // the user's message that it answers stands before it
	step          int32       // of the last assistant message without a record
	onlyResults   bool        // so far it has only results of calls in earlier messages
	metadata      Metadata
}

func (c *conversationBuilder) add(m *eventv1.Message) {
	switch {
	case IsPartOfAnswer(m):
		c.addToAnswer(m)
	case m.GetHidden():
	case m.GetRole() == eventv1.Role_ROLE_USER:
		if c.openQuestion != m.GetRunId() {
			c.addFailedAnswer()
		}
		c.openQuestion = m.GetRunId()
		c.addMessage(UIMessage{ID: m.GetId(), Role: "user", Parts: plainParts(m), Metadata: userMetadata(m.GetUiMetadata())})
	case m.GetRole() == eventv1.Role_ROLE_SYSTEM:
		c.addMessage(UIMessage{ID: m.GetId(), Role: "system", Parts: plainParts(m)})
	}
}

func (c *conversationBuilder) addMessage(m UIMessage) *answerBuilder {
	w := &answerBuilder{assembly: assembly{message: m, openBlocks: map[string]int{}, deltas: map[int]*strings.Builder{}}}
	c.messages = append(c.messages, w)
	return w
}

// addFailedAnswer adds a message for a run that failed before it wrote anything: the failure
// is the answer to the user's message.
func (c *conversationBuilder) addFailedAnswer() {
	run := c.Runs[c.openQuestion]
	if run.Failure == nil || c.answers[run.MessageID] != nil {
		return
	}
	w := c.addMessage(UIMessage{ID: run.MessageID, Role: "assistant", Parts: []UIPart{}})
	c.answers[run.MessageID] = w
	c.setRun(w, run.ID)
}

// endLastRun shows the end of the run that Last names.
func (c *conversationBuilder) endLastRun() {
	run, known := c.Runs[c.Last]
	if !known {
		return
	}
	if w := c.answers[run.MessageID]; w != nil {
		w.afterQuestion = true
		c.setRun(w, run.ID)
		return
	}
	c.openQuestion = c.Last
	c.addFailedAnswer()
}

// addToAnswer adds an assistant or tool message.
func (c *conversationBuilder) addToAnswer(m *eventv1.Message) {
	w := c.answerOf(m)
	w.onlyResults = w.onlyResults && hasOnlyResults(m)
	c.setRun(w, m.GetRunId())
	messages, recorded := c.recorded[stepOf(m)]
	switch {
	case recorded:
		c.recorded[stepOf(m)] = nil
		w.addStep(messages, c.Records[stepOf(m)])
	default:
		w.addStored(m)
	}
	if c.Runs[m.GetRunId()].ID == "" && m.GetMetadata()[interrupted] != "" {
		w.metadata.Interrupted = m.GetMetadata()[interrupted]
	}
	for _, p := range m.GetParts() {
		if r := p.GetToolResult(); r != nil && w.message.callIndex(r.GetToolCallId()) < 0 {
			c.endEarlierCall(w, r)
		}
	}
}

// answerOf gives the UI message to which a stored message belongs.
func (c *conversationBuilder) answerOf(m *eventv1.Message) *answerBuilder {
	id := c.Runs[m.GetRunId()].MessageID
	turn := orText(id, m.GetRunId())
	w := c.answers[turn]
	if w == nil || turn == "" {
		w = c.addMessage(UIMessage{ID: orText(id, m.GetId()), Role: "assistant", Parts: []UIPart{}})
		w.onlyResults, w.afterQuestion = hasOnlyResults(m), c.openQuestion == m.GetRunId()
		c.answers[turn] = w
	}
	c.openQuestion = ""
	return w
}

// setRun makes the run the one that writes at the message.
func (c *conversationBuilder) setRun(w *answerBuilder, run string) {
	if w.run == run || run == "" {
		return
	}
	c.endRun(w)
	w.run, w.metadata.RunID = run, run
	if known := c.Runs[run]; known.ID != "" {
		w.metadata = *w.metadata.ContinuedBy(known)
	}
}

// endRun adds to the message what the end of its present run says.
func (c *conversationBuilder) endRun(w *answerBuilder) {
	run := c.Runs[w.run]
	run.addEnd(&w.metadata, slices.ContainsFunc(w.message.Parts, func(p UIPart) bool { return p.Type == "step-start" }))
	if f := run.Failure; f != nil && (!w.onlyResults || w.afterQuestion) {
		w.onlyResults = false
		w.applyData(Failed(run.ID, f.GetError(), f.GetCode()))
	}
}

// endEarlierCall gives a result to the newest open call of its id in the messages before the given one.
func (c *conversationBuilder) endEarlierCall(before *answerBuilder, r *eventv1.ToolResultPart) {
	for _, w := range slices.Backward(c.messages[:slices.Index(c.messages, before)]) {
		if w.message.endCall(r) {
			return
		}
	}
}

// finish gives the messages. It leaves out those that have only results of calls in earlier
// messages: the user's message before them was taken back, and the results stay at their calls.
func (c *conversationBuilder) finish() []UIMessage {
	var messages []UIMessage
	for i, w := range c.messages {
		c.endRun(w)
		if w.onlyResults && i < len(c.messages)-1 {
			continue
		}
		m := w.build()
		if detail := w.metadata; detail != (Metadata{}) {
			m.Metadata = &detail
		}
		messages = append(messages, m)
	}
	return messages
}

// addStep adds the parts of a step with a record, as a client that read it live has them.
func (w *answerBuilder) addStep(messages []*eventv1.Message, record *eventv1.StepRecord) {
	if len(messages) == 0 { // they were shown with the first of them
		return
	}
	if w.translator == nil {
		w.translator = New(w.message.ID, Newest)
		w.translator.Replay(w.build())
		w.translator.finishStep()
	}
	var parts []Part
	for _, chunk := range StepChunks(messages[0].GetStep(), messages, record) {
		parts = append(parts, w.translator.Chunk(0, chunk)...)
	}
	for _, p := range append(parts, w.translator.finishStep()...) {
		w.apply(p)
	}
	for _, m := range messages {
		for _, p := range m.GetParts() {
			if r := p.GetToolResult(); r.GetApproval() != nil { // the chunks lack the error of a refused call
				w.message.addPart(p)
			}
		}
	}
}

// addStored adds the parts of a message whose step has no record.
func (w *answerBuilder) addStored(m *eventv1.Message) {
	w.translator = nil
	if m.GetRole() == eventv1.Role_ROLE_ASSISTANT && (w.step != m.GetStep() || len(w.message.Parts) == 0) {
		w.message.Parts = append(w.message.Parts, UIPart{Type: "step-start"})
		w.step = m.GetStep()
	}
	for _, p := range m.GetParts() {
		w.message.addPart(p)
	}
}
