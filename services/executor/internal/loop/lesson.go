package loop

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// A refusal leaves a note in the conversation: a hidden context message whose metadata has a lesson. The text of the
// note is a sentence for users. Models do not get notes.
const (
	sourceRefusal  = "refusal" // of metadataSource
	metadataLesson = "lesson"  // a lesson as JSON, below the 4096 bytes of a metadata value
	// lessonKept marks the first reply to a request built by guesses. Without it they do not count later.
	lessonKept = "kept"
)

// maxNamed is the number of files or results in one lesson. More of them need another refusal.
const maxNamed = 200

// lesson is what one refusal says about later requests of the conversation to the same model. Places in the conversation
// are relative to the note.
type lesson struct {
	Model string `json:"model"` // provider/name
	// Refused identifies the refused request.
	Refused string `json:"refused,omitempty"`
	// Guess means that the provider did not name the part. A guess counts within its run, and later only after a reply.
	Guess bool `json:"guess,omitempty"`
	// Tokens is the budget of the messages, as the planner estimates them.
	Tokens int `json:"tokens,omitempty"`
	// Output limits MaxOutputTokens; -1 leaves it to the provider.
	Output int `json:"output,omitempty"`
	// Files and Results are left out: digests of the URLs of files, and of the ids of calls.
	Files   []string `json:"files,omitempty"`
	Results []string `json:"results,omitempty"`
	Why     string   `json:"why,omitempty"` // of files, in words
	// Tools are left out, and all tools behind the first MostTools.
	Tools     []string `json:"tools,omitempty"`
	MostTools int      `json:"mostTools,omitempty"`
	// NoTemperature leaves the temperature to the provider.
	NoTemperature bool `json:"noTemperature,omitempty"`
	// Plain sends messages before the note as text alone.
	Plain plain `json:"plain,omitempty"`
	// Unsummarized is the last message of a part of the conversation whose summary was refused. It counts for all models.
	Unsummarized string `json:"unsummarized,omitempty"`
	// Alone leaves out all messages before the last question.
	Alone bool `json:"alone,omitempty"`
	// Turn leaves the refused question, and all behind it, out of the requests of later turns.
	Turn bool `json:"turn,omitempty"`
}

// plain says which messages are sent without calls, results, reasoning and files.
type plain string

const (
	plainEarlier plain = "earlier" // those before the last question
	plainAll     plain = "all"
)

// lessonOf returns the lesson of a note.
func lessonOf(m agent.Message) (l lesson, ok bool) {
	if !isLesson(m) || json.Unmarshal([]byte(m.Metadata[metadataLesson]), &l) != nil {
		return lesson{}, false
	}
	return l, true
}

func (r *run) lessonNote(l lesson, sentence string) agent.Message {
	text, err := json.Marshal(l)
	if err != nil { // texts and numbers
		panic(fmt.Sprintf("loop: a lesson: %v", err))
	}
	return agent.Message{
		ID: r.messageID("refusal", 0), Role: agent.RoleContext, Hidden: true,
		Metadata: map[string]string{metadataSource: sourceRefusal, metadataLesson: string(text)},
		Parts:    []agent.Part{agent.Text{Text: sentence}},
	}
}

func isLesson(m agent.Message) bool {
	return m.Role == agent.RoleContext && m.Metadata[metadataSource] == sourceRefusal
}

// isNote reports whether the message is bookkeeping of the runtime: a summary or a lesson.
func isNote(m agent.Message) bool { return isSummary(m) || isLesson(m) }

// learned is the sum of the lessons about one model. The zero value changes nothing.
type learned struct {
	tokens        int // 0 for no limit
	output        int // 0 for no limit, -1 for none at all
	mostTools     int // 0 for no limit
	noTemperature bool
	files         map[string]string // why, by the digest of the URL
	results       map[string]bool
	tools         map[string]bool
	plain         map[string]bool // ids of messages
	unsummarized  map[string]bool // ids of messages
	first         int             // index of the first message to send
	omitted       []span          // refused turns
}

// span is a part of the transcript: [from, to).
type span struct{ from, to int }

