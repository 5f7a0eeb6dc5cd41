package loop

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxRefusals is the number of refusals without a reply in between before a run fails.
const maxRefusals = 10

// maxFilesByName is the number of refusals that leave out only the files that the provider named, without a reply in between. A
// provider that accepts no file at all may refuse one after the other.
const maxFilesByName = 3

// Bounds of the budget after a refusal, as a share of the refused request.
const (
	leastShare   = 0.2
	largestShare = 0.9
	guessedShare = 0.5
	// safety is for the error of estimates.
	safety = 0.9
	// leastTokens is the smallest budget: the last question alone.
	leastTokens = 1
)

// learn returns a note with the smallest lesson that changes the request; not ok if none does, or after maxRefusals.
func (m *modelCalls) learn(asked CallModel, r model.Refusal) (note agent.Message, ok bool) {
	if len(m.refusals()) >= maxRefusals {
		return agent.Message{}, false
	}
	var refused []string // the refused requests of the run; the last one is asked
	for _, message := range m.run.messages(m.run.transcript) {
		if l, ok := lessonOf(message); ok {
			refused = append(refused, l.Refused)
		}
	}
	refused = append(refused, requestDigest(asked.Request))
	for _, c := range m.candidates(asked, r) {
		c.lesson.Model = asked.Model
		c.lesson.Refused = refused[len(refused)-1]
		note = m.run.lessonNote(c.lesson, c.sentence)
		lessons, messages, older := m.view(asked.Model, note)
		if len(older) > 0 || !slices.Contains(refused, requestDigest(m.request(asked.Model, messages, lessons))) {
			return note, true
		}
	}
	return agent.Message{}, false
}

// learnOfSummary returns a note after which the refused summary is not asked for again; not ok after maxRefusals.
func (m *modelCalls) learnOfSummary(asked Compact, r model.Refusal) (note agent.Message, ok bool) {
	if len(m.refusals()) >= maxRefusals {
		return agent.Message{}, false
	}
	var candidates []candidate
	if r.Part == model.RefusedContext {
		candidates = m.shorterRequests(CallModel{Request: asked.Request}, r)
	}
	refused := m.compaction.covers
	const sentence = "The conversation could not be summarized. Its oldest part was left out."
	candidates = append(candidates, candidate{lesson{Unsummarized: refused}, sentence})
	for _, c := range candidates {
		c.lesson.Model = asked.Model
		note = m.run.lessonNote(c.lesson, c.sentence)
		lessons, _, older := m.view(asked.Model, note)
		m.compaction.covers = refused
		if len(older) == 0 {
			return note, true
		}
		same := func(a, b agent.Message) bool { return a.Role == b.Role && reflect.DeepEqual(a.Parts, b.Parts) }
		if !slices.EqualFunc(m.summaryCall(older, lessons).Request.Messages, asked.Request.Messages, same) {
			return note, true
		}
	}
	return agent.Message{}, false
}

// Notice is a sentence for users about a refusal of a model.
type Notice struct{ ID, Text string }

// refusals returns what the model has refused in this run since its last reply.
func (m *modelCalls) refusals() (notices []Notice) {
	for _, message := range m.run.sinceReply() {
		if isLesson(message) {
			notices = append(notices, Notice{message.ID, message.Text()})
		}
	}
	return notices
}

// requestDigest identifies a request for its provider.
func requestDigest(r model.Request) string {
	texts := []string{r.Model, fmt.Sprint(r.MaxOutputTokens, r.Temperature == nil, len(r.Tools), r.Choice)}
	for _, m := range r.Messages {
		texts = append(texts, string(m.Role))
		for _, part := range m.Parts {
			texts = append(texts, fmt.Sprintf("%T %v", part, part))
		}
	}
	return digestOf(Digest(texts...))
}

// candidate is a lesson that may help, and its sentence for users.
type candidate struct {
	lesson   lesson
	sentence string
}

