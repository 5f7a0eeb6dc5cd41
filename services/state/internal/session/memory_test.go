package session_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/scenariotest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// TestTheRulesHoldInEveryScenario plays the scenarios against the rules alone: their rows are values in memory.
func TestTheRulesHoldInEveryScenario(t *testing.T) {
	t.Parallel()
	scenariotest.Run(t, "../scenariotest", func(*testing.T) scenariotest.World { return &memory{sessions: map[string]*rows{}} })
}

// memory is a world in memory. It keeps the contract of Need and Change as simply as possible.
type memory struct {
	sessions map[string]*rows
	ids      int
}

// rows are the rows of a session.
type rows struct {
	session     session.Session
	states      map[int64]stored // by version
	runs        []session.Run    // in the order in which they were inserted
	inputs      map[string]*session.RunInput
	messages    []session.Message
	checkpoints []session.Checkpoint
	calls       []session.Call
	children    map[string]session.Child
	journal     *session.Journal
	usage       int
}

// stored is a version of a custom state: a whole one, or writes since the base.
type stored struct{ whole, writes string }

// Do implements scenariotest.World.
func (m *memory) Do(command any) (any, error) {
	newID := func() string {
		m.ids++
		return fmt.Sprintf("next%04d", m.ids)
	}
	return scenariotest.Apply(command, newID, m.update)
}

func (m *memory) update(targets []session.Target, decide func([]*session.View) ([]*session.Change, error)) error {
	views := make([]*session.View, len(targets))
	for i, target := range targets {
		views[i] = m.view(target.SessionID, target.Need)
	}
	changes, err := decide(views)
	for i, change := range changes {
		if change != nil && err == nil {
			err = m.apply(targets[i].SessionID, change)
		}
	}
	return err
}

// Claim implements scenariotest.World.
func (m *memory) Claim(now session.Millis) (*scenariotest.Claimed, error) {
	var next *session.Run
	var of string
	for id, r := range m.sessions {
		for i := range r.runs {
			run := &r.runs[i]
			if run.Status == session.RunQueued && run.DueAt <= now && (next == nil || run.CreatedAt < next.CreatedAt) {
				next, of = run, id
			}
		}
	}
	if next == nil {
		return nil, nil //nolint:nilnil // nothing is queued
	}
	v := m.view(of, session.Need{RunID: next.RunID, Calls: true})
	change, err := session.Claim{ExecutorID: "executor", Now: now}.Decide(v)
	if err != nil {
		return nil, err
	}
	run := change.Runs[0]
	ref := session.ClaimRef{Key: v.Session.Key, RunID: run.RunID, Epoch: run.Epoch}
	return &scenariotest.Claimed{ClaimRef: ref, Stop: run.Stop, Calls: v.Calls}, m.apply(of, change)
}

// Rows implements scenariotest.World.
func (m *memory) Rows(id string, _ []string) (*scenariotest.Rows, error) {
	r := m.sessions[id]
	if r == nil {
		return nil, nil //nolint:nilnil // there is no such session
	}
	shown := &scenariotest.Rows{
		Session: r.session, Runs: slices.Clone(r.runs), Messages: r.messages, Checkpoints: r.checkpoints, Journal: r.journal, Usage: r.usage,
	}
	shown.Session.State = r.state(r.session.StateBase, r.session.StateVersion)
	slices.SortStableFunc(shown.Runs, func(a, b session.Run) int {
		return cmp.Or(cmp.Compare(uint32(a.Turn-1), uint32(b.Turn-1)), strings.Compare(a.RunID, b.RunID))
	})
	for _, run := range r.waiting() {
		shown.Waiting = append(shown.Waiting, run.RunID)
	}
	shown.Calls = slices.SortedFunc(slices.Values(r.calls), func(a, b session.Call) int { return strings.Compare(a.CallID, b.CallID) })
	shown.Children = r.sortedChildren()
	return shown, nil
}

// state returns a version of the custom state; empty if it was deleted.
func (r *rows) state(base, version int64) string {
	at, known := r.states[base]
	if !known {
		return ""
	}
	var writes []string
	for _, v := range slices.Sorted(maps.Keys(r.states)) {
		if v > base && v <= version {
			writes = append(writes, r.states[v].writes)
		}
	}
	if len(writes) == 0 {
		return at.whole
	}
	text, err := session.FoldState(at.whole, writes)
	if err != nil {
		panic(err)
	}
	return text
}

func (r *rows) run(matches func(*session.Run) bool) *session.Run {
	for i := range slices.Backward(r.runs) {
		if matches(&r.runs[i]) {
			run := r.runs[i]
			return &run
		}
	}
	return nil
}

