package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
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

// compaction decides what a model sees of the conversation: the part within its token budget, changed by what
// refusals have taught.
type compaction struct {
	run          *run
	conversation conversationCache // of the transcript
	covers       string            // the last message covered by the summary that is being made
	tried        bool              // a summary was made before the reply, or has failed
	uncounted    bool              // the agent's Count is no longer called
}

// group is never split: a message, or a model message with the results of its calls.
type group struct {
	messages []agent.Message
	tokens   int
	user     bool // a user message: a turn begins
}

// visibleMessages returns the messages for the model: a part of the conversation, changed by the lessons, and followed by
// the notices. If it returns older messages, they must be summarized first. notes follow the transcript.
func (c *compaction) visibleMessages(lessons learned, notices []agent.Message, notes ...agent.Message) (messages, older []agent.Message) {
	policy := c.run.start.Agent.Context
	all := c.conversation.of(c.run.transcript)
	if policy.MaxTokens <= 0 && !c.conversation.summed && !c.conversation.taught && !lessons.changes() {
		return append(all, notices...), nil
	}
	transcript := lessons.leaveOut(slices.Concat(c.run.transcript, notes, notices))
	groups := c.groups(lessons.convert(conversation(nil, slices.DeleteFunc(slices.Clone(transcript), isNote))))
	most := lower(max(policy.MaxTokens, 0), lessons.tokens)
	keep := most / 2 // tokens that stay of a conversation above its budget
	if policy.KeepTokens > 0 {
		keep = min(policy.KeepTokens, most)
	}
	budget := most
	from := 0
	if summary, behind := newestSummary(transcript, groups); summary != nil {
		messages = append(messages, *summary)
		budget -= c.estimateTokens([]agent.Message{*summary})[0]
		from = behind
	}
	if most > 0 && sum(groups[from:])+openerTokens(groups, from) > budget {
		if policy.Compaction == agent.CompactSummary && !c.tried && !endsWithSummary(transcript) {
			end := firstKept(groups, from, len(groups), keep)
			if end > from && !lessons.unsummarized[groups[end-1].messages[0].ID] {
				c.covers = groups[end-1].messages[0].ID
				return nil, append(messages, flat(groups[from:end])...)
			}
		}
		begin := from
		from = window(groups, begin, budget, min(keep, budget))
		if rows := sum(c.run.lastingRows(groups[:from])); rows > 0 {
			left := max(budget-rows, leastTokens)
			from = window(groups, begin, left, min(keep, left))
		}
	}
	messages = append(messages, flat(c.run.lastingRows(groups[:from]))...)
	if user := opener(groups, from); user >= 0 {
		messages = append(messages, groups[user].messages...)
	}
	messages = append(messages, flat(groups[from:])...)
	if lessons.tokens > 0 {
		messages = c.shorten(messages, lessons.tokens)
	}
	return lessons.join(messages), nil
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

// newest returns the part of the messages to summarize that fits the budget of the model: an earlier summary, and the
// newest messages.
func (c *compaction) newest(messages []agent.Message, budget int) []agent.Message {
	var summary []agent.Message
	if isSummary(messages[0]) {
		summary, messages = messages[:1], messages[1:]
	}
	groups := c.groups(messages)
	from := 0
	for from < len(groups)-1 && sum(groups[from:]) > budget {
		from++
	}
	return c.shorten(slices.Concat(summary, flat(groups[from:])), budget)
}

// learned returns what the conversation says about a model. notes follow the transcript.
func (c *compaction) learned(name string, notes ...agent.Message) learned {
	c.conversation.of(c.run.transcript) // up to date
	if !c.conversation.taught && len(notes) == 0 {
		return learned{}
	}
	return learnedFrom(slices.Concat(c.run.transcript, notes), c.run.start.Begin, name)
}

// guesses reports whether the request of the step in flight was built by guesses of the run.
func (c *compaction) guesses() bool {
	return c.conversation.taught && slices.ContainsFunc(c.run.sinceReply(), func(m agent.Message) bool {
		l, ok := lessonOf(m)
		return ok && l.Guess
	})
}

// summaryMessage returns the message that stores a summary.
func (c *compaction) summaryMessage(summary string) agent.Message {
	return agent.Message{
		ID: c.run.messageID("summary", 0), Role: agent.RoleContext, Hidden: true,
		Metadata: map[string]string{metadataCompaction: compactionSummary, metadataCovers: c.covers},
		Parts:    []agent.Part{agent.Text{Text: "A summary of the conversation before this point:\n\n" + summary}},
	}
}

func (c *compaction) groups(messages []agent.Message) []group {
	var groups []group
	tokens := c.estimateTokens(messages)
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
