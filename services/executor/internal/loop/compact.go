package loop

import (
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

// shortening is a step's reduction of the conversation to its token budget.
type shortening struct {
	summary *agent.Message
	covers  string
	tried   bool
}

// group is never split: a message, or a model message with the results of its calls.
type group struct {
	messages []agent.Message
	tokens   int
	user     bool // a user message: a turn begins
}

// visibleMessages returns the messages for the model: a part of the conversation, followed by the notices. If it returns
// older messages, they must be summarized first.
func (p *Planner) visibleMessages(notices []agent.Message) (messages, older []agent.Message) {
	policy := p.start.Agent.Context
	whole := p.conversation.of(p.transcript)
	if policy.MaxTokens <= 0 && !p.conversation.summed && p.shortening.summary == nil {
		return append(whole, notices...), nil
	}
	transcript := slices.Concat(p.transcript, notices)
	if p.shortening.summary != nil {
		transcript = append(transcript, *p.shortening.summary)
	}
	groups := p.groups(conversation(slices.DeleteFunc(slices.Clone(transcript), isSummary)))
	budget, from := policy.MaxTokens, 0
	if summary, behind := newestSummary(transcript, groups); summary != nil {
		messages = append(messages, *summary)
		budget, from = budget-p.estimateTokens([]agent.Message{*summary})[0], behind
	}
	if policy.MaxTokens > 0 && sum(groups[from:])+openerTokens(groups, from) > budget {
		if policy.Compaction == agent.CompactSummary && !p.shortening.tried {
			if cut := firstKept(groups, from, len(groups), p.keep()); cut > from {
				p.shortening.covers = groups[cut-1].messages[0].ID
				return nil, append(messages, flat(groups[from:cut])...)
			}
		}
		from = window(groups, from, budget, min(p.keep(), budget))
	}
	if user := opener(groups, from); user >= 0 {
		messages = append(messages, groups[user].messages...)
	}
	return append(messages, flat(groups[from:])...), nil
}

func (p *Planner) keep() int {
	c := p.start.Agent.Context
	if c.KeepTokens > 0 {
		return min(c.KeepTokens, c.MaxTokens)
	}
	return c.MaxTokens / 2
}

// compact returns an effect that summarizes the older messages.
func (p *Planner) compact(older []agent.Message) Effect {
	name := p.start.Agent.Model
	request := p.request(name, slices.Concat(older, []agent.Message{p.note(2, "Summarise the conversation so far.", nil)}))
	request.System, request.Output, request.Choice, request.Tools = summarySystem, nil, model.ChoiceNone, p.offeredTools()
	return Compact{Step: p.step, Older: older, Model: name, Request: request}
}

// Compacted answers Compact with the summary. An empty summary counts as none.
func (p *Planner) Compacted(summary string) {
	expect[Compact](p)
	p.shortening.tried = true
	if strings.TrimSpace(summary) != "" {
		p.shortening.summary = &agent.Message{
			ID: p.messageID("summary", 0), Role: agent.RoleContext, Hidden: true,
			Metadata: map[string]string{metadataCompaction: compactionSummary, metadataCovers: p.shortening.covers},
			Parts:    []agent.Part{agent.Text{Text: "A summary of the conversation before this point:\n\n" + summary}},
		}
	}
	p.next = p.callModel()
}

// CompactFailed answers Compact with an error. The step continues with a window instead of a summary.
func (p *Planner) CompactFailed(error) {
	expect[Compact](p)
	p.shortening.tried = true
	p.next = p.callModel()
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
	return (bytes + 3) / 4
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
