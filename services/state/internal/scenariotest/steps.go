package scenariotest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// limits are the limits of all commands.
var limits = session.Limits{State: 1000, Journal: 10_000, Waiting: 3}

// bodies reads the bodies of messages as plain texts. A step with a message of a tool has run a tool.
var bodies = session.BodyFuncs{
	SameContent: func(a, b session.Message) (bool, error) {
		return a.Role == b.Role && string(a.Body) == string(b.Body), nil
	},
	IsVisible: func(m session.Message) (bool, error) { return string(m.Body) != "hidden", nil },
	MoveToRun: func(m session.Message, runID string) (session.Message, error) { m.RunID = runID; return m, nil },
	RanTool: func(step []session.Message) (bool, error) {
		return slices.ContainsFunc(step, func(m session.Message) bool { return m.Role == "tool" }), nil
	},
}

// do runs a step.
func (s *scene) do(a step) (string, error) {
	key := s.key(cmp.Or(a.option("in"), home))
	switch a.word {
	case "wait":
		ms, err := strconv.Atoi(a.args[0])
		s.now += session.Millis(ms)
		return "ok", err
	case "send", "edit", "regenerate", "resume", "retry", "branch":
		return s.start(key, a)
	case "claim":
		return s.claim(a.option("in"))
	case "step", "complete", "fail", "interrupt", "suspend", "await", "begin":
		return s.commit(key, a)
	case "repeat":
		return s.answerOfCommit(s.world.Do(s.commits[key.SessionID]))
	case "end":
		c := session.Finish{ClaimRef: s.claimed(key, a), Outcome: outcome(session.RunStatus(a.args[0]), a), Now: s.now}
		return ok(s.world.Do(c))
	case "plan":
		c := session.RecordPlan{
			ClaimRef: s.claimed(key, a), Step: s.stepNumber(key, a), Body: []byte(cmp.Or(a.text, "plan")), CallIDs: a.args,
			Usage: []session.Usage{{Kind: session.UsageTokens, Source: "agent", Model: "m", TotalTokens: 5}}, Ops: writes(a), Limits: limits,
		}
		return ok(s.world.Do(c))
	case "result":
		result := session.Result{CallID: a.args[0], Body: []byte(a.text), Ops: writes(a)}
		repeated, err := s.world.Do(session.RecordResult{ClaimRef: s.claimed(key, a), Step: s.stepNumber(key, a), Result: result, Limits: limits})
		if repeated == true {
			return "the call has a result", err
		}
		return ok(nil, err)
	case "release":
		return ok(s.world.Do(session.Release{ClaimRef: s.claimed(key, a), Now: s.now}))
	case "answer", "submit":
		return s.answer(key, a)
	case "time-out":
		_, err := s.world.Do(session.TimeoutCalls{
			Key: key, Response: func(session.Call) []byte { return []byte("timeout") }, NewRunID: s.newID(), Now: s.now,
		})
		return ok(nil, err)
	case "stop":
		c := session.RequestStop{Key: key, RunID: s.runID(a.option("run")), Kind: session.StopKind(a.args[0]), Reason: a.text, Now: s.now}
		answer, err := s.world.Do(c)
		if err != nil {
			return "", err
		}
		stopped := answer.(session.Stopped)
		return fmt.Sprintf("%s, %s", s.name(stopped.RunID), stopped.Effect), nil
	case "create":
		s.mention(key.SessionID)
		c := session.Create{Key: key, AgentType: cmp.Or(a.option("agent"), agent), State: "{}", Now: s.now, MaxTree: a.number("most")}
		c.ParentID, c.Child = a.option("below"), session.Child{CallID: a.option("call"), Mode: session.ChildMode(a.option("mode"))}
		return ok(s.world.Do(c))
	case "record": // a child
		child := session.Child{SessionID: a.args[0], AgentType: agent, Location: session.Location(a.option("at"))}
		child.Status = session.Status(cmp.Or(a.option("status"), string(session.Active)))
		return ok(s.world.Do(session.PutChild{Key: key, Child: child, Now: s.now}))
	case "copy":
		s.mention(a.option("to"))
		return ok(s.world.Do(session.Branch{From: key, CheckpointID: s.checkpoint(key, a), Key: s.key(a.option("to")), Now: s.now}))
	case "append":
		return ok(s.world.Do(session.AppendMessages{Key: key, Messages: s.messages("user", "", a), Now: s.now}))
	case "truncate":
		count, err := strconv.ParseInt(a.args[0], 10, 64)
		if err != nil {
			return "", err
		}
		return ok(s.world.Do(session.Truncate{Key: key, Messages: count, Now: s.now}))
	case "rewind":
		return ok(s.world.Do(session.RewindTo{Key: key, CheckpointID: s.checkpoint(key, a), Now: s.now}))
	case "merge":
		return ok(s.world.Do(session.MergeState{Key: key, Ops: writes(a), Limits: limits, Now: s.now}))
	case "save":
		return ok(s.world.Do(session.SaveState{Key: key, State: a.args[0], Limits: limits, Now: s.now}))
	case "set":
		return s.setStatus(key, a)
	case "expire":
		answer, err := s.world.Do(session.Expire{Key: key, Now: s.now})
		return fmt.Sprint(answer), err
	case "expires":
		at := s.now + session.Millis(a.number("after"))
		return ok(s.world.Do(session.UpdateSession{Key: key, ExpiresAt: &at, Now: s.now}))
	case "delete":
		return ok(s.world.Do(session.DeleteSession{Key: key}))
	}
	return "", fmt.Errorf("there is no step %q", a.word)
}

