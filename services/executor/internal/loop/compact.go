package loop

import (
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Metadata of a summary.
const (
	metadataCompaction = "compaction"
	compactionSummary  = "summary"
	metadataCovers     = "covers" // the id of the last message covered by the summary
)

// maxFileTokens is the estimate for a file, except for a small one in its message: providers scale images and do not
// bill bytes.
const maxFileTokens = 1600

const summarySystem = "You summarise the beginning of a conversation between a user and an assistant, so that the assistant can go on " +
	"without it. Keep what was asked and decided, facts, names, numbers and ids, results of tools that still matter, and what is left to do. " +
	"Reply with the summary and nothing else."

// shortening is the reduction of the conversation to its token budget before a reply.
type shortening struct {
	covers string // the last message covered by the summary that is being made
	tried  bool   // a summary was made, or has failed
}

// group is never split: a message, or a model message with the results of its calls.
type group struct {
	messages []agent.Message
	tokens   int
	user     bool // a user message: a turn begins
}

// visibleMessages returns the messages for the model: a part of the conversation, changed by the lessons, and followed by
// the notices. If it returns older messages, they must be summarized first. notes follow the transcript.
func (p *Planner) visibleMessages(lessons learned, notices []agent.Message, notes ...agent.Message) (messages, older []agent.Message) {
	policy := p.start.Agent.Context
	whole := p.conversation.of(p.transcript)
	if policy.MaxTokens <= 0 && !p.conversation.summed && !p.conversation.taught && !lessons.changes() {
		return append(whole, notices...), nil
	}
	transcript := lessons.leaveOut(slices.Concat(p.transcript, notes, notices))
	groups := p.groups(lessons.convert(conversation(slices.DeleteFunc(slices.Clone(transcript), isNote))))
	most, from := lessons.budget(policy.MaxTokens), 0
	budget, keep := most, p.keep(most)
	if summary, behind := newestSummary(transcript, groups); summary != nil {
		messages = append(messages, *summary)
		budget, from = budget-p.estimateTokens([]agent.Message{*summary})[0], behind
	}
	if most > 0 && sum(groups[from:])+openerTokens(groups, from) > budget {
		if policy.Compaction == agent.CompactSummary && !p.shortening.tried && !endsWithSummary(transcript) {
			if cut := firstKept(groups, from, len(groups), keep); cut > from && !lessons.unsummarized[groups[cut-1].messages[0].ID] {
				p.shortening.covers = groups[cut-1].messages[0].ID
				return nil, append(messages, flat(groups[from:cut])...)
			}
		}
		from = window(groups, from, budget, min(keep, budget))
	}
	if user := opener(groups, from); user >= 0 {
		messages = append(messages, groups[user].messages...)
	}
	messages = append(messages, flat(groups[from:])...)
	if lessons.tokens > 0 {
		messages = p.shorten(messages, lessons.tokens)
	}
	return lessons.join(messages), nil
}

// keep returns how many tokens stay of a conversation above its budget.
func (p *Planner) keep(budget int) int {
	if keep := p.start.Agent.Context.KeepTokens; keep > 0 {
		return min(keep, budget)
	}
	return budget / 2
}

// endsWithSummary reports whether nothing follows the newest summary but lessons: a summary was made for the next reply.
func endsWithSummary(transcript []agent.Message) bool {
	for _, m := range slices.Backward(transcript) {
		if !isLesson(m) {
			return isSummary(m)
		}
	}
	return false
}

// compact returns an effect that summarizes the older messages.
func (p *Planner) compact(older []agent.Message) Effect {
	name := p.start.Agent.Model
	return p.summaryCall(older, p.learned(name))
}

func (p *Planner) summaryCall(older []agent.Message, lessons learned) Compact {
	name := p.start.Agent.Model
	if lessons.tokens > 0 {
		older = p.newest(older, lessons.tokens)
	}
	request := p.request(name, slices.Concat(older, []agent.Message{p.note(2, "Summarise the conversation so far.", nil)}), lessons)
	request.System, request.Output, request.Choice, request.Tools = summarySystem, nil, model.ChoiceNone, p.offeredTools()
	return Compact{Step: p.step, Older: older, Model: name, Request: request}
}

// newest returns the part of the messages to summarize that fits the budget of the model: an earlier summary, and the
// newest messages.
func (p *Planner) newest(messages []agent.Message, budget int) []agent.Message {
	var summary []agent.Message
	if isSummary(messages[0]) {
		summary, messages = messages[:1], messages[1:]
	}
	groups := p.groups(messages)
	from := 0
	for from < len(groups)-1 && sum(groups[from:]) > budget {
		from++
	}
	return p.shorten(slices.Concat(summary, flat(groups[from:])), budget)
}

// Compacted answers Compact with the summary, which is committed at once: the following call may fail. An empty summary
// counts as none.
func (p *Planner) Compacted(summary string) {
	expect[Compact](p)
	p.shortening.tried = true
	if strings.TrimSpace(summary) == "" {
		p.next = p.callModel()
		return
	}
	p.next = Commit{Step: p.step, Notes: true, Messages: []agent.Message{{
		ID: p.messageID("summary", 0), Role: agent.RoleContext, Hidden: true,
		Metadata: map[string]string{metadataCompaction: compactionSummary, metadataCovers: p.shortening.covers},
		Parts:    []agent.Part{agent.Text{Text: "A summary of the conversation before this point:\n\n" + summary}},
	}}}
}

// CompactFailed answers Compact with an error. If the conversation is too long for a summary, a smaller part of it is
// summarized. Otherwise the step continues with a window instead of a summary. A refused summary is not asked for again.
func (p *Planner) CompactFailed(err error) {
	asked := expect[Compact](p)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Refusal != nil {
		if note, ok := p.learnOfSummary(asked, *e.Refusal); ok {
			p.next = Commit{Step: p.step, Messages: []agent.Message{note}, Notes: true}
			return
		}
	}
	p.shortening.tried = true
	p.next = p.callModel()
}

// learnOfSummary returns a note after which the refused summary is not asked for again; not ok after maxRefusals.
func (p *Planner) learnOfSummary(asked Compact, r model.Refusal) (note agent.Message, ok bool) {
	if len(p.Notices()) >= maxRefusals {
		return agent.Message{}, false
	}
	var candidates []candidate
	if r.Part == model.RefusedContext {
		candidates = p.shorterRequests(CallModel{Request: asked.Request}, r)
	}
	refused := p.shortening.covers
	const sentence = "The conversation could not be summarized. Its oldest part was left out."
	candidates = append(candidates, candidate{lesson{Unsummarized: refused}, sentence})
	for _, c := range candidates {
		c.lesson.Model = asked.Model
		note = p.lessonNote(c.lesson, c.sentence)
		l := p.learned(asked.Model, note)
		late, _ := p.notices()
		_, older := p.visibleMessages(l, late, note)
		p.shortening.covers = refused
		if len(older) == 0 || !sameMessages(p.summaryCall(older, l).Request.Messages, asked.Request.Messages) {
			return note, true
		}
	}
	return agent.Message{}, false
}

func (p *Planner) groups(messages []agent.Message) []group {
	var groups []group
	tokens := p.estimateTokens(messages)
	for i, m := range messages {
		if m.Role == agent.RoleTool && len(groups) > 0 { // follows its calls: see conversation
			last := &groups[len(groups)-1]
			last.messages = append(last.messages, m)
			last.tokens += tokens[i]
			continue
		}
		groups = append(groups, group{messages: []agent.Message{m}, tokens: tokens[i], user: m.Role == agent.RoleUser && !m.Hidden})
	}
	return groups
}

// EstimateTokens estimates the tokens of messages from their bytes.
func EstimateTokens(messages []agent.Message) (tokens int) {
	for _, m := range messages {
		tokens += estimate(m)
	}
	return tokens
}

// bytesPerToken is the estimate for text.
const bytesPerToken = 4

// estimate returns a quarter of a message's bytes as its tokens.
func estimate(m agent.Message) int {
	bytes := 0
	for _, part := range m.Parts {
		switch part := part.(type) {
		case agent.Text:
			bytes += len(part.Text)
		case agent.Reasoning:
			bytes += len(part.Text) + len(part.ProviderData)
		case agent.ToolCall:
			bytes += len(part.Name) + len(part.Arguments)
		case agent.ToolResult:
			bytes += len(part.Result) + len(part.Error)
		case agent.File:
			if strings.HasPrefix(part.URL, "data:") {
				bytes += min(len(part.URL), 4*maxFileTokens)
			} else {
				bytes += 4 * maxFileTokens
			}
		}
	}
	return (bytes + bytesPerToken - 1) / bytesPerToken
}

// window returns the first group of the visible conversation. It simulates a reader of the conversation that,
// whenever it exceeds the budget, drops all but the part to keep. The beginning thus stays the same for many
// steps, which suits the caches of providers.
func window(groups []group, from, budget, keep int) int {
	start, tokens := from, 0
	for end := from; end < len(groups); end++ {
		tokens += groups[end].tokens
		if tokens+openerTokens(groups, start) > budget {
			start = firstKept(groups, start, end+1, keep)
			tokens = sum(groups[start : end+1])
		}
	}
	return start
}

// firstKept returns the first retained group in [from, to): the first turn from which the rest fits the tokens,
// otherwise the first such group, otherwise the last group.
func firstKept(groups []group, from, to, keep int) int {
	first, tokens, turn := to-1, 0, -1
	for i := to - 1; i >= from; i-- {
		tokens += groups[i].tokens
		if tokens > keep {
			break
		}
		if tokens+openerTokens(groups, i) <= keep {
			first = i
		}
		if groups[i].user {
			turn = i
		}
	}
	if turn >= 0 {
		return turn
	}
	return first
}

// opener returns the user message shown before the group, because a conversation begins with a user message. It
// returns -1 if the group is one, or if there is none.
func opener(groups []group, from int) int {
	if from >= len(groups) || groups[from].user {
		return -1
	}
	for i := from - 1; i >= 0; i-- {
		if groups[i].user {
			return i
		}
	}
	return -1
}

// openerTokens returns the tokens of the opener.
func openerTokens(groups []group, from int) int {
	if user := opener(groups, from); user >= 0 {
		return groups[user].tokens
	}
	return 0
}

func sum(groups []group) (tokens int) {
	for _, g := range groups {
		tokens += g.tokens
	}
	return tokens
}

func flat(groups []group) []agent.Message {
	var messages []agent.Message
	for _, g := range groups {
		messages = append(messages, g.messages...)
	}
	return messages
}

func isSummary(m agent.Message) bool {
	return m.Role == agent.RoleContext && m.Metadata[metadataCompaction] == compactionSummary
}

// newestSummary returns the newest summary of messages in the conversation, and the group after the covered
// ones.
func newestSummary(transcript []agent.Message, groups []group) (*agent.Message, int) {
	for i := len(transcript) - 1; i >= 0; i-- {
		if !isSummary(transcript[i]) {
			continue
		}
		covers := transcript[i].Metadata[metadataCovers]
		last := slices.IndexFunc(groups, func(g group) bool { return g.messages[0].ID == covers })
		if last >= 0 {
			return &transcript[i], last + 1
		}
	}
	return nil, 0
}