func (r *rows) runByID(id string) *session.Run {
	return r.run(func(run *session.Run) bool { return run.RunID == id })
}

// waiting returns the waiting runs in the order of the queue.
func (r *rows) waiting() (waiting []session.Run) {
	for _, run := range r.runs {
		if run.Status == session.RunWaiting {
			waiting = append(waiting, run)
		}
	}
	slices.SortStableFunc(waiting, func(a, b session.Run) int { return cmp.Compare(a.QueuePlace, b.QueuePlace) })
	return waiting
}

func (r *rows) sortedChildren() (children []session.Child) {
	for _, id := range slices.Sorted(maps.Keys(r.children)) {
		children = append(children, r.children[id])
	}
	return children
}

// checkpoint returns the newest checkpoint that matches; nil for none.
func (r *rows) checkpoint(matches func(session.Checkpoint) bool) *session.Checkpoint {
	for _, c := range slices.Backward(r.checkpoints) {
		if matches(c) {
			return &c
		}
	}
	return nil
}

func (r *rows) messagesWith(matches func(session.Message) bool) (found []session.Message) {
	for _, message := range r.messages {
		if matches(message) {
			found = append(found, message)
		}
	}
	return found
}

func (r *rows) callsWith(matches func(session.Call) bool) (found []session.Call) {
	for _, call := range r.calls {
		if matches(call) {
			found = append(found, call)
		}
	}
	slices.SortFunc(found, func(a, b session.Call) int { return strings.Compare(a.CallID, b.CallID) })
	return found
}