// ok is the answer of a step that tells nothing but that it was done.
func ok(_ any, err error) (string, error) { return "ok", err }

func (s *scene) key(sessionID string) session.Key {
	return session.Key{Tenant: Tenant, SessionID: sessionID}
}

// mention has the rows of a session shown from now on.
func (s *scene) mention(sessionID string) {
	if !slices.Contains(s.sessions, sessionID) {
		s.sessions = append(s.sessions, sessionID)
	}
}

// number returns the number in an option; 0 if it is not given.
func (a step) number(name string) int {
	n, _ := strconv.Atoi(a.option(name))
	return n
}

// writes returns the writes to the custom state: set=KEY:JSON and add=KEY:JSON.
func writes(a step) (ops []session.StateOp) {
	for _, kind := range []session.OpKind{session.OpReplace, session.OpAppend} {
		for _, write := range a.options[map[session.OpKind]string{session.OpReplace: "set", session.OpAppend: "add"}[kind]] {
			key, value, _ := strings.Cut(write, ":")
			ops = append(ops, session.StateOp{Key: key, Kind: kind, Value: value})
		}
	}
	return ops
}

// messages returns messages with the ids of the arguments and the text of the step.
func (s *scene) messages(role, runID string, a step) (messages []session.Message) {
	for _, id := range a.args {
		messages = append(messages, session.Message{ID: id, Role: role, RunID: runID, CreatedAt: s.now, Body: []byte(cmp.Or(a.text, "hello"))})
	}
	return messages
}

// checkpoint returns the id of the checkpoint of the option step.
func (s *scene) checkpoint(key session.Key, a step) string {
	return cmp.Or(s.checkpoints[[2]string{key.SessionID, a.option("step")}], a.option("step"))
}

// answersTo returns client's answers to calls. An id may be followed by a colon and the kind of the answer.
func (s *scene) answersTo(ids []string, text string) (answers []session.Answer) {
	for _, id := range ids {
		id, kind, _ := strings.Cut(id, ":")
		answer := session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte(cmp.Or(text, "answer to "+id))}
		if kind != "" {
			answer.Kind = session.CallKind(kind)
		}
		if answer.Kind == session.Approval {
			answer.ApprovalID = "approval of " + id
		}
		answers = append(answers, answer)
	}
	return answers
}

