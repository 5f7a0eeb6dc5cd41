package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Models, tools, guards, people and crashes act on a session over many runs. Always: calls are answered once,
// unsafe tools run once, step numbers rise by one, every run ends, and the model sees the conversation.
func TestWhateverHappensASessionStaysSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, keys: map[string]string{}, world: newWorld(loop.Start{
			Run: loop.Run{Tenant: "acme", SessionID: "s", RunID: "r0"}, Agent: drawAgent(t), State: agent.State{},
			MaxDepth: rapid.IntRange(0, 1).Draw(t, "depth"),
		})}
		for turn := range rapid.IntRange(1, 4).Draw(t, "turns") {
			m.turn(turn)
		}
	})
}

func drawAgent(t *rapid.T) agent.Agent {
	a := agent.Agent{Name: "any", Model: "test/mind", MaxSteps: rapid.IntRange(1, 6).Draw(t, "max")}
	for _, traits := range []string{"safe", "never", "client", "never:approval", "safe:odd", "safe:finish", "never:approval:finish", "client:finish", "read", "read:approval", "read:odd", "read:finish", "sub", "sub:finish", "sub:checked"} {
		if rapid.Bool().Draw(t, traits) {
			a.Tools = append(a.Tools, tool(strings.ReplaceAll(traits, ":", "_")+":"+traits))
		}
	}
	option := func(name, value string) {
		if rapid.IntRange(0, 2).Draw(t, name+value) == 0 {
			agentOptions[name](&a, value)
		}
	}
	option("output", "")
	option("output", "native")
	option("guard", "")
	option("guard", "reply")
	option("stopwhen", "3")
	option("fallback", "other/spare")
	option("retries", "1")
	option("budget", "40")
	option("compaction", "summary")
	option("context", "asks")
	return a
}

// machine drives one session.
type machine struct {
	*rapid.T
	world   *world
	planner *loop.Planner
	stop    *loop.Stop
	keys    map[string]string // calls by idempotency key
	// failedAt is the index of the first message of the last step if its commit failed the run, otherwise the
	// end of the conversation.
	failedAt int
}

func (m *machine) chance(of int, what string) bool {
	return rapid.IntRange(0, of-1).Draw(m.T, what) == 0
}

func (m *machine) claim() {
	m.planner = loop.New(m.world.newStart())
	if m.stop != nil { // stored with the run
		m.planner.Stopped(*m.stop, nil)
	}
}

// turn is a run with a message, followed by its continuations.
func (m *machine) turn(n int) {
	if m.world.hasOpenCall() && m.chance(2, "abandon") {
		for _, a := range m.world.start.Calls {
			if a.Answer == nil {
				m.world.answer(a.CallID, loop.Answer{Error: "client_tool_abandoned: a new message came instead."})
			}
		}
	}
	m.world.next(fmt.Sprintf("r%d", n), fmt.Sprintf("Message %d", n))
	for part := range 8 {
		m.stop = nil
		m.run()
		if s := m.world.outcome.Status; !isSuspended(s) {
			if s != loop.StatusFailed {
				return
			}
			m.world.start.Calls = slices.DeleteFunc(m.world.start.Calls, func(a loop.ClientCall) bool { return a.Answer == nil })
			if m.chance(2, "give up") {
				return
			}
			m.retry(fmt.Sprintf("r%d.%d", n, part))
			continue
		}
		if !m.world.hasOpenCall() {
			m.Fatalf("suspended with nothing to wait for")
		}
		m.answers()
		if m.world.hasOpenCall() {
			return // another owner continues the session
		}
		m.world.next(fmt.Sprintf("r%d.%d", n, part), "")
	}
}

func isSuspended(s loop.Status) bool { return strings.HasPrefix(string(s), "suspended_") }

