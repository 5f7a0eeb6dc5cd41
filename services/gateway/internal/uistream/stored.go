package uistream

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Stored is a range of a stored conversation.
type Stored struct {
	Messages []*eventv1.Message
	// Runs has the runs of the messages, by id.
	Runs map[string]Run
	// Records has what steps showed beside their messages. A step without a record shows its
	// messages in order, and each result at its call.
	Records map[Step]*eventv1.StepRecord
	// Last is a run that ended after all of the messages, with or without messages of its own.
	// Empty if there is none.
	Last string
}

// Step identifies a step of a run.
type Step struct {
	RunID  string
	Number int32
}

// Conversation builds UI messages from stored messages, in order. All assistant and tool messages
// of a run become one assistant message, equal to the one that a client built from the stream. Its
// id is the message id of the run, or, for an unknown run, the id of the first stored message. Runs
// with the same message id write one message.
//
// A result belongs to its call, possibly in an earlier message. Results without a call are omitted,
// and so are hidden messages and context messages.
//
// The message of a failed run ends with the part of Failed. If the run failed before it wrote
// anything, a message with only this part follows the user's message.
//
// A run may have stored only results of calls in earlier messages. It has an empty message while it
// is the last message: the run may still write.
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

func stepOf(m *eventv1.Message) Step { return Step{m.GetRunId(), m.GetStep()} }

type conversationBuilder struct {
	Stored
	messages     []*answerBuilder
	answers      map[string]*answerBuilder   // by message id, or by run if it has none
	recorded     map[Step][]*eventv1.Message // messages of steps with a record; nil once shown
	openQuestion string                      // run of an unanswered user message; "" for none
}

type answerBuilder struct {
	assembly
	translator    *Translator // has consumed all parts so far; nil if it has not
	chunks        int64       // given to the translator
	run           string      // the run that writes the message
	afterQuestion bool        // the question of the run precedes the message
	step          int32       // of the last assistant message without a record
	onlyResults   bool        // so far, it has only results of calls in earlier messages
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
		c.addMessage(UIMessage{ID: m.GetId(), Role: "user", Parts: userParts(m), Metadata: userMetadata(m.GetUiMetadata())})
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
// answers the user's message.
func (c *conversationBuilder) addFailedAnswer() {
	run := c.Runs[c.openQuestion]
	if run.Failure == nil || c.answers[run.MessageID] != nil {
		return
	}
	w := c.addMessage(UIMessage{ID: run.MessageID, Role: "assistant", Parts: []UIPart{}})
	c.answers[run.MessageID] = w
	c.setRun(w, run.ID)
}

// endLastRun shows the end of the run in Last.
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

func (c *conversationBuilder) addToAnswer(m *eventv1.Message) {
	w := c.answerOf(m)
	w.onlyResults = w.onlyResults && hasOnlyResults(m)
	c.setRun(w, m.GetRunId())
	if messages, recorded := c.recorded[stepOf(m)]; recorded {
		c.recorded[stepOf(m)] = nil
		w.addStep(messages, c.Records[stepOf(m)])
	} else {
		w.addStored(m)
	}
	if c.Runs[m.GetRunId()].ID == "" && m.GetMetadata()[interrupted] != "" {
		w.metadata.Interrupted = m.GetMetadata()[interrupted]
	}
	for _, p := range m.GetParts() {
		r := p.GetToolResult()
		if r == nil || w.message.callIndex(r.GetToolCallId()) >= 0 {
			continue
		}
		for _, earlier := range slices.Backward(c.messages[:slices.Index(c.messages, w)]) { // the newest open call with the id
			if earlier.message.endCall(r) {
				break
			}
		}
	}
}

func (c *conversationBuilder) answerOf(m *eventv1.Message) *answerBuilder {
	id := c.Runs[m.GetRunId()].MessageID
	turn := cmp.Or(id, m.GetRunId())
	w := c.answers[turn]
	if w == nil || turn == "" {
		w = c.addMessage(UIMessage{ID: cmp.Or(id, m.GetId()), Role: "assistant", Parts: []UIPart{}})
		w.onlyResults, w.afterQuestion = hasOnlyResults(m), c.openQuestion == m.GetRunId()
		c.answers[turn] = w
	}
	c.openQuestion = ""
	return w
}

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

func (c *conversationBuilder) endRun(w *answerBuilder) {
	run := c.Runs[w.run]
	run.addEnd(&w.metadata, slices.ContainsFunc(w.message.Parts, func(p UIPart) bool { return p.Type == "step-start" }))
	if f := run.Failure; f != nil && (!w.onlyResults || w.afterQuestion) {
		w.onlyResults = false
		w.applyData(Failed(run.ID, f.GetError(), f.GetCode()))
	}
}

// finish returns the messages. It omits messages with only results of calls in earlier messages:
// the user's message before them was withdrawn, and the results stay at their calls.
func (c *conversationBuilder) finish() []UIMessage {
	var messages []UIMessage
	for i, w := range c.messages {
		c.endRun(w)
		if w.onlyResults && i < len(c.messages)-1 {
			continue
		}
		m := w.build()
		detail := w.metadata
		if m.Metadata != nil && m.Role == "assistant" {
			detail.agentJSON = m.Metadata.agentJSON
		}
		if detail != (Metadata{}) {
			m.Metadata = &detail
		}
		messages = append(messages, m)
	}
	return messages
}

// addStep adds the parts of a step with a record, as a live client has them.
func (w *answerBuilder) addStep(messages []*eventv1.Message, record *eventv1.StepRecord) {
	if len(messages) == 0 { // shown with the first of the step's messages
		return
	}
	if w.translator == nil {
		w.translator = New(w.message.ID, DefaultMajor)
		w.translator.Replay(w.build())
		w.translator.commitStep()
	}
	var parts []Part
	for _, chunk := range step.Replay(messages[0].GetStep(), messages, record) {
		w.chunks++
		parts = append(parts, w.translator.Chunk(w.chunks, chunk)...)
	}
	for _, p := range append(parts, w.translator.commitStep()...) {
		w.apply(p)
	}
	for _, m := range messages {
		for _, p := range m.GetParts() {
			if r := p.GetToolResult(); r.GetApproval() != nil { // the chunks lack the error of a denied call
				w.message.addPart(p)
			}
		}
	}
}

// addStored adds the parts of a message without a record: of a step of an earlier release, or of a history that a client
// has brought. Such a history has no steps and may have files, so it is not replayed in chunks.
func (w *answerBuilder) addStored(m *eventv1.Message) {
	w.translator = nil
	if m.GetRole() == eventv1.Role_ROLE_ASSISTANT && (w.step != m.GetStep() || len(w.message.Parts) == 0) {
		if n := len(w.message.Parts); n == 0 || w.message.Parts[n-1].Type != "step-start" { // else that of a step without content
			w.message.Parts = append(w.message.Parts, UIPart{Type: "step-start"})
		}
		w.step = m.GetStep()
	}
	for _, p := range m.GetParts() {
		w.message.addPart(p)
	}
}