// start begins a run.
func (s *scene) start(key session.Key, a step) (string, error) {
	c := session.RunRequest{
		Key: key, AgentType: cmp.Or(a.option("agent"), agent), RunID: s.newID(), MessageID: s.newID(), Now: s.now, Limits: limits, Bodies: bodies,
		RequestKey: a.option("key"), OnBusy: session.BusyPolicy(a.option("busy")), DefaultOnBusy: session.BusyPolicy(a.option("default")),
		LastSeenRunID: s.runID(a.option("seen")), EarlierIDs: a.list("has"), Answers: s.answersTo(a.list("answers"), ""),
	}
	if c.RequestKey != "" {
		c.RequestHash = []byte(cmp.Or(a.option("hash"), "hash"))
	}
	for _, status := range a.list("expect") {
		c.Expect.Statuses = append(c.Expect.Statuses, session.Status(status))
	}
	if c.AgentType == "none" {
		c.AgentType = ""
	}
	if a.option("open") == "abandon" {
		c.Abandon = abandoned
	}
	if a.option("deadline") != "" {
		c.DeadlineAt = s.now + session.Millis(a.number("deadline"))
	}
	if a.option("state-limit") != "" {
		c.Limits.State = a.number("state-limit")
	}
	addition := session.Addition{Ops: writes(a)}
	for _, id := range a.list("append") {
		addition.Append = append(addition.Append, session.Message{ID: id, Role: "system", CreatedAt: s.now, Body: []byte("note")})
	}
	target := ""
	if (a.word == "edit" || a.word == "regenerate") && len(a.args) > 0 {
		target = a.args[0]
		a.args = a.args[1:]
	}
	c.Messages = s.messages("user", c.RunID, a)
	send := session.Send{RunRequest: c, Missing: session.MissingPolicy(a.option("missing"))}
	send.NewSession = session.Create{State: "{}", UserID: a.option("user")}
	for i, id := range a.list("history") { // a user's message belongs to the run, whose state is its own
		message := session.Message{ID: id, Role: "user", RunID: c.RunID, CreatedAt: s.now, Body: []byte("hello")}
		if i%2 == 1 {
			message.Role, message.RunID = "assistant", ""
		}
		send.History = append(send.History, message)
	}
	if parent := a.option("below"); parent != "" {
		send.NewSession.ParentID, send.NewSession.Child.CallID = parent, cmp.Or(a.option("call"), "call-"+key.SessionID)
		send.NewSession.Child.Mode = session.ChildMode(a.option("mode"))
	}
	s.mention(key.SessionID)
	var command any
	switch a.word {
	case "send":
		command = send
	case "edit":
		command = session.Edit{Send: send, Target: target}
	case "regenerate":
		command = session.Regenerate{Send: send, Target: target}
	case "resume":
		command = session.Resume{RunRequest: c, CheckpointID: s.checkpoint(key, a), Addition: addition}
	case "retry":
		command = session.Retry{RunRequest: c, Addition: addition}
	case "branch":
		c.Key = s.key(a.option("to"))
		s.mention(c.SessionID)
		command = session.BranchAndStart{RunRequest: c, From: key, CheckpointID: s.checkpoint(key, a), Addition: addition}
	}
	answer, err := s.world.Do(command)
	if err != nil {
		return "", err
	}
	return s.started(answer.(session.Started)), nil
}

func (s *scene) started(of session.Started) string {
	what := "begins"
	switch {
	case of.Repeated && of.Waiting:
		what = "is repeated and waits"
	case of.Repeated:
		what = "is repeated"
	case of.Waiting:
		what = "waits"
	case of.Created:
		what = "begins in a new session"
	}
	if len(of.Abandoned) > 0 {
		what += ", abandons " + strings.Join(of.Abandoned, " ")
	}
	if of.Removed > 0 {
		what += fmt.Sprintf(", removes %d messages", of.Removed)
	}
	if of.Missing > 0 {
		what += fmt.Sprintf(", the client lacks %d messages", of.Missing)
	}
	return s.name(of.Run.RunID) + " " + what
}

// claim claims the next queued run, and tells what its executor is told. If a session is named, it claims the runs that
// were queued before the session's, too.
func (s *scene) claim(sessionID string) (string, error) {
	for {
		next, early := s.early[sessionID]
		delete(s.early, sessionID)
		if !early {
			claimed, err := s.world.Claim(s.now)
			if err != nil || claimed == nil {
				return "nothing is queued", err
			}
			next = *claimed
		}
		if sessionID != "" && next.SessionID != sessionID {
			s.early[next.SessionID] = next
			continue
		}
		s.claims[next.SessionID] = next
		return s.describeClaim(next), nil
	}
}