// view returns what need selects, and nothing else.
func (m *memory) view(id string, need session.Need) *session.View {
	v := &session.View{ExecutorRegistered: true}
	if need.AgentType == "support" || need.AgentType == "sales" {
		v.Agent = &session.Agent{Type: need.AgentType}
	}
	r := m.sessions[id]
	if r == nil {
		return v
	}
	s := r.session
	v.Session = &s
	if need.Journal {
		v.Journal = r.journal
	}
	s.State = ""
	if need.State || need.StateIfWritten && v.Journal.HasStateWrites() {
		s.State = r.state(s.StateBase, s.StateVersion)
	}
	if need.RunID != "" {
		v.Run = r.runByID(need.RunID)
	}
	if need.RequestKey != "" {
		v.KeyedRun = r.run(func(run *session.Run) bool { return run.RequestKey == need.RequestKey })
	}
	if need.Current {
		v.Current = r.runByID(s.CurrentRunID)
	}
	if need.Live {
		v.Live = r.run(func(run *session.Run) bool { return run.Status.Live() })
	}
	if need.OwnAgent {
		v.OwnAgent = &session.Agent{Type: s.AgentType}
	}
	switch {
	case need.CheckpointID != "":
		v.Checkpoint = r.checkpoint(func(c session.Checkpoint) bool { return c.ID == need.CheckpointID })
		if v.Checkpoint != nil {
			v.CheckpointState = r.state(v.Checkpoint.StateBase, v.Checkpoint.StateVersion)
		}
	case need.CheckpointBelow > 0:
		v.Checkpoint = r.checkpoint(func(c session.Checkpoint) bool { return c.MessageCount < need.CheckpointBelow })
	case need.CheckpointStep != 0 && need.CheckpointStep == s.StepCount:
		v.Checkpoint = r.checkpoint(func(c session.Checkpoint) bool { return c.Step == need.CheckpointStep })
	}
	for _, message := range r.messages {
		if slices.Contains(need.MessageIDs, message.ID) {
			v.TakenIDs, v.TakenOrdinals = append(v.TakenIDs, message.ID), append(v.TakenOrdinals, message.Ordinal)
		}
	}
	if need.Calls {
		v.Calls = r.callsWith(func(c session.Call) bool { return c.ConsumedAt == 0 || c.LateAt > 0 && !c.LateReported })
		slices.SortStableFunc(v.Calls, func(a, b session.Call) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	}
	for _, of := range m.sessions {
		if of.session.RootID != s.RootID {
			continue
		}
		v.NamedCalls = append(v.NamedCalls, of.callsWith(func(c session.Call) bool { return slices.Contains(need.CallIDs, c.CallID) })...)
		if of.session.ParentID != "" && !of.session.Status.Terminal() && v.LiveBelow < need.LiveBelow {
			v.LiveBelow++
		}
	}
	slices.SortFunc(v.NamedCalls, func(a, b session.Call) int { return strings.Compare(a.CallID, b.CallID) })
	if need.Children {
		v.Children = r.sortedChildren()
	}
	if need.Waiting {
		for _, run := range r.waiting() {
			v.Waiting = append(v.Waiting, session.WaitingRun{Run: run, MessageIDs: r.inputs[run.RunID].MessageIDs()})
			v.WaitingInput = cmp.Or(v.WaitingInput, r.inputs[run.RunID])
		}
	}
	if need.Undo && s.CurrentRunID != "" {
		r.fillUndo(v)
	}
	if need.RewindToMessage != "" {
		r.fillRewindPoint(v, need.RewindToMessage)
	}
	if need.AnswerID != "" {
		r.fillAnswer(v, need.AnswerID)
	}
	if need.AskedFrom != 0 {
		v.Asked = []session.Asked{}
		for _, message := range r.messages {
			run := r.runByID(message.RunID)
			asked := message.Role == "user" && message.Step == 0 && run != nil
			if asked && message.Ordinal >= need.AskedFrom && len(v.Asked) < session.MaxQuestions {
				v.Asked = append(v.Asked, session.Asked{Message: message, StartedBy: run.StartedBy})
			}
		}
	}
	if need.FailedStep && s.CurrentRunID != "" {
		r.fillFailedStep(v)
	}
	return v
}

// ofConsumingStep reports whether the message is a result of a step that has consumed an answer to a call of a step up to
// before.
func (r *rows) ofConsumingStep(message session.Message, before int32) bool {
	return message.Role == "tool" && slices.ContainsFunc(r.calls, func(c session.Call) bool {
		return c.ConsumedAt > 0 && c.ConsumedStep == message.Step && c.Step <= before
	})
}

func (r *rows) fillUndo(v *session.View) {
	run := r.runByID(v.Session.CurrentRunID)
	before := v.Session.StepBefore(run)
	v.FormerCheckpoint = r.checkpoint(func(c session.Checkpoint) bool { return c.Step <= before })
	v.KeptMessages = r.messagesWith(func(message session.Message) bool {
		return message.Ordinal >= run.StartMessageCount &&
			(message.RunID != run.RunID || message.Role == "user" && message.Step == 0 || r.ofConsumingStep(message, before))
	})
	v.ReportedLate = r.callsWith(func(c session.Call) bool { return c.LateReportedStep > before })
	if run.StartStateVersion > 0 {
		v.StartState = r.state(run.StartStateBase, run.StartStateVersion)
	}
}

func (r *rows) fillRewindPoint(v *session.View, messageID string) {
	found := r.messagesWith(func(message session.Message) bool { return message.ID == messageID })
	if len(found) == 0 {
		return
	}
	b := &session.RewindPoint{Message: found[0], Run: r.runByID(found[0].RunID)}
	for _, message := range r.messages[:b.Message.Ordinal] {
		if message.Step > 0 {
			b.StepBefore = message.Step
		}
	}
	b.Checkpoint = r.checkpoint(func(c session.Checkpoint) bool {
		known := b.Run == nil || b.Run.StartStateVersion == 0 || c.StateVersion <= b.Run.StartStateVersion
		return c.MessageCount <= b.Message.Ordinal && known
	})
	if version, base, known := b.StateOrigin(); known {
		b.State = r.state(base, version)
	}
	b.Results = r.messagesWith(func(message session.Message) bool {
		return message.Ordinal > b.Message.Ordinal && r.ofConsumingStep(message, b.StepBefore)
	})
	b.ReportedLate = r.callsWith(func(c session.Call) bool { return c.LateReportedStep > b.StepBefore && c.Step <= b.StepBefore })
	v.RewindPoint = b
}

func (r *rows) fillAnswer(v *session.View, answerID string) {
	v.Answer = &session.AnswerRun{}
	run := r.run(func(run *session.Run) bool { return run.MessageID == answerID && run.Turn > 0 })
	if run == nil {
		return
	}
	v.Answer.Run, v.Answer.QuestionInPlace = run, true
	behind := len(r.messages) // the first message that is not the run's own
	for _, message := range slices.Backward(r.messages) {
		if message.Ordinal == run.StartMessageCount {
			v.Answer.QuestionInPlace = message.RunID == run.RunID
		}
		if message.Ordinal >= run.StartMessageCount && (message.RunID != run.RunID || message.Step > 0) {
			behind = int(message.Ordinal)
		}
	}
	for _, message := range slices.Backward(r.messages[:behind]) {
		if message.Role == "user" && message.Step == 0 && len(v.Answer.Questions) < session.MaxQuestions {
			v.Answer.Questions = append(v.Answer.Questions, message)
		}
	}
}

func (r *rows) fillFailedStep(v *session.View) {
	run := r.runByID(v.Session.CurrentRunID)
	before := v.Session.StepBefore(run)
	f := &session.FailedStep{}
	f.Checkpoint = r.checkpoint(func(c session.Checkpoint) bool {
		return c.Step > before && c.RunID == run.RunID && c.Status != session.Failed
	})
	if f.Checkpoint != nil {
		f.State = r.state(f.Checkpoint.StateBase, f.Checkpoint.StateVersion)
	}
	if run.FinishStep > 0 {
		f.Messages = r.messagesWith(func(message session.Message) bool {
			return message.Ordinal >= run.StartMessageCount && message.RunID == run.RunID && message.Step == run.FinishStep
		})
	}
	v.Failed = f
}

// apply writes a change.
func (m *memory) apply(id string, c *session.Change) error {
	if c.Delete {
		delete(m.sessions, id)
		return nil
	}
	if c.Created {
		m.sessions[id] = &rows{states: map[int64]stored{}, inputs: map[string]*session.RunInput{}, children: map[string]session.Child{}}
	}
	r := m.sessions[id]
	if c.Session != nil {
		r.session = *c.Session
	}
	if c.Rewind != nil {
		r.rewind(c.Rewind)
	}
	if c.Copy != nil {
		r.messages = slices.Clone(m.sessions[c.Copy.From].messages[:c.Copy.Messages])
	}
	switch {
	case c.NewState:
		r.states[c.Session.StateVersion] = stored{whole: c.Session.State}
	case len(c.StateWrite) > 0:
		writes, err := json.Marshal(c.StateWrite)
		if err != nil {
			return err
		}
		r.states[c.Session.StateVersion] = stored{writes: string(writes)}
	}
	updated := slices.Clone(c.Runs)
	if c.Dequeued != nil {
		updated = append(updated, *c.Dequeued)
	}
	for _, run := range updated {
		i := slices.IndexFunc(r.runs, func(known session.Run) bool { return known.RunID == run.RunID })
		if i < 0 {
			return fmt.Errorf("run %q does not exist", run.RunID)
		}
		r.runs[i] = run
	}
	if c.NewRun != nil {
		r.runs = append(r.runs, *c.NewRun)
		r.inputs[c.NewRun.RunID] = c.WaitingInput
	}
	for _, run := range c.DropInputs {
		delete(r.inputs, run)
	}
	for _, message := range c.Messages {
		if message.Ordinal != int64(len(r.messages)) {
			return fmt.Errorf("message %q at %d, behind %d messages", message.ID, message.Ordinal, len(r.messages))
		}
		r.messages = append(r.messages, message)
	}
	r.writeJournal(c)
	if c.Checkpoint != nil {
		r.checkpoints = append(r.checkpoints, *c.Checkpoint)
	}
	r.usage += len(c.Usage)
	r.calls = slices.DeleteFunc(r.calls, func(call session.Call) bool { return slices.Contains(c.DropCalls, call.CallID) })
	r.calls = append(r.calls, c.NewCalls...)
	for _, call := range c.Calls {
		i := slices.IndexFunc(r.calls, func(known session.Call) bool { return known.CallID == call.CallID })
		if i < 0 {
			return fmt.Errorf("call %q does not exist", call.CallID)
		}
		r.calls[i] = call
	}
	for _, child := range c.Children {
		r.children[child.SessionID] = child
	}
	return nil
}

// rewind deletes the end of the session. It keeps the lists of earlier views.
func (r *rows) rewind(to *session.Rewind) {
	r.messages = slices.Clone(r.messages[:min(to.Messages, int64(len(r.messages)))])
	r.checkpoints = slices.DeleteFunc(slices.Clone(r.checkpoints), func(c session.Checkpoint) bool {
		return c.MessageCount > to.Messages || to.StateVersion > 0 && c.StateVersion > to.StateVersion ||
			to.RunID != "" && c.RunID == to.RunID || to.Step > 0 && c.Step > to.Step
	})
	if to.StateVersion > 0 {
		maps.DeleteFunc(r.states, func(version int64, _ stored) bool { return version > to.StateVersion })
	}
	if to.CallsFrom > 0 {
		r.calls = slices.DeleteFunc(slices.Clone(r.calls), func(c session.Call) bool { return c.Step >= to.CallsFrom })
	}
}

func (r *rows) writeJournal(c *session.Change) {
	if c.Plan != nil {
		plan := *c.Plan
		plan.Results = nil
		r.journal = &plan
	}
	if c.Result != nil {
		more := *r.journal
		more.Results = append(slices.Clone(more.Results), *c.Result)
		r.journal = &more
	}
	if c.ClearJournal {
		r.journal = nil
	}
}
