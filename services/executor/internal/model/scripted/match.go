package scripted

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// conversation is the input of rules and templates.
type conversation struct {
	templateData
	lastRole    role
	step        int // 1 + the assistant messages after the last user message
	replyCount  int // assistant messages
	wordCount   int
	newResults  map[string]bool // tools with a result after the last reply
	newFailures map[string]bool // tools with a failed one
	offered     map[string]bool
	forced      bool // the choice is ChoiceRequired
	output      bool // a JSON reply is requested
}

func newConversation(r model.Request) conversation {
	c := conversation{
		templateData: templateData{System: r.System, Results: make(map[string]string)},
		step:         1,
		wordCount:    countWords(r.System),
		newResults:   make(map[string]bool),
		newFailures:  make(map[string]bool),
		offered:      make(map[string]bool),
		forced:       r.Choice == model.ChoiceRequired,
		output:       r.Output != nil,
	}
	for _, t := range r.Tools {
		c.offered[t.Name] = true
	}
	for _, m := range r.Messages {
		c.wordCount += countWords(m.Text())
		switch m.Role {
		case agent.RoleUser:
			c.lastRole = "user"
			c.step = 1
			c.LastUser = m.Text()
			c.Users = append(c.Users, c.LastUser)
		case agent.RoleAssistant:
			c.lastRole = "assistant"
			c.step++
			c.replyCount++
			c.NewResults = nil
			clear(c.newResults)
			clear(c.newFailures)
		case agent.RoleTool:
			c.lastRole = "tool"
			c.addResults(m)
		case agent.RoleSystem, agent.RoleContext:
			// Not turns of the conversation.
		}
	}
	c.UserCount = len(c.Users)
	return c
}

func (c *conversation) addResults(m agent.Message) {
	for _, p := range m.Parts {
		r, ok := p.(agent.ToolResult)
		if !ok {
			continue
		}
		c.LastResult = string(r.Result)
		if len(r.Result) == 0 {
			// Marshalling a map of strings cannot fail.
			object, _ := json.Marshal(map[string]string{"error": r.Error})
			c.LastResult = string(object)
		}
		c.wordCount += countWords(c.LastResult)
		c.Results[r.Name] = c.LastResult
		c.NewResults = append(c.NewResults, c.LastResult)
		c.newResults[r.Name] = true
		c.newFailures[r.Name] = c.newFailures[r.Name] || !r.Success
	}
}

// matches reports whether the conversation meets every condition except attempts. match is the match of
// lastUser.
func (c *condition) matches(conv conversation) (match []string, ok bool) {
	if c == nil {
		return nil, true
	}
	if c.LastUser != nil {
		if match = c.LastUser.FindStringSubmatch(conv.LastUser); match == nil || conv.UserCount == 0 {
			return nil, false
		}
	}
	_, hasResult := conv.Results[c.HasResult]
	return match, (c.LastRole == "" || c.LastRole == conv.lastRole) &&
		(c.ToolResult == "" || conv.newResults[c.ToolResult]) &&
		(c.ToolFailed == "" || conv.newFailures[c.ToolFailed]) &&
		(c.HasResult == "" || hasResult) &&
		(c.Offers == "" || conv.offered[c.Offers]) &&
		(c.Forced == nil || *c.Forced == conv.forced) &&
		(c.Output == nil || *c.Output == conv.output) &&
		(c.UserTurns == 0 || c.UserTurns == conv.UserCount) &&
		(c.Step == 0 || c.Step == conv.step) &&
		(c.System == nil || c.System.MatchString(conv.System))
}

// countWords is len(strings.Fields(s)) without allocating the slice.
func countWords(s string) int {
	n := 0
	for range strings.FieldsSeq(s) {
		n++
	}
	return n
}

func (c *condition) namedGroups(match []string) map[string]string {
	groups := make(map[string]string)
	if c == nil || c.LastUser == nil {
		return groups
	}
	for i, name := range c.LastUser.SubexpNames() {
		if name != "" {
			groups[name] = match[i]
		}
	}
	return groups
}

// maxAttempts limits the conversations counted at a time.
const maxAttempts = 4096

// attempts counts how often a rule was tried with a conversation. Safe for concurrent use.
type attempts struct {
	mu     sync.Mutex
	counts map[[sha256.Size]byte]int
	oldest [][sha256.Size]byte // the keys of counts, oldest first
}

// count counts one attempt of the rule with the conversation of r. It reports whether at most n attempts were
// made so far.
func (a *attempts) count(n, rule int, r model.Request) bool {
	hash := sha256.New()
	// The runtime's messages always marshal. Otherwise conversations would share a count, which is harmless.
	messages, _ := json.Marshal(r.Messages)
	fmt.Fprintf(hash, "%d %q %q %s", rule, r.Model, r.System, messages)
	key := [sha256.Size]byte(hash.Sum(nil))

	a.mu.Lock()
	defer a.mu.Unlock()
	count, known := a.counts[key]
	if !known {
		if len(a.oldest) == maxAttempts {
			delete(a.counts, a.oldest[0])
			a.oldest = a.oldest[1:]
		}
		a.oldest = append(a.oldest, key)
	}
	a.counts[key] = count + 1
	return count < n
}