// retry begins a run after a failed one. It removes the failed step unless the step has tool results, and
// continues from there.
func (m *machine) retry(runID string) {
	s := &m.world.start
	last := s.Transcript[m.failedAt:]
	if !slices.ContainsFunc(last, func(m agent.Message) bool { return len(m.Results()) > 0 }) && m.chance(2, "take back") {
		s.Transcript = s.Transcript[:m.failedAt]
	}
	m.world.next(runID, "")
	s.Begin = len(s.Transcript)
}

// fail answers a model call with a failure, before the reply or in the middle.
func (m *machine) fail(e loop.CallModel, err error) {
	var reply *loop.Reply
	if m.chance(2, "partial") {
		reply = m.reply(e, false)
	}
	m.planner.Failed(reply, err)
	c, ok := m.planner.Next().(loop.Commit)
	if !ok {
		return
	}
	marked := slices.ContainsFunc(c.Messages, func(s agent.Message) bool { return s.Metadata[agent.MetadataFailed] != "" })
	if !marked || !c.Incomplete || c.Outcome == nil || c.Outcome.Status != loop.StatusFailed {
		m.Fatalf("a failed call is committed as %s", describe(c))
	}
}

// answers answers open calls.
func (m *machine) answers() {
	for _, a := range slices.Clone(m.world.start.Calls) {
		if a.Answer != nil || m.chance(8, "unanswered") {
			continue
		}
		m.world.answer(a.CallID, m.answer(a))
	}
}

func (m *machine) answer(a loop.ClientCall) loop.Answer {
	switch rapid.IntRange(0, 3).Draw(m.T, "answer") {
	case 0:
		return loop.Answer{TimedOut: true, Error: "timeout"}
	case 1:
		return loop.Answer{Error: "closed"}
	case 2:
		if a.Approval {
			return loop.Answer{Reason: "no"}
		}
	}
	if a.Approval {
		return loop.Answer{Approved: true}
	}
	return loop.Answer{Result: json.RawMessage(`{"answer":1}`)}
}

// run performs effects until the run has ended.
func (m *machine) run() {
	m.claim()
	for n := 0; m.world.outcome == nil; n++ {
		if n > 500 {
			m.Fatalf("a run without end")
		}
		effect := m.planner.Next()
		if m.stop == nil && m.chance(40, "stop") {
			m.halt(effect)
			continue
		}
		if m.chance(12, "crash") {
			m.crash(effect)
			continue
		}
		m.perform(effect)
	}
	if _, done := m.planner.Next().(loop.Done); done {
		before := m.planner.Next().(loop.Done).Outcome.Status
		m.planner.Stopped(loop.Stop{Kind: loop.StopAbort}, nil)
		if after := m.planner.Next().(loop.Done).Outcome.Status; after != before {
			m.Fatalf("a run that had ended %s is %s", before, after)
		}
	}
	m.check()
}

func (m *machine) halt(effect loop.Effect) {
	stop := loop.Stop{Kind: rapid.SampledFrom([]loop.StopKind{loop.StopInterrupt, loop.StopAbort, loop.StopDeadline, loop.StopAgentGone}).Draw(m.T, "kind")}
	m.stop = &stop
	switch e := effect.(type) {
	case loop.CallModel:
		m.planner.Stopped(stop, m.reply(e, false))
	case loop.RunCalls:
		ends := m.ends(e)
		for i := range ends {
			if e.Calls[i].Result == nil && m.chance(2, "cut") {
				begun := m.chance(2, "begun")
				if begun {
					m.enter(e.Calls[i])
				}
				ends[i] = loop.Ended{Stopped: true, Begun: begun}
			} else {
				m.enter(e.Calls[i])
			}
		}
		m.world.recordEnds(e, ends)
		m.planner.Ended(ends)
		m.planner.Stopped(stop, nil)
	default:
		m.planner.Stopped(stop, nil)
	}
}

