package worker_test

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// live reports whether the run has not ended.
func live(r *statev1.Run) bool {
	return r.GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED || r.GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING
}

// startRun sends a message of a user, and returns the id of the run that answers it.
func (p *system) startRun(sessionID, agentType, text string) string {
	p.t.Helper()
	return p.post(&statev1.StartRunRequest{SessionId: sessionID, AgentType: agentType, Messages: userMessages(text)})
}

func userMessages(text string) []*eventv1.Message {
	return []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}}}}
}

// post starts a run, and returns its id.
func (p *system) post(r *statev1.StartRunRequest) string {
	p.t.Helper()
	p.ready()
	p.announce(r.GetAgentType())
	p.follow(r.GetSessionId())
	r.Tenant, r.Traceparent = tenant, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	answer, err := statev1.NewRunServiceClient(p.stateAPI).StartRun(p.context(), r)
	must(p.t, err)
	if answer.GetSessionCreated() {
		p.mu.Lock()
		p.begun[r.GetSessionId()] = answer.GetSession().GetCustomState()
		p.mu.Unlock()
	}
	return answer.GetRun().GetRunId()
}

// announce announces the agent to the state service, which refuses runs of unknown agents.
func (p *system) announce(agentType string) {
	p.t.Helper()
	p.mu.Lock()
	known := p.known[agentType] || agentType == ""
	p.known[agentType] = true
	p.mu.Unlock()
	if known {
		return
	}
	claims, err := statev1.NewWorkServiceClient(p.stateAPI).ClaimRuns(p.context())
	must(p.t, err)
	must(p.t, claims.Send(&statev1.ClaimRunsRequest{ExecutorId: "registrar", Agents: []*statev1.Agent{{AgentType: agentType}}}))
	must(p.t, claims.CloseSend())
	_, _ = claims.Recv() // io.EOF, once the announcement is stored
}

// resume resumes a stopped session, and returns the id of the run.
func (p *system) resume(sessionID string) string {
	p.t.Helper()
	return p.post(&statev1.StartRunRequest{SessionId: sessionID, Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}})
}

// answer answers a call of the session s.
func (p *system) answer(callID string, answer *statev1.CallAnswer) {
	p.t.Helper()
	if a := answer.GetApproval(); a != nil {
		a.ApprovalId = p.openedCall(callID).GetApprovalId()
	}
	_, err := statev1.NewCallServiceClient(p.stateAPI).SubmitCall(p.context(), &statev1.SubmitCallRequest{
		Tenant: tenant, SessionId: "s", ToolCallId: callID, Answer: answer,
	})
	must(p.t, err)
}

func result(json string) *statev1.CallAnswer {
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: json}, Source: statev1.AnswerSource_ANSWER_SOURCE_CLIENT}
}

func approval(yes bool, reason string) *statev1.CallAnswer {
	return &statev1.CallAnswer{
		Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{Approved: yes, Reason: reason}}, Source: statev1.AnswerSource_ANSWER_SOURCE_CLIENT,
	}
}

// stopRun requests that the run of the session s ends early. Without an id it stops the session.
func (p *system) stopRun(runID string, kind statev1.StopKind, reason string) {
	p.t.Helper()
	_, err := statev1.NewRunServiceClient(p.stateAPI).RequestStop(p.context(), &statev1.RequestStopRequest{
		Tenant: tenant, SessionId: "s", RunId: runID, Kind: kind, Reason: reason,
	})
	must(p.t, err)
}

func (p *system) sessionsAPI() statev1.SessionServiceClient {
	return statev1.NewSessionServiceClient(p.stateAPI)
}

func (p *system) session(sessionID string) *statev1.GetSessionResponse {
	p.t.Helper()
	answer, err := p.sessionsAPI().GetSession(p.context(), &statev1.GetSessionRequest{Tenant: tenant, SessionId: sessionID})
	must(p.t, err)
	return answer
}

// current returns the id of the newest run of the session s.
func (p *system) current() string {
	p.t.Helper()
	return p.session("s").GetCurrentRun().GetRunId()
}