// candidates returns the lessons to try after a refusal, the one with the smallest loss first.
func (m *modelCalls) candidates(asked CallModel, r model.Refusal) []candidate {
	switch r.Part {
	case model.RefusedContext:
		return m.shorterRequests(asked, r)
	case model.RefusedSize:
		return append(m.withoutFiles(asked, r), m.shorterRequests(asked, r)...)
	case model.RefusedFile:
		return append(m.withoutFiles(asked, r), m.guessedRequests(asked)...)
	case model.RefusedContent:
		return m.withoutContent(asked)
	case model.RefusedTool:
		return m.withoutTools(asked, r)
	case model.RefusedParameter:
		return withoutParameter(r)
	}
	return m.guessedRequests(asked)
}

// shorterRequests returns a smaller limit for the reply, if that may be the cause, and a budget for the messages. The
// provider's numbers tell how far the estimate is wrong, whatever they count.
func (m *modelCalls) shorterRequests(asked CallModel, r model.Refusal) (list []candidate) {
	request := asked.Request
	if out := int64(request.MaxOutputTokens); r.Limit > 0 && 2*out > r.Limit {
		list = append(list, candidate{lesson{Output: int(max(r.Limit/4, 1))}, "The model allows a shorter answer than the agent asks for."})
	}
	tokens, fixed := sumOf(m.compaction.estimateTokens(request.Messages)), fixedTokens(request)
	share, guess := guessedShare, false
	switch {
	case r.Limit > 0 && r.Count > r.Limit:
		share = float64(r.Limit) / float64(r.Count)
	case r.Limit > 0 && int64(tokens+fixed) > r.Limit:
		share = float64(r.Limit) / float64(tokens+fixed)
	default:
		guess = true
	}
	share = min(max(share, leastShare), largestShare) * safety
	budget := max(int(share*float64(tokens+fixed))-fixed, leastTokens)
	const sentence = "The conversation is longer than the model accepts. Its oldest part was left out."
	return append(list, candidate{lesson{Tokens: budget, Guess: guess}, sentence})
}

