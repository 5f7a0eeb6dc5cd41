package loop

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// contextKind is the kind of the ids of rows of context.
const contextKind = "context"

// contextRows folds the rows of context of a growing transcript. The zero value is empty.
type contextRows struct {
	covered  int // number of transcript messages covered
	newest   map[rowKey]agent.ContextRow
	disabled map[string]bool // tools
	// repeated has the ids of rows that say the same as the one before: models do not see them.
	repeated map[string]bool
	some     bool // there are rows
}

// rowKey is what a row is about.
type rowKey struct {
	source agent.ContextSource
	key    string
}

// of returns the rows of a transcript that extends the previous one.
func (c *contextRows) of(transcript []agent.Message) *contextRows {
	for _, m := range transcript[c.covered:] {
		c.add(m)
	}
	c.covered = len(transcript)
	return c
}

// add adds a message, if it is a row.
func (c *contextRows) add(m agent.Message) {
	row, source, ok := agent.ContextRowOf(m)
	if !ok {
		return
	}
	if !c.some {
		c.some = true
		c.newest = map[rowKey]agent.ContextRow{}
		c.disabled = map[string]bool{}
		c.repeated = map[string]bool{}
	}
	c.repeated[m.ID] = c.says(source, row)
	c.newest[rowKey{source, row.Key}] = row
	for _, name := range row.Disable {
		c.disabled[name] = true
	}
	for _, name := range row.Enable {
		delete(c.disabled, name)
	}
}

// says reports whether the newest row with the key of a row says the same, and no other row has changed its tools since.
func (c *contextRows) says(source agent.ContextSource, row agent.ContextRow) bool {
	last, known := c.newest[rowKey{source, row.Key}]
	isDisabled := func(name string) bool { return c.disabled[name] }
	return row.Key != "" && known && last.Same(row) && !slices.ContainsFunc(row.Enable, isDisabled) &&
		!slices.ContainsFunc(row.Disable, func(name string) bool { return !isDisabled(name) && !slices.Contains(row.Enable, name) })
}

// clone returns a copy that shares nothing with c.
func (c *contextRows) clone() *contextRows {
	return &contextRows{
		covered: c.covered, newest: maps.Clone(c.newest), disabled: maps.Clone(c.disabled), repeated: maps.Clone(c.repeated), some: c.some,
	}
}

// contextRows returns the rows of the committed conversation.
func (r *run) contextRows() *contextRows { return r.rows.of(r.transcript) }

// isDisabled reports whether a row of context has disabled the tool.
func (r *run) isDisabled(tool string) bool {
	return tool != agent.FinishTool && r.contextRows().disabled[tool]
}

// offered returns the tools of the agent that are not disabled, and the tool for its output.
func (r *run) offered() []model.Tool {
	return slices.DeleteFunc(r.tools.offered(), func(t model.Tool) bool { return r.isDisabled(t.Name) })
}

// contextMessages returns the messages that add rows in the step in flight. A row with a key is added only if it says
// something new.
func (r *run) contextMessages(source agent.ContextSource, rows []agent.ContextRow) (messages []agent.Message) {
	if len(rows) == 0 {
		return nil
	}
	known := r.contextRows().clone()
	for _, row := range rows {
		if known.says(source, row) {
			continue
		}
		m := row.Message(r.messageID(contextKind, len(messages)), source)
		known.add(m)
		messages = append(messages, m)
	}
	return messages
}

// sendContext returns the messages as a model receives them: the rows of tools as messages of the user, and no row without
// text. Other rows are left to the provider.
func (r *run) sendContext(messages []agent.Message) []agent.Message {
	rows := r.contextRows()
	if !rows.some {
		return messages
	}
	sent := make([]agent.Message, 0, len(messages))
	for _, m := range messages {
		row, source, ok := agent.ContextRowOf(m)
		switch {
		case !ok:
			sent = append(sent, m)
		case rows.repeated[m.ID] || strings.TrimSpace(row.Text) == "":
		case source == agent.ContextOfTool:
			sent = append(sent, model.ContextAsUser(m))
		default:
			sent = append(sent, m)
		}
	}
	return sent
}

// lastingRows returns the rows among messages that stay in a shortened conversation: all that name tools, and the newest of
// each key.
func (r *run) lastingRows(groups []group) (rows []group) {
	if !r.contextRows().some {
		return nil
	}
	newest := map[rowKey]bool{}
	for _, g := range slices.Backward(groups) {
		row, source, ok := agent.ContextRowOf(g.messages[0])
		key := rowKey{source, row.Key}
		if !ok || r.rows.repeated[g.messages[0].ID] || row.Kind != agent.ContextTools && (row.Key == "" || newest[key]) {
			continue
		}
		newest[key] = true
		rows = append(rows, g)
	}
	slices.Reverse(rows)
	return rows
}

// asksForContext reports whether the agent is asked for rows before the model call. It is asked once for each reply, and an
// earlier owner of the run may have stored the rows.
func (m *modelCalls) asksForContext() bool {
	if m.run.start.Agent.StepContext == nil || m.trial.context {
		return false
	}
	since := m.run.sinceReply()
	for step := m.run.step - 1; step >= m.run.step-len(since); step-- { // each step since the reply has a message
		id := MessageID(m.run.start.Run, step, contextKind, 0)
		for _, message := range since {
			if _, source, ok := agent.ContextRowOf(message); ok && source == agent.ContextOfHook && message.ID == id {
				return false
			}
		}
	}
	return true
}

// contextCall returns the question for rows of context.
func (m *modelCalls) contextCall(name string) StepContext {
	view := agent.StepView{
		Steps: m.run.replyCount(m.run.transcript), Model: name,
		Messages: m.compaction.conversation.of(m.run.transcript),
	}
	for _, t := range m.run.offered() {
		view.Tools = append(view.Tools, t.Name)
	}
	return StepContext{Step: m.run.step, View: view}
}

// Contexted answers StepContext with rows that agent.CheckContext accepts. They are committed before the model call, so a
// crash from then on leaves nothing to ask again.
func (p *Planner) Contexted(rows []agent.ContextRow) {
	expect[StepContext](p)
	p.model.trial.context = true
	messages := p.run.contextMessages(agent.ContextOfHook, rows)
	if len(messages) == 0 {
		p.next = pendingRequest{}
		return
	}
	p.next = Commit{Step: p.run.step, Notes: true, Messages: messages}
}

// ContextFailed answers StepContext with an error, which fails the run: without its context the model might do something
// else.
func (p *Planner) ContextFailed(err error) {
	expect[StepContext](p)
	p.next = failed(InternalFailure(&FunctionError{Function: "StepContext", Agent: p.run.start.Agent.Name, Err: err}))
}