// learnedFrom returns what the transcript says about a model. begin is the index of the first message of the run.
func learnedFrom(transcript []agent.Message, begin int, model string) learned {
	s := learned{
		files: map[string]string{}, results: map[string]bool{}, tools: map[string]bool{},
		plain: map[string]bool{}, unsummarized: map[string]bool{},
	}
	for i, m := range transcript {
		l, ok := lessonOf(m)
		if l.Unsummarized != "" {
			s.unsummarized[l.Unsummarized] = true
		}
		if !ok || l.Model != model || l.Guess && i < begin && !wasKept(transcript[i+1:]) {
			continue
		}
		s.tokens = lower(s.tokens, l.Tokens)
		s.output = lower(s.output, l.Output)
		s.mostTools = lower(s.mostTools, l.MostTools)
		s.noTemperature = s.noTemperature || l.NoTemperature
		for _, digest := range l.Files {
			s.files[digest] = l.Why
		}
		for _, digest := range l.Results {
			s.results[digest] = true
		}
		for _, name := range l.Tools {
			s.tools[name] = true
		}
		s.addPlaces(l, transcript, i)
	}
	return s
}

// addPlaces adds what the lesson of the note at an index says about the messages before it.
func (s *learned) addPlaces(l lesson, transcript []agent.Message, note int) {
	question := beginOfQuestion(transcript[:note])
	to := question
	if l.Plain == plainAll {
		to = note
	}
	if l.Plain != "" {
		for _, m := range transcript[:to] {
			s.plain[m.ID] = true
		}
	}
	if l.Alone {
		s.first = max(s.first, question)
	}
	if l.Turn && isOvertaken(transcript[note+1:]) {
		s.omitted = append(s.omitted, span{question, note})
	}
}

// lower returns the lower of two limits, where 0 is none.
func lower(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// beginOfQuestion returns the index of the first of the last adjacent user messages, or 0.
func beginOfQuestion(messages []agent.Message) int {
	asks := func(m agent.Message) bool { return m.Role == agent.RoleUser && !m.Hidden }
	at := len(messages)
	for at > 0 && !asks(messages[at-1]) {
		at--
	}
	for at > 0 && asks(messages[at-1]) {
		at--
	}
	return at
}

// isOvertaken reports whether a message of the user, and not a reply, comes first: nobody has repeated the refused turn
// with success.
func isOvertaken(after []agent.Message) bool {
	for _, m := range after {
		switch {
		case m.Role == agent.RoleUser && !m.Hidden:
			return true
		case m.Role == agent.RoleAssistant && !hasFailed(m):
			return false
		}
	}
	return false
}

// wasKept reports whether a reply came of the guesses before these messages.
func wasKept(after []agent.Message) bool {
	for _, m := range after {
		switch m.Role {
		case agent.RoleAssistant:
			return m.Metadata[metadataLesson] == lessonKept
		case agent.RoleUser:
			return false
		}
	}
	return false
}

// changes reports whether any lesson counts.
func (s learned) changes() bool {
	return s.tokens != 0 || s.output != 0 || s.mostTools != 0 || s.noTemperature || s.first > 0 ||
		len(s.files)+len(s.results)+len(s.tools)+len(s.plain)+len(s.omitted)+len(s.unsummarized) > 0
}

// accepted returns the tools accepted by the model. Tools that finish the run stay.
func (s learned) accepted(tools []model.Tool, finishes func(name string) bool) []model.Tool {
	others := 0
	return slices.DeleteFunc(tools, func(t model.Tool) bool {
		if finishes(t.Name) {
			return false
		}
		if s.tools[t.Name] {
			return true
		}
		others++
		return s.mostTools > 0 && others > s.mostTools
	})
}

// leaveOut returns the transcript without some of its messages. A text replaces a turn.
func (s learned) leaveOut(transcript []agent.Message) []agent.Message {
	if s.first == 0 && len(s.omitted) == 0 {
		return transcript
	}
	sent := make([]agent.Message, 0, len(transcript))
	for i, m := range transcript {
		at := slices.IndexFunc(s.omitted, func(turn span) bool { return i >= turn.from && i < turn.to })
		switch {
		case i < s.first:
		case at >= 0 && i == s.omitted[at].from:
			const text = "[A message of the user was left out here, because the model refused it.]"
			sent = append(sent, agent.Message{ID: m.ID, Role: agent.RoleUser, Hidden: true, Parts: []agent.Part{agent.Text{Text: text}}})
		case at >= 0 && !isNote(m):
		default:
			sent = append(sent, m)
		}
	}
	return sent
}

// digestOf identifies a file or a call in a lesson.
func digestOf(text string) string { return Digest(text)[:12] }