// run returns a run of any session of the test.
func (p *system) run(runID string) *statev1.Run {
	p.t.Helper()
	var err error
	for sessionID := range p.logs.sessionIDs() {
		var answer *statev1.GetRunResponse
		answer, err = statev1.NewRunServiceClient(p.stateAPI).GetRun(p.context(), &statev1.GetRunRequest{Tenant: tenant, SessionId: sessionID, RunId: runID})
		if err == nil {
			return answer.GetRun()
		}
	}
	p.t.Fatalf("run %s: %v", runID, err)
	return nil
}

// runsOf returns the runs of the session, the oldest first.
func (p *system) runsOf(sessionID string) []*statev1.Run {
	p.t.Helper()
	answer, err := statev1.NewRunServiceClient(p.stateAPI).ListRuns(p.context(), &statev1.ListRunsRequest{Tenant: tenant, SessionId: sessionID, Limit: 200})
	must(p.t, err)
	var runs []*statev1.Run
	for _, r := range slices.Backward(answer.GetRuns()) {
		runs = append(runs, p.run(r.GetRunId())) // with its output
	}
	return runs
}

// steps returns the committed steps of the session.
func (p *system) steps(sessionID string) []*statev1.StoredStep {
	p.t.Helper()
	var steps []*statev1.StoredStep
	for more, after := true, int32(0); more; {
		page, err := p.sessionsAPI().ListSteps(p.context(), &statev1.ListStepsRequest{Tenant: tenant, SessionId: sessionID, AfterStep: after, Limit: 200})
		must(p.t, err)
		steps = append(steps, page.GetSteps()...)
		if more = page.GetHasMore(); more {
			after = steps[len(steps)-1].GetStep()
		}
	}
	return steps
}

// messages returns the conversation of the session.
func (p *system) messages(sessionID string) []*eventv1.Message {
	p.t.Helper()
	var messages []*eventv1.Message
	for more := true; more; {
		page, err := p.sessionsAPI().ListMessages(p.context(), &statev1.ListMessagesRequest{Tenant: tenant, SessionId: sessionID, Offset: int64(len(messages)), Limit: 200})
		must(p.t, err)
		for _, m := range page.GetMessages() {
			messages = append(messages, m.GetMessage())
		}
		more = page.GetHasMore()
	}
	return messages
}

// conversation returns the conversation of the session s in lines.
func (p *system) conversation() []string {
	p.t.Helper()
	var lines []string
	for _, m := range p.messages("s") {
		lines = append(lines, describe(m))
	}
	return lines
}

// results returns the tool results in the conversation of the session s.
func (p *system) results() []*eventv1.ToolResultPart {
	p.t.Helper()
	var list []*eventv1.ToolResultPart
	for _, m := range p.messages("s") {
		for _, part := range m.GetParts() {
			if r := part.GetToolResult(); r != nil {
				list = append(list, r)
			}
		}
	}
	return list
}

// customState returns the custom state of the session.
func (p *system) customState(sessionID string) agent.State {
	p.t.Helper()
	state := agent.State{}
	if text := p.session(sessionID).GetSession().GetCustomState(); text != "" {
		must(p.t, json.Unmarshal([]byte(text), &state))
	}
	return state
}

// stateText returns the custom state of the session s as JSON, its keys sorted.
func (p *system) stateText() string {
	p.t.Helper()
	text, err := json.Marshal(p.customState("s"))
	must(p.t, err)
	return string(text)
}

// openedCalls returns the calls that steps of the session have left open, answered or not.
func (p *system) openedCalls(sessionID string) []*statev1.Call {
	var calls []*statev1.Call
	for _, c := range p.commits() {
		if c.GetRun().GetSessionId() == sessionID {
			calls = append(calls, c.GetCalls()...)
		}
	}
	return calls
}

// openedCall returns a call that a step of the session s has left open; nil for none.
func (p *system) openedCall(callID string) *statev1.Call {
	for _, c := range p.openedCalls("s") {
		if c.GetToolCallId() == callID {
			return c
		}
	}
	return nil
}