func sumOf(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// fixedTokens estimates the tokens of a request besides its messages.
func fixedTokens(r model.Request) int {
	bytes := len(r.System)
	for _, t := range r.Tools {
		bytes += len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	return bytes / bytesPerToken
}

// withoutFiles returns requests without the files named by the provider, or else without the files it may mean.
func (m *modelCalls) withoutFiles(asked CallModel, r model.Refusal) (list []candidate) {
	messages := asked.Request.Messages
	var named []agent.File
	omitted := count(m.run.sinceReply(), func(message agent.Message) bool {
		l, ok := lessonOf(message)
		return ok && len(l.Files) > 0
	})
	if omitted < maxFilesByName {
		named = filesOf(messages, func(at model.FileRef, _ agent.File) bool { return slices.Contains(r.Files, at) })
	}
	ofKind := func(_ model.FileRef, f agent.File) bool { return r.Kind.IsOf(f) }
	kind := filesOf(messages, ofKind)
	var oldest []agent.File
	switch {
	case r.Reason == model.FilesTooMany && int64(len(kind)) > r.Limit:
		oldest = kind[:len(kind)-int(r.Limit)]
	case r.Reason == model.FilesTooMany, r.Part == model.RefusedSize:
		oldest = filesOf(messages[:max(model.LastQuestion(messages), 0)], ofKind)
	}
	unanswered := filesOf(messages[answeredBefore(messages):], ofKind)
	all := filesOf(messages, func(model.FileRef, agent.File) bool { return true })
	for _, files := range [][]agent.File{named, oldest, unanswered, kind, all} {
		if len(files) == 0 {
			continue
		}
		l := lesson{Why: fileProblem(r)}
		for _, f := range files[:min(len(files), maxNamed)] {
			l.Files = append(l.Files, digestOf(f.URL))
		}
		list = append(list, candidate{l, filesSentence(files, r)})
	}
	return list
}

// filesOf returns files of the messages.
func filesOf(messages []agent.Message, is func(model.FileRef, agent.File) bool) (files []agent.File) {
	for _, m := range messages {
		for i, part := range m.Parts {
			if f, ok := part.(agent.File); ok && is(model.FileRef{MessageID: m.ID, Part: i}, f) {
				files = append(files, f)
			}
		}
	}
	return files
}

// answeredBefore returns the index behind the last reply: the provider has accepted everything before it.
func answeredBefore(messages []agent.Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == agent.RoleAssistant {
			return i + 1
		}
	}
	return 0
}

// withoutContent leaves out results that no reply has followed. A question is not sent without its text: its run fails,
// and later turns leave it out. If a turn was left out already and no reply has followed, the cause is older.
func (m *modelCalls) withoutContent(asked CallModel) (list []candidate) {
	messages := asked.Request.Messages
	var l lesson
	for _, message := range messages[answeredBefore(messages):] {
		for _, r := range message.Results() {
			l.Results = append(l.Results, digestOf(r.CallID))
		}
	}
	if len(l.Results) > 0 && len(l.Results) <= maxNamed {
		list = append(list, candidate{l, "The content policy of the model's provider refuses the result of a tool. It was left out."})
	}
	question := beginOfQuestion(m.run.transcript)
	for _, message := range slices.Backward(m.run.transcript[:question]) {
		if l, ok := lessonOf(message); ok && l.Turn {
			return append(list, candidate{lesson{Alone: true, Guess: true}, aloneSentence})
		}
		if message.Role == agent.RoleAssistant && !hasFailed(message) {
			break
		}
	}
	return list
}

// withoutTools leaves out the tool that the provider named, or those above its limit. The tool for the output stays.
func (m *modelCalls) withoutTools(asked CallModel, r model.Refusal) []candidate {
	tools, name := asked.Request.Tools, r.Name
	if r.Tool > 0 && r.Tool <= len(tools) {
		name = tools[r.Tool-1].Name
	}
	known := slices.ContainsFunc(tools, func(t model.Tool) bool { return t.Name == name })
	switch {
	case known && !m.run.tools.finishes(name):
		return []candidate{{lesson{Tools: []string{name}}, fmt.Sprintf("The model does not accept the tool %q. It was left out.", name)}}
	case r.Limit > 0 && int64(len(tools)) > r.Limit:
		sentence := fmt.Sprintf("The model does not accept more than %d tools. The others were left out.", r.Limit)
		return []candidate{{lesson{MostTools: int(r.Limit)}, sentence}}
	}
	return nil
}

func withoutParameter(r model.Refusal) []candidate {
	switch {
	case r.Name == "temperature":
		return []candidate{{lesson{NoTemperature: true}, "The model does not accept the agent's temperature. It was left out."}}
	case r.Name == "max_tokens" && r.Limit > 0:
		sentence := fmt.Sprintf("The model's answers have at most %d tokens, fewer than the agent asks for.", r.Limit)
		return []candidate{{lesson{Output: int(r.Limit)}, sentence}}
	case r.Name == "max_tokens":
		return []candidate{{lesson{Output: -1}, "The model does not accept the agent's limit for answers. It was left out."}}
	}
	return nil
}

// guessedRequests returns requests for a refusal without a reason: without new files, without files, without the calls
// of earlier turns, without any calls, and of the last question alone.
func (m *modelCalls) guessedRequests(asked CallModel) (list []candidate) {
	for _, c := range m.withoutFiles(asked, model.Refusal{}) {
		c.lesson.Guess = true
		list = append(list, c)
	}
	const converted = "The model did not accept the conversation. Its tool calls and files were turned into text."
	return append(list,
		candidate{lesson{Plain: plainEarlier, Guess: true}, converted},
		candidate{lesson{Plain: plainAll, Guess: true}, converted},
		candidate{lesson{Plain: plainAll, Alone: true, Guess: true}, aloneSentence},
	)
}

const aloneSentence = "The model did not accept the conversation. Everything before the last message was left out."

// refusalSentence returns the sentence of a run that fails because of a refusal; empty if nothing is known.
func refusalSentence(r model.Refusal) string {
	switch r.Part {
	case model.RefusedContext, model.RefusedSize:
		return "The conversation is too long for the model. Please send a shorter message."
	case model.RefusedFile:
		return fileRefused(r, subjectOf(nil, r)) + "."
	case model.RefusedContent:
		return "The model's provider refuses the message because of its content policy."
	case model.RefusedTool:
		if r.Name != "" {
			return fmt.Sprintf("The model does not accept the agent's tool %q.", r.Name)
		}
		return "The model does not accept the agent's tools."
	case model.RefusedParameter:
		return fmt.Sprintf("The model does not accept the agent's setting %s.", r.Name)
	}
	return ""
}

// filesSentence says which files were left out, and why.
func filesSentence(files []agent.File, r model.Refusal) string {
	several := len(files) > 1
	switch {
	case r.Part != model.RefusedFile && several:
		return "The model did not accept the request. Its files were left out."
	case r.Part != model.RefusedFile:
		return "The model did not accept the request. A file was left out."
	}
	end := "It was left out."
	switch {
	case r.Reason == model.FilesTooMany:
		end = "The oldest were left out."
	case r.Reason == model.FileKindNotTaken, several:
		end = "They were left out."
	}
	return fileRefused(r, subjectOf(files, r)) + ". " + end
}

// fileRefused returns a sentence without its end.
func fileRefused(r model.Refusal, subject string) string {
	switch {
	case r.Reason == model.FileKindNotTaken:
		return "The model does not accept " + plural(r.Kind)
	case r.Reason == model.FilesTooMany && r.Limit > 0:
		return fmt.Sprintf("The model does not accept more than %d %s", r.Limit, plural(r.Kind))
	case r.Reason == model.FilesTooMany:
		return "The model does not accept so many " + plural(r.Kind)
	}
	sentence := "The model does not accept " + subject
	if problem := fileProblem(r); problem != "" {
		sentence += " (" + problem + ")"
	}
	return sentence
}

func subjectOf(files []agent.File, r model.Refusal) string {
	kind := string(r.Kind)
	if kind == "" {
		kind = "file"
	}
	switch {
	case len(files) > 1:
		return "these " + plural(r.Kind)
	case len(files) == 1 && files[0].Filename != "":
		return fmt.Sprintf("the %s %q", kind, files[0].Filename)
	}
	return "this " + kind
}

func plural(k model.FileKind) string {
	if k == "" {
		return "files"
	}
	return string(k) + "s"
}

// fileProblem describes the defect of a file; empty if unknown.
func fileProblem(r model.Refusal) string {
	switch r.Reason {
	case model.FileTooLarge:
		if r.Limit > 0 {
			return "larger than " + bytesText(r.Limit)
		}
		return "too large"
	case model.FileTooWide:
		if r.Limit > 0 {
			return fmt.Sprintf("larger than %d pixels", r.Limit)
		}
		return "too many pixels"
	case model.FileTooLong:
		if r.Limit > 0 {
			return fmt.Sprintf("longer than %d pages", r.Limit)
		}
		return "its number of pages"
	case model.FilesTooMany:
		return "too many"
	case model.FileUnsupported:
		return "its type is not supported"
	case model.FileUnreadable:
		return "it cannot be read"
	case model.FileUnreachable:
		return "its address cannot be read"
	case model.FileBadForContent:
		return "content policy"
	}
	return ""
}

func bytesText(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "GB"}, {1 << 20, "MB"}, {1 << 10, "KB"}} {
		if n >= unit.size {
			text := strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(unit.size)), ".0")
			return text + " " + unit.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