// crash loses the owner in the middle of an effect.
func (m *machine) crash(effect loop.Effect) {
	durable := m.chance(2, "durable")
	switch e := effect.(type) {
	case loop.RecordPlan:
		if durable {
			m.world.recordPlan(e)
		}
	case loop.Commit:
		if durable {
			m.commit(e)
		}
	case loop.Finish:
		if durable {
			m.finish(e)
		}
	case loop.RunCalls:
		ends := m.ends(e)
		for i, call := range e.Calls {
			if m.chance(2, "entered") || call.Tool == nil {
				m.enter(call)
				if m.chance(2, "recorded") {
					m.world.recordEnd(e, i, ends[i])
				}
			}
		}
	}
	m.claim()
}

func (m *machine) enter(call loop.Call) {
	if call.Tool == nil {
		return
	}
	if !call.Tool.ReadOnly { // the model may reuse the id of a look-up for another call
		m.world.entered[call.ID]++
	}
	if !call.Tool.Repeatable() && m.world.entered[call.ID] > 1 {
		m.Fatalf("%s of %s has run twice", call.ID, call.Tool.Name)
	}
	made := call.Name + string(call.Arguments)
	if before, ok := m.keys[call.Key]; ok && before != made {
		m.Fatalf("%s has the key of %s", made, before)
	}
	m.keys[call.Key] = made
	if m.disabled()[call.Name] {
		m.Fatalf("%s of %s runs, and the tool is disabled", call.ID, call.Name)
	}
	if call.Tool.Client || call.Tool.SubAgent != "" || call.Tool.Approval && (call.Decision == nil || !call.Decision.Approved) {
		m.Fatalf("%s of %s runs without an answer", call.ID, call.Tool.Name)
	}
}

func (m *machine) ends(e loop.RunCalls) []loop.Ended {
	ends := endsOf(e, nil)
	for i, call := range e.Calls {
		if call.Result != nil {
			continue
		}
		switch rapid.IntRange(0, 3).Draw(m.T, "end") {
		case 0:
			ends[i].Result = agent.ToolResult{CallID: call.ID, Name: call.Name, Error: "failed"}
		case 1:
			ends[i].Result.Result = json.RawMessage(`{"answer":1}`)
			ends[i].Ops = []agent.Op{replaceOp("n", fmt.Sprint(len(m.world.start.Transcript)))}
			ends[i].Context = m.rows()
		}
	}
	return ends
}