// usage returns the usage entries of the session s.
func (p *system) usage() []*eventv1.UsageEntry {
	p.t.Helper()
	var entries []*eventv1.UsageEntry
	for more := true; more; {
		page, err := statev1.NewUsageServiceClient(p.stateAPI).ListUsage(p.context(), &statev1.ListUsageRequest{Tenant: tenant, SessionId: "s", Offset: int32(len(entries)), Limit: 200})
		must(p.t, err)
		for _, e := range page.GetEntries() {
			entries = append(entries, e.GetEntry())
		}
		more = page.GetHasMore()
	}
	return entries
}

// tokensCounted sums the tokens of the session's usage.
func (p *system) tokensCounted() (total int64) {
	p.t.Helper()
	for _, u := range p.usage() {
		total += u.GetTokens().GetTotalTokens()
	}
	return total
}

// toolsCounted returns the executions of each tool in the session's usage.
func (p *system) toolsCounted() map[string]int {
	p.t.Helper()
	counted := map[string]int{}
	for _, u := range p.usage() {
		if t := u.GetTool(); t != nil {
			counted[t.GetToolName()]++
		}
	}
	return counted
}

// counted sums the usage that hooks and tools have recorded under the name.
func (p *system) counted(name string) (value float64) {
	p.t.Helper()
	for _, u := range p.usage() {
		if u.GetCustom().GetName() == name {
			value += u.GetCustom().GetValue()
		}
	}
	return value
}

func describe(m *eventv1.Message) string {
	words := []string{strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")) + ":"}
	for _, part := range m.GetParts() {
		switch {
		case part.GetText() != nil:
			words = append(words, part.GetText().GetText())
		case part.GetReasoning() != nil:
			words = append(words, "("+part.GetReasoning().GetText()+")")
		case part.GetToolCall() != nil:
			words = append(words, "["+part.GetToolCall().GetToolCallId()+" "+part.GetToolCall().GetToolName()+"]")
		case part.GetToolResult() != nil:
			words = append(words, describeResult(part.GetToolResult()))
		}
	}
	return strings.Join(words, " ")
}

func describeResult(r *eventv1.ToolResultPart) string {
	how := "failed"
	var value string
	switch {
	case r.GetSuccess() && json.Unmarshal([]byte(r.GetResult()), &value) == nil && value == "done "+r.GetToolCallId():
		how = "done"
	case r.GetSuccess():
		how = r.GetResult()
	case strings.Contains(r.GetError(), "not known"):
		how = "unknown"
	}
	if v := r.GetApproval(); v != nil {
		how += ", " + map[bool]string{true: "approved", false: "refused"}[v.GetApproved()]
		if v.GetReason() != "" {
			how += ": " + v.GetReason()
		}
	}
	return "[result " + r.GetToolCallId() + " " + how + "]"
}

// branch branches the session at its last checkpoint, with state writes and a message, and returns the id of the
// run.
func (p *system) branch(from, to, text string, ops ...*statev1.StateOp) string {
	p.t.Helper()
	return p.post(&statev1.StartRunRequest{SessionId: to, Messages: userMessages(text), Intent: &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{
		FromSessionId: from, CheckpointId: p.session(from).GetSession().GetCheckpointId(), StateOps: ops,
	}}})
}

// editFirst replaces the first message of the session, which removes all that follows.
func (p *system) editFirst(sessionID, text string) string {
	p.t.Helper()
	return p.post(&statev1.StartRunRequest{
		SessionId: sessionID, Messages: userMessages(text), Intent: &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{MessageId: p.messages(sessionID)[0].GetId()}},
	})
}

// openClientCalls returns the open calls of the tree that clients answer.
func openClientCalls(root *statev1.GetSessionResponse) []*statev1.Call {
	return slices.DeleteFunc(slices.Clone(root.GetCalls()), func(c *statev1.Call) bool {
		return c.GetAnswer() != nil || c.GetKind() == statev1.CallKind_CALL_KIND_SUB_AGENT
	})
}

func hasEnded(s *statev1.GetSessionResponse) bool {
	switch s.GetSession().GetStatus() {
	case statev1.SessionStatus_SESSION_STATUS_COMPLETED, statev1.SessionStatus_SESSION_STATUS_FAILED, statev1.SessionStatus_SESSION_STATUS_INTERRUPTED:
		return true
	default:
		return false
	}
}