func (s *scene) describeClaim(c Claimed) string {
	text := s.name(c.RunID) + " is claimed"
	if c.Stop != nil {
		text += fmt.Sprintf(" with a stop to %s", c.Stop.Kind)
	}
	for i, call := range c.Calls {
		if i == 0 {
			text += " with calls"
		}
		text += " " + call.CallID
	}
	return text
}

// claimed returns the newest claim of the session. The option by names another run.
func (s *scene) claimed(key session.Key, a step) session.ClaimRef {
	ref := s.claims[key.SessionID].ClaimRef
	ref.Key = key
	if by := a.option("by"); by != "" {
		ref.RunID = s.runID(by)
	}
	return ref
}

// stepNumber returns the number of the step in flight, or the one in the option number.
func (s *scene) stepNumber(key session.Key, a step) int32 {
	if a.option("number") != "" {
		return int32(a.number("number"))
	}
	rows, err := s.world.Rows(key.SessionID, nil)
	if err != nil || rows == nil {
		return 1
	}
	return rows.Session.StepCount + 1
}

// commit commits a step. Its message is named after the step, such as step-1.
func (s *scene) commit(key session.Key, a step) (string, error) {
	n := s.stepNumber(key, a)
	ref := s.claimed(key, a)
	c := session.Commit{
		ClaimRef: ref, Step: n, CheckpointID: s.newID(), Limits: limits, Now: s.now,
		Ops: writes(a), ExpireAfter: session.Millis(a.number("expire")), LateReported: a.list("report"),
	}
	add := func(id, role, text string) {
		c.Messages = append(c.Messages, session.Message{ID: id, Role: role, RunID: ref.RunID, Step: n, CreatedAt: s.now, Body: []byte(text)})
	}
	if a.option("message") != "none" {
		add(cmp.Or(a.option("message"), fmt.Sprintf("step-%d", n)), cmp.Or(a.option("role"), "assistant"), "answer")
	}
	if id := a.option("result"); id != "" {
		add(id, "tool", "done")
	}
	if id := a.option("note"); id != "" {
		add(id, "user", "note")
	}
	for _, id := range a.list("consume") {
		id, revision, _ := strings.Cut(id, ":")
		at, _ := strconv.Atoi(cmp.Or(revision, "1"))
		c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: int32(at)})
	}
	status := map[string]session.RunStatus{
		"complete": session.RunCompleted, "fail": session.RunFailed, "interrupt": session.RunInterrupted,
		"suspend": session.RunSuspendedClientTool, "await": session.RunSuspendedAwaitingChildren, "begin": session.RunSuspendedAwaitingChildren,
	}[a.word]
	if status != "" {
		o := outcome(status, a)
		c.Outcome = &o
	}
	switch a.word {
	case "step", "suspend":
		for _, id := range a.args {
			c.Calls = append(c.Calls, s.clientCall(id, a))
		}
	case "await", "begin":
		for _, id := range a.args {
			c.Calls = append(c.Calls, s.childCall(id, a))
			if a.word == "begin" {
				c.NewChildren = append(c.NewChildren, s.newChild(id, a))
			}
		}
	}
	if status == session.RunSuspendedClientTool || status == session.RunSuspendedAwaitingChildren {
		c.Suspension = &session.Suspension{StepID: "the-step"}
	}
	s.commits[key.SessionID] = c
	return s.answerOfCommit(s.world.Do(c))
}

// clientCall returns a call to a client. An id may be followed by a colon and the kind of the call.
func (s *scene) clientCall(id string, a step) session.Call {
	id, kind, _ := strings.Cut(id, ":")
	s.mentionCall(id)
	call := session.Call{CallID: id, StepID: "the-step", ToolName: "ask", Kind: session.ClientTool, Input: "{}"}
	if kind == string(session.Approval) {
		call.Kind = session.Approval
		call.ApprovalID = "approval of " + id
	}
	if a.option("deadline") != "" && (a.option("late") == "" || slices.Contains(a.list("late"), id)) {
		call.DeadlineAt = s.now + session.Millis(a.number("deadline"))
	}
	if slices.Contains(a.list("stash"), id) {
		call.Stash = []byte("a message")
	}
	return call
}

