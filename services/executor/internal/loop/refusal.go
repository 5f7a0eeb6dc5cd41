package loop

import (
	"encoding/json"
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

// refused returns the effect after a refusal: the commit of a lesson, after which the model is called with another
// request, or the failure of the run. Then the refused question is left out of later turns, unless the provider refused
// a part of the agent.
func (p *Planner) refused(asked CallModel, reply *Reply, f Failure, r model.Refusal) Effect {
	if note, ok := p.learn(asked, r); ok {
		return Commit{Step: p.step, Messages: []agent.Message{note}, Notes: true}
	}
	if r.Part == model.RefusedTool || r.Part == model.RefusedParameter {
		return p.failReply(reply, f)
	}
	f.Error += " Later messages are sent without this one."
	e := p.failReply(reply, f)
	note := p.lessonNote(lesson{Model: asked.Model, Turn: true}, "The model refused this message.")
	if c, ok := e.(Commit); ok {
		c.Messages = append(c.Messages, note)
		return c
	}
	outcome := failed(f).Outcome
	return Commit{Step: p.step, Messages: []agent.Message{note}, Notes: true, Cut: true, Outcome: &outcome}
}

// learn returns a note with the smallest lesson that changes the request; not ok if none does, or after maxRefusals.
func (p *Planner) learn(asked CallModel, r model.Refusal) (note agent.Message, ok bool) {
	if len(p.Notices()) >= maxRefusals {
		return agent.Message{}, false
	}
	refused := p.refusedRequests(asked)
	for _, c := range p.candidates(asked, r) {
		c.lesson.Model, c.lesson.Refused = asked.Model, refused[len(refused)-1]
		note = p.lessonNote(c.lesson, c.sentence)
		if !p.repeats(asked, refused, note) {
			return note, true
		}
	}
	return agent.Message{}, false
}

func (p *Planner) lessonNote(l lesson, sentence string) agent.Message {
	text, err := json.Marshal(l)
	if err != nil { // texts and numbers
		panic(fmt.Sprintf("loop: a lesson: %v", err))
	}
	return agent.Message{
		ID: p.messageID("refusal", 0), Role: agent.RoleContext, Hidden: true,
		Metadata: map[string]string{metadataSource: sourceRefusal, metadataLesson: string(text)},
		Parts:    []agent.Part{agent.Text{Text: sentence}},
	}
}

// Notice is a sentence for users about a refusal of a model.
type Notice struct{ ID, Text string }

// Notices returns what the model has refused in this run since its last reply.
func (p *Planner) Notices() (notices []Notice) {
	for _, m := range slices.Backward(p.runMessages(p.transcript)) {
		if m.Role == agent.RoleAssistant {
			break
		}
		if isLesson(m) {
			notices = append(notices, Notice{m.ID, m.Text()})
		}
	}
	slices.Reverse(notices)
	return notices
}

// refusedRequests identifies the refused requests of the run. The last one is asked.
func (p *Planner) refusedRequests(asked CallModel) (refused []string) {
	for _, m := range p.runMessages(p.transcript) {
		if l, ok := lessonOf(m); ok {
			refused = append(refused, l.Refused)
		}
	}
	return append(refused, requestDigest(asked.Request))
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

// repeats reports whether the request after the note would be a refused one.
func (p *Planner) repeats(asked CallModel, refused []string, note agent.Message) bool {
	late, _ := p.notices()
	l := p.learned(asked.Model, note)
	messages, older := p.visibleMessages(l, late, note)
	if len(older) > 0 {
		return false
	}
	return slices.Contains(refused, requestDigest(p.request(asked.Model, messages, l)))
}

// sameMessages reports whether a provider sees the same messages.
func sameMessages(a, b []agent.Message) bool {
	return slices.EqualFunc(a, b, func(a, b agent.Message) bool { return a.Role == b.Role && reflect.DeepEqual(a.Parts, b.Parts) })
}

// learned returns what the conversation says about a model. notes follow the transcript.
func (p *Planner) learned(name string, notes ...agent.Message) learned {
	p.conversation.of(p.transcript) // up to date
	if !p.conversation.taught && len(notes) == 0 {
		return learned{}
	}
	return learnedFrom(slices.Concat(p.transcript, notes), p.start.Begin, name)
}

// guesses reports whether the request of the step in flight was built by guesses of the run.
func (p *Planner) guesses() bool {
	if !p.conversation.taught {
		return false
	}
	for _, m := range slices.Backward(p.runMessages(p.transcript)) {
		if m.Role == agent.RoleAssistant {
			return false
		}
		if l, ok := lessonOf(m); ok && l.Guess {
			return true
		}
	}
	return false
}

// candidate is a lesson that may help, and its sentence for users.
type candidate struct {
	lesson   lesson
	sentence string
}

// candidates returns the lessons to try after a refusal, the one with the smallest loss first.
func (p *Planner) candidates(asked CallModel, r model.Refusal) []candidate {
	switch r.Part {
	case model.RefusedContext:
		return p.shorterRequests(asked, r)
	case model.RefusedSize:
		return append(p.withoutFiles(asked, r), p.shorterRequests(asked, r)...)
	case model.RefusedFile:
		return append(p.withoutFiles(asked, r), p.guessedRequests(asked)...)
	case model.RefusedContent:
		return p.withoutContent(asked)
	case model.RefusedTool:
		return p.withoutTools(asked, r)
	case model.RefusedParameter:
		return withoutParameter(r)
	}
	return p.guessedRequests(asked)
}

// shorterRequests returns a smaller limit for the reply, if that may be the cause, and a budget for the messages. The
// provider's numbers tell how far the estimate is wrong, whatever they count.
func (p *Planner) shorterRequests(asked CallModel, r model.Refusal) (list []candidate) {
	request := asked.Request
	if out := int64(request.MaxOutputTokens); r.Limit > 0 && 2*out > r.Limit {
		list = append(list, candidate{lesson{Output: int(max(r.Limit/4, 1))}, "The model allows a shorter answer than the agent asks for."})
	}
	tokens, fixed := sumOf(p.estimateTokens(request.Messages)), fixedTokens(request)
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
	return append(list, candidate{lesson{Tokens: budget, Guess: guess}, "The conversation is longer than the model accepts. Its oldest part was left out."})
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
func (p *Planner) withoutFiles(asked CallModel, r model.Refusal) (list []candidate) {
	messages := asked.Request.Messages
	var named []agent.File
	if p.filesRefused() < maxFilesByName {
		named = filesOf(messages, func(at model.FileRef, _ agent.File) bool { return slices.Contains(r.Files, at) })
	}
	kind := filesOf(messages, func(_ model.FileRef, f agent.File) bool { return r.Kind.IsOf(f) })
	oldest := kind
	if r.Reason == model.FilesTooMany && int64(len(kind)) > r.Limit {
		oldest = kind[:len(kind)-int(r.Limit)]
	} else if r.Reason == model.FilesTooMany || r.Part == model.RefusedSize {
		oldest = filesOf(messages[:max(model.LastQuestion(messages), 0)], func(_ model.FileRef, f agent.File) bool { return r.Kind.IsOf(f) })
	} else {
		oldest = nil
	}
	unanswered := filesOf(messages[answeredBefore(messages):], func(_ model.FileRef, f agent.File) bool { return r.Kind.IsOf(f) })
	all := filesOf(messages, func(model.FileRef, agent.File) bool { return true })
	for _, files := range [][]agent.File{named, oldest, unanswered, kind, all} {
		if len(files) > 0 {
			list = append(list, leaveOutFiles(files, r))
		}
	}
	return list
}

// filesRefused returns how often files were left out in this run since its last reply.
func (p *Planner) filesRefused() (times int) {
	for _, m := range slices.Backward(p.runMessages(p.transcript)) {
		if m.Role == agent.RoleAssistant {
			break
		}
		if l, ok := lessonOf(m); ok && len(l.Files) > 0 {
			times++
		}
	}
	return times
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

func leaveOutFiles(files []agent.File, r model.Refusal) candidate {
	l := lesson{Why: fileProblem(r)}
	for _, f := range files[:min(len(files), maxNamed)] {
		l.Files = append(l.Files, digestOf(f.URL))
	}
	return candidate{l, filesSentence(files, r)}
}

// withoutContent leaves out results that no reply has followed. A question is not sent without its text: its run fails,
// and later turns leave it out. If a turn was left out already and no reply has followed, the cause is older.
func (p *Planner) withoutContent(asked CallModel) (list []candidate) {
	messages := asked.Request.Messages
	var l lesson
	for _, m := range messages[answeredBefore(messages):] {
		for _, r := range m.Results() {
			l.Results = append(l.Results, digestOf(r.CallID))
		}
	}
	if len(l.Results) > 0 && len(l.Results) <= maxNamed {
		list = append(list, candidate{l, "The content policy of the model's provider refuses the result of a tool. It was left out."})
	}
	question := questionBefore(p.transcript, len(p.transcript))
	for _, m := range slices.Backward(p.transcript[:question]) {
		if l, ok := lessonOf(m); ok && l.Turn {
			return append(list, candidate{lesson{Alone: true, Guess: true}, aloneSentence})
		}
		if m.Role == agent.RoleAssistant && !hasFailed(m) {
			break
		}
	}
	return list
}

// withoutTools leaves out the tool that the provider named, or those above its limit. The tool for the output stays.
func (p *Planner) withoutTools(asked CallModel, r model.Refusal) []candidate {
	tools, name := asked.Request.Tools, r.Name
	if r.Tool > 0 && r.Tool <= len(tools) {
		name = tools[r.Tool-1].Name
	}
	known := slices.ContainsFunc(tools, func(t model.Tool) bool { return t.Name == name })
	switch {
	case known && !p.tools.finishes(name):
		return []candidate{{lesson{Tools: []string{name}}, fmt.Sprintf("The model does not accept the tool %q. It was left out.", name)}}
	case r.Limit > 0 && int64(len(tools)) > r.Limit:
		return []candidate{{lesson{MostTools: int(r.Limit)}, fmt.Sprintf("The model does not accept more than %d tools. The others were left out.", r.Limit)}}
	}
	return nil
}

func withoutParameter(r model.Refusal) []candidate {
	switch {
	case r.Name == "temperature":
		return []candidate{{lesson{NoTemperature: true}, "The model does not accept the agent's temperature. It was left out."}}
	case r.Name == "max_tokens" && r.Limit > 0:
		return []candidate{{lesson{Output: int(r.Limit)}, fmt.Sprintf("The model's answers have at most %d tokens, fewer than the agent asks for.", r.Limit)}}
	case r.Name == "max_tokens":
		return []candidate{{lesson{Output: -1}, "The model does not accept the agent's limit for answers. It was left out."}}
	}
	return nil
}

// guessedRequests returns requests for a refusal without a reason: without new files, without files, without the calls
// of earlier turns, without any calls, and of the last question alone.
func (p *Planner) guessedRequests(asked CallModel) (list []candidate) {
	for _, c := range p.withoutFiles(asked, model.Refusal{}) {
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
	left := "It was left out."
	if len(files) > 1 {
		left = "They were left out."
	}
	if r.Part != model.RefusedFile {
		return fmt.Sprintf("The model did not accept the request. %s left out.", map[bool]string{false: "A file was", true: "Its files were"}[len(files) > 1])
	}
	switch r.Reason {
	case model.FilesTooMany:
		left = "The oldest were left out."
	case model.FileKindNotTaken:
		left = "They were left out."
	}
	return fileRefused(r, subjectOf(files, r)) + ". " + left
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
