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

// conversation is what rules and templates look at.
type conversation struct {
	view
	lastRole role
	step     int // 1 + the assistant messages after the last user message
	replies  int // the assistant messages
	words    int
	came     map[string]bool // tools whose results came after the last reply …
	failed   map[string]bool // … and those of them with a failed one
	offered  map[string]bool // tools that may be called
	forced   bool            // one of them must be
	output   bool            // the reply is to be JSON
}

func look(r model.Request) conversation {
	c := conversation{
		view:    view{System: r.System, Results: make(map[string]string)},
		step:    1,
		words:   countWords(r.System),
		came:    make(map[string]bool),
		failed:  make(map[string]bool),
		offered: make(map[string]bool),
		forced:  r.Choice == model.ChoiceRequired,
		output:  r.Output != nil,
	}
	for _, t := range r.Tools {
		c.offered[t.Name] = true
	}
	for _, m := range r.Messages {
		c.words += countWords(m.Text())
		switch m.Role {
		case agent.RoleUser:
			c.lastRole, c.step = "user", 1
			c.LastUser = m.Text()
			c.Users = append(c.Users, c.LastUser)
		case agent.RoleAssistant:
			c.lastRole = "assistant"
			c.step++
			c.replies++
			clear(c.came)
			clear(c.failed)
		case agent.RoleTool:
			c.lastRole = "tool"
			c.hear(m)
		case agent.RoleSystem, agent.RoleContext:
			// Neither is a turn of the conversation.
		}
	}
	c.UserCount = len(c.Users)
	return c
}

func (c *conversation) hear(m agent.Message) {
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
		c.words += countWords(c.LastResult)
		c.Results[r.Name] = c.LastResult
		c.came[r.Name] = true
		c.failed[r.Name] = c.failed[r.Name] || !r.Success
	}
}

// holds says whether the conversation is as the condition wants it, leaving out
// attempts, and gives what lastUser matched.
func (c *condition) holds(conv conversation) (match []string, ok bool) {
	if c == nil {
		return nil, true
	}
	if c.LastUser != nil {
		if match = c.LastUser.FindStringSubmatch(conv.LastUser); match == nil || conv.UserCount == 0 {
			return nil, false
		}
	}
	return match, (c.LastRole == "" || c.LastRole == conv.lastRole) &&
		(c.ToolResult == "" || conv.came[c.ToolResult]) &&
		(c.ToolFailed == "" || conv.failed[c.ToolFailed]) &&
		(c.HasResult == "" || conv.has(c.HasResult)) &&
		(c.Offers == "" || conv.offered[c.Offers]) &&
		(c.Forced == nil || *c.Forced == conv.forced) &&
		(c.Output == nil || *c.Output == conv.output) &&
		(c.UserTurns == 0 || c.UserTurns == conv.UserCount) &&
		(c.Step == 0 || c.Step == conv.step) &&
		(c.System == nil || c.System.MatchString(conv.System))
}

// has says whether the conversation has a result of the tool.
func (c *conversation) has(tool string) bool {
	_, ok := c.Results[tool]
	return ok
}

// countWords is len(strings.Fields(s)) without the slice.
func countWords(s string) int {
	n := 0
	for range strings.FieldsSeq(s) {
		n++
	}
	return n
}

// groups gives the named groups of a match of the condition's lastUser.
func (c *condition) groups(match []string) map[string]string {
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

// maxAttempts is how many conversations are counted at a time.
const maxAttempts = 4096

// attempts counts how often rules met conversations. Safe for concurrent use.
type attempts struct {
	mu     sync.Mutex
	counts map[[sha256.Size]byte]int
	oldest [][sha256.Size]byte // the keys of counts, first come first
}

// next says whether this is at most the nth time that the rule meets the conversation.
func (a *attempts) next(n, rule int, r model.Request) bool {
	hash := sha256.New()
	// A request of the runtime always marshals; were it not to, the counts of
	// its rule would be shared, which is harmless.
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