func (s *scene) childCall(child string, a step) session.Call {
	id := "call-" + child
	s.mentionCall(id)
	call := session.Call{CallID: id, StepID: "the-step", ToolName: "delegate", Kind: session.SubAgent, Input: "{}"}
	if a.option("deadline") != "" {
		call.DeadlineAt = s.now + session.Millis(a.number("deadline"))
	}
	return call
}

func (s *scene) newChild(id string, a step) session.NewChild {
	s.mention(id)
	run := s.newID()
	return session.NewChild{
		SessionID: id, AgentType: agent, CallID: "call-" + id, Mode: session.ChildMode(cmp.Or(a.option("mode"), string(session.Ephemeral))),
		RunID: run, MessageID: s.newID(), State: "{}",
		Messages: []session.Message{{ID: "task-of-" + id, Role: "user", RunID: run, Body: []byte("hello")}},
	}
}

func (s *scene) mentionCall(id string) {
	if !slices.Contains(s.calls, id) {
		s.calls = append(s.calls, id)
	}
}

func outcome(status session.RunStatus, a step) session.Outcome {
	o := session.Outcome{Status: status}
	if status == session.RunFailed {
		o.Failure = &session.Failure{Error: cmp.Or(a.text, "it broke"), Code: a.option("code")}
	}
	return o
}

func (s *scene) answerOfCommit(answer any, err error) (string, error) {
	if err != nil {
		return "", err
	}
	checkpoint := answer.(session.Checkpoint)
	text := fmt.Sprintf("step %d", checkpoint.Step)
	if len(checkpoint.Warnings) > 0 {
		text += ", " + strings.Join(checkpoint.Warnings, ", ")
	}
	return text, nil
}

// answer answers calls: submit answers one, answer any number in one command.
func (s *scene) answer(key session.Key, a step) (string, error) {
	answers := s.answersTo(a.args, a.text)
	if id := a.option("approval"); id != "" {
		answers[0].ApprovalID = id
	}
	var list []session.Submitted
	if a.word == "submit" {
		one := answers[0]
		answer, err := s.world.Do(session.Submit{
			Key: key, CallID: one.CallID, Kind: one.Kind, ApprovalID: one.ApprovalID, Response: one.Response, NewRunID: s.newID(), Now: s.now,
		})
		if err != nil {
			return "", err
		}
		list = append(list, answer.(session.Submitted))
	} else {
		policy := map[string]session.ResumePolicy{"own": session.ResumeOwnCalls, "all": session.ResumeAllCalls}[a.option("resume")]
		answer, err := s.world.Do(session.SubmitAll{Key: key, Answers: answers, NewRunID: s.newID(), Resume: policy, Now: s.now})
		if err != nil {
			return "", err
		}
		list = answer.([]session.Submitted)
	}
	var texts []string
	for i, one := range list {
		texts = append(texts, answers[i].CallID+" "+string(one.Status))
	}
	if len(list) == 0 {
		return "ok", nil
	}
	how := map[session.Continuation]string{
		session.NoContinuation: "nothing continues", session.ContinueNewRun: s.name(list[0].RunID) + " begins",
		session.ContinueLiveRun: s.name(list[0].RunID) + " goes on", session.CallerResumes: "a resume continues",
	}[list[0].Continuation]
	return strings.Join(texts, ", ") + "; " + how, nil
}

func (s *scene) setStatus(key session.Key, a step) (string, error) {
	c := session.SetStatus{Key: key, Status: session.Status(a.args[0]), Now: s.now}
	for _, status := range a.list("expect") {
		c.Expected = append(c.Expected, session.Status(status))
	}
	switch c.Status {
	case session.Failed:
		c.Failure = &session.Failure{Error: cmp.Or(a.text, "no")}
	case session.Interrupted:
		c.Reason = a.text
	}
	answer, err := s.world.Do(c)
	if err != nil {
		return "", err
	}
	if set := answer.(session.StatusSet); !set.OK {
		return fmt.Sprintf("the session is %s", set.Status), nil
	}
	return "ok", nil
}