// rows returns rows of context.
func (m *machine) rows() (rows []agent.ContextRow) {
	for range rapid.IntRange(0, 2).Draw(m.T, "rows") {
		row := agent.ContextRow{Kind: agent.ContextNotice, Text: "Soon.", Key: rapid.SampledFrom([]string{"", "a", "b"}).Draw(m.T, "key")}
		if tools := m.world.start.Agent.Tools; len(tools) > 0 && m.chance(2, "tools") {
			row.Kind, row.Text = agent.ContextTools, ""
			names := []string{tools[rapid.IntRange(0, len(tools)-1).Draw(m.T, "named")].Name}
			if m.chance(2, "enable") {
				row.Enable = names
			} else {
				row.Disable = names
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// disabled returns the tools that the committed rows disable.
func (m *machine) disabled() map[string]bool {
	disabled := map[string]bool{}
	for _, message := range m.world.start.Transcript {
		row, _, _ := agent.ContextRowOf(message)
		for _, name := range row.Disable {
			disabled[name] = true
		}
		for _, name := range row.Enable {
			disabled[name] = false
		}
	}
	return disabled
}

func (m *machine) perform(effect loop.Effect) {
	switch e := effect.(type) {
	case loop.StepContext:
		m.planner.Contexted(m.rows())
	case loop.CallModel:
		m.checkVisible(e)
		for _, t := range e.Request.Tools {
			if m.disabled()[t.Name] {
				m.Fatalf("%s is offered, and is disabled", t.Name)
			}
		}
		switch rapid.IntRange(0, 9).Draw(m.T, "model") {
		case 0:
			m.fail(e, &model.Error{Code: model.CodeOverloaded, Retryable: true})
		case 1:
			m.fail(e, errors.New("odd"))
		default:
			m.planner.Replied(m.reply(e, true))
		}
	case loop.Wait:
		m.planner.Waited()
	case loop.Compact:
		if m.chance(2, "no summary") {
			m.planner.CompactFailed(errors.New("no"))
		} else {
			m.planner.Compacted("In short.")
		}
	case loop.Guard:
		m.judge()
	case loop.RecordPlan:
		m.world.recordPlan(e)
		m.planner.Recorded()
	case loop.RunCalls:
		for _, call := range e.Calls {
			m.enter(call)
		}
		ends := m.ends(e)
		m.world.recordEnds(e, ends)
		m.planner.Ended(ends)
	case loop.Commit:
		m.commit(e)
		m.planner.Committed()
		if e.Outcome == nil && fmt.Sprint(m.planner.State()) != fmt.Sprint(m.world.start.State) {
			m.Fatalf("the state is %v, and %v in the service", m.planner.State(), m.world.start.State)
		}
	case loop.Finish:
		m.finish(e)
		m.planner.Finished()
	default:
		m.Fatalf("the effect %T", effect)
	}
}

func (m *machine) judge() {
	switch rapid.IntRange(0, 4).Draw(m.T, "verdict") {
	case 0:
		m.planner.Judged(agent.Verdict{Revise: "Again."})
	case 1:
		m.planner.Judged(agent.Verdict{Replace: json.RawMessage(`7`)})
	case 2:
		m.planner.GuardFailed(errors.New("no judge"))
	default:
		m.planner.Judged(agent.Verdict{})
	}
}

func (m *machine) finish(e loop.Finish) {
	m.world.outcome = &e.Outcome
	m.world.start.Journal = nil
	m.failedAt = len(m.world.start.Transcript)
}

func (m *machine) commit(e loop.Commit) {
	if e.Step != m.world.start.SessionSteps+1 {
		m.Fatalf("step %d is committed behind step %d", e.Step, m.world.start.SessionSteps)
	}
	for _, c := range e.Consumed {
		if i := slices.IndexFunc(m.world.start.Calls, func(a loop.ClientCall) bool { return a.CallID == c.CallID }); i < 0 ||
			m.world.start.Calls[i].Answer == nil || m.world.start.Calls[i].Revision != c.Revision {
			m.Fatalf("an answer to %s is taken that nobody gave", c.CallID)
		}
	}
	m.failedAt = len(m.world.start.Transcript)
	m.world.commit(e)
	m.check()
}

// reply returns a model's reply: texts, and calls of existing or unknown tools.
func (m *machine) reply(e loop.CallModel, whole bool) *loop.Reply {
	var words []string
	if m.chance(2, "text") {
		words = append(words, `"Some words, and more of them."`)
	}
	if e.Request.Output != nil && m.chance(2, "envelope") {
		words = []string{`{"completion":{"tool":"__finish__","input":{"answer":1}}}`}
	}
	names := []string{"nothing", agent.FinishTool}
	for _, t := range m.world.start.Agent.Tools {
		names = append(names, t.Name)
	}
	for range rapid.IntRange(0, 4).Draw(m.T, "calls") {
		name := rapid.SampledFrom(names).Draw(m.T, "tool")
		arguments := rapid.SampledFrom([]string{`{"q":1,"answer":1}`, `{"q":2,"answer":1}`, `{"q":"x"}`}).Draw(m.T, "arguments")
		words = append(words, fmt.Sprintf("call_%d=%s:%s", rapid.IntRange(0, 2).Draw(m.T, "id"), name, arguments))
	}
	r := m.planner.NewReply()
	for i, word := range words {
		var events []model.Event
		switch part := message([]string{word}).Parts[0].(type) {
		case agent.Text:
			events = []model.Event{model.ReasoningDelta{Text: "Hm."}, model.TextDelta{Text: part.Text}}
		case agent.ToolCall:
			events = []model.Event{model.CallStart{Index: i, ID: part.ID, Name: part.Name}, model.CallEnd{Index: i, Arguments: part.Arguments}}
			if !whole && m.chance(3, "open call") {
				events = events[:1]
			}
		}
		for _, event := range events {
			if _, err := r.Add(event); err != nil {
				m.Fatal(err)
			}
		}
	}
	if whole {
		if _, err := r.Add(model.Finish{Reason: rapid.SampledFrom([]model.FinishReason{model.FinishStop, model.FinishLength}).Draw(m.T, "finish")}); err != nil {
			m.Fatal(err)
		}
	}
	return r
}

// checkVisible checks the messages for the model.
func (m *machine) checkVisible(e loop.CallModel) {
	messages := e.Request.Messages
	last, user := agent.RoleAssistant, false
	for i, s := range messages {
		calls := s.Calls()
		if len(calls) > 0 {
			if i+1 == len(messages) || len(messages[i+1].Results()) != len(calls) {
				m.Fatalf("the calls of message %d are shown without their results", i)
			}
			for n, r := range messages[i+1].Results() {
				if r.CallID != calls[n].ID {
					m.Fatalf("result %d is of %s, want %s", n, r.CallID, calls[n].ID)
				}
			}
		}
		if s.Role != agent.RoleContext {
			if !user && s.Role != agent.RoleUser {
				m.Fatalf("the conversation begins with the %s", s.Role)
			}
			user, last = true, s.Role
		}
	}
	if last == agent.RoleAssistant {
		m.Fatalf("the model has the last word")
	}
	if m.world.start.Agent.Context.MaxTokens > 0 {
		return
	}
	// A planner must show the same as a new planner with the whole conversation.
	owner := loop.New(m.world.newStart())
	if _, asks := owner.Next().(loop.StepContext); asks {
		owner.Contexted(nil)
	}
	if fresh, ok := owner.Next().(loop.CallModel); !ok || !reflect.DeepEqual(fresh.Request.Messages, messages) {
		m.Fatalf("the model is shown\n%swant what a new owner shows\n%s", describe(e), describe(fresh))
	}
	for _, s := range m.world.start.Transcript { // nothing is missing
		failed := s.Metadata[agent.MetadataFailed] != ""
		if failed && slices.ContainsFunc(messages, func(o agent.Message) bool { return o.ID == s.ID }) {
			m.Fatalf("the message %s has failed and is shown: %s", s.ID, text(s))
		}
		if failed || s.Role == agent.RoleTool || strings.TrimSpace(s.Text()) == "" && s.Role == agent.RoleContext {
			continue
		}
		if !slices.ContainsFunc(messages, func(o agent.Message) bool { return o.ID == s.ID }) {
			m.Fatalf("the message %s is not shown: %s", s.ID, text(s))
		}
	}
}

// check checks the invariants of the conversation.
func (m *machine) check() {
	w := m.world
	open := map[string]bool{}
	for _, a := range w.start.Calls {
		open[a.CallID] = true
	}
	ids, calls, results := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range w.start.Transcript {
		if ids[s.ID] {
			m.Fatalf("two messages have the id %s", s.ID)
		}
		ids[s.ID] = true
		for _, c := range s.Calls() {
			if calls[c.ID] {
				m.Fatalf("two calls have the id %s", c.ID)
			}
			calls[c.ID] = true
		}
		for _, r := range s.Results() {
			if !calls[r.CallID] || results[r.CallID] {
				m.Fatalf("the call %s has a result before it was made, or two", r.CallID)
			}
			results[r.CallID] = true
			if open[r.CallID] {
				m.Fatalf("the call %s is answered and asked", r.CallID)
			}
		}
	}
	if w.outcome == nil || isSuspended(w.outcome.Status) {
		return
	}
	if w.outcome.Status == loop.StatusCompleted {
		for id := range calls {
			if !results[id] && w.entered[id] > 0 {
				m.Fatalf("the call %s was made and has no result", id)
			}
		}
	}
}
