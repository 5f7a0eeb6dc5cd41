//go:build !race

package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// These rules depend on what was done before: who started a run, and what was erased. The rights of TestNobodyReachesASessionWithoutItsRights
// depend on the caller and the session alone.
func TestNobodyGetsAroundARuleOfASession(t *testing.T) {
	t.Parallel()
	s, keys := besiege(t)
	for _, rule := range []struct {
		name  string
		check func(*testing.T, map[string]string) []leak
	}{
		{"calls that others approve", s.attackCalls},
		{"erased files", s.attackErasedFiles},
		{"ranges of files", s.attackRanges},
		{"the audit log", s.attackAudit},
	} {
		before := s.sent
		leaks := rule.check(t, keys)
		for _, l := range leaks {
			t.Errorf("%s: %s: %s with id %q: %s", rule.name, l.who, l.what, l.id, l.found)
		}
		t.Logf("%s: %d requests, %d let in", rule.name, s.sent-before, len(leaks))
		if s.sent-before < fewestAttemptsOfARule {
			t.Errorf("%s: the test has made %d requests, want at least %d", rule.name, s.sent-before, fewestAttemptsOfARule)
		}
	}
}

// fewestAttemptsOfARule is how many requests the test makes at least for each rule.
const fewestAttemptsOfARule = 400

// send makes a request and returns its answer.
func (s *siege) send(a attempt) outcome {
	s.sent++
	return a.send()
}

// over returns a call of the Connect service for each protocol.
func (s *siege) over(credential, name, id string, request proto.Message) (all []attempt) {
	for protocol, client := range protocols(s.t, s.fixture, credential) {
		all = append(all, attempt{what: name + " over " + protocol, id: id, request: fmt.Sprint(request), send: func() outcome {
			ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
			defer cancel()
			answer, err := call(ctx, client, name, request)
			if err != nil {
				return outcome{int(connect.CodeOf(err)), fault.ReasonOf(rpc.FromConnect(err)) + " " + err.Error()}
			}
			return outcome{http.StatusOK, fmt.Sprint(answer)}
		}})
	}
	return all
}

// plain returns a request over plain HTTP.
func (s *siege) plain(credential, method, path, body string, headers ...string) attempt {
	headers = append([]string{"Authorization", credential, "Accept", "application/json", "Content-Type", "application/json"}, headers...)
	return attempt{what: method + " " + strings.SplitN(path, "?", 2)[0], request: path + body, send: func() outcome {
		return s.exchange(method, path, body, headers)
	}}
}

// succeed makes a request that must succeed.
func (s *siege) succeed(credential, method, path, body string) {
	s.t.Helper()
	if got := s.plain(credential, method, path, body).send(); got.status != http.StatusOK {
		s.t.Fatalf("%s %s: got %d %s", method, path, got.status, got.text)
	}
}

// asking is a session whose call others must approve.
type asking struct {
	id       string
	starters []string // the names of the keys that must not approve
}

// theCall is the call of each asking.
const theCall = "y1"

// ask suspends the run on a call that others must approve.
func (s *siege) ask(run *Run, starters ...string) asking {
	step := run.GetStepCount() + s.State.Get(s.tenant, run.GetSessionId()).GetSession().GetStepCount() + 1
	run.Show(step, Started(), StepStarted(), ApprovalRequest(theCall, `{}`), StepCommitted(), Suspended())
	run.Suspend([]*statev1.Call{{
		ToolCallId: theCall, SessionId: run.GetSessionId(), RunId: run.GetRunId(), Step: step, ToolName: "add", Input: `{"note":"` + secret + `"}`,
		Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a-" + theCall, Approvers: statev1.Approvers_APPROVERS_OTHERS,
	}}, AssistantMessage(step, "", theCall))
	return asking{run.GetSessionId(), starters}
}

// answered reports whether the call of an asking has an answer.
func (s *siege) answered(a asking) bool {
	return !slices.ContainsFunc(s.State.PendingCalls(s.tenant, a.id), func(c *statev1.Call) bool { return c.GetToolCallId() == theCall && c.GetAnswer() == nil })
}

// askings begins a session in each way in which a caller may be behind a call that others must approve.
func (s *siege) askings(keys map[string]string) (all []asking) {
	next := func(id string, former *Run) *Run { return s.AwaitRun(s.t, s.tenant, id, former) }
	say := func(key, id string) *Run {
		s.succeed(keys[key], http.MethodPost, "/chat", chatBody(id, "hi"))
		return next(id, nil)
	}
	completes := func(run *Run) *Run {
		run.Show(1, Started(), StepStarted(), Text("One"), StepCommitted(), Completed())
		run.Complete(AssistantMessage(1, "One"))
		return run
	}
	again := func(key, id string) {
		s.succeed(keys[key], http.MethodPost, "/chat", toJSON(map[string]any{"id": id, "trigger": "regenerate-message", "messages": []any{userMessage("u-hi", "hi")}}))
	}
	edit := func(key, id string) {
		s.succeed(keys[key], http.MethodPost, "/chat", toJSON(map[string]any{"id": id, "trigger": "submit-message", "messageId": "u-hi", "messages": []any{userMessage("u-hi", "ho")}}))
	}
	resume := func(key, path, body string) { s.succeed(keys[key], http.MethodPost, path, body) }
	for author, other := range map[string]string{"alice": "server", "author": "server"} {
		id := func(way string) string { return "demo:" + way + " by " + author }
		named := func(id string) string { return `{"sessionId":` + quote(id) }
		both := []string{author, other}

		all = append(all, s.ask(say(author, id("started")), author))
		first := completes(say(author, id("regenerated")))
		again(other, first.GetSessionId())
		all = append(all, s.ask(next(first.GetSessionId(), first), both...))

		first = completes(say(author, id("edited")))
		edit(other, first.GetSessionId())
		starters := both
		if author != "alice" { // the edit has another author, and the session no user
			starters = []string{other}
		}
		all = append(all, s.ask(next(first.GetSessionId(), first), starters...))

		first = say(author, id("resumed"))
		first.Show(1, Started(), Text("One"))
		first.Interrupt(AssistantMessage(1, "One"))
		resume(other, "/resume", named(first.GetSessionId())+`}`)
		all = append(all, s.ask(next(first.GetSessionId(), first), both...))

		first = say(author, id("retried"))
		first.Show(1, Started(), Text("One"))
		first.Fail("It failed.", "model_error")
		resume(other, "/retry", named(first.GetSessionId())+`}`)
		all = append(all, s.ask(next(first.GetSessionId(), first), both...))

		first = completes(say(author, id("resumed from a checkpoint")))
		resume(other, "/resume", named(first.GetSessionId())+`,"mode":"from_checkpoint","checkpointId":`+quote(first.Checkpoint())+`}`)
		all = append(all, s.ask(next(first.GetSessionId(), first), both...))

		first = completes(say(author, id("the source of a branch")))
		resume(other, "/resume", named(first.GetSessionId())+`,"mode":"branch","newSessionId":`+quote(id("branched"))+`,"checkpointId":`+quote(first.Checkpoint())+`}`)
		all = append(all, s.ask(next(id("branched"), nil), both...))

		first = say(author, id("the root"))
		first.Show(1, Started(), Text("One"))
		all = append(all, s.ask(first.Child(id("sub-agent")), author))
	}
	s.succeed(keys["server"], http.MethodPost, "/start", `{"sessionId":"demo:for alice","message":"hi","userId":"alice"}`)
	all = append(all, s.ask(next("demo:for alice", nil), "server", "alice"))
	minted := s.mint(s.t, keys["server"], "alice", `"read","chat","approve"`, 600)
	s.succeed(minted, http.MethodPost, "/start", `{"sessionId":"demo:by a token","message":"hi"}`)
	all = append(all, s.ask(next("demo:by a token", nil), "alice"))
	return all
}

// approvals returns requests that approve the call, of each transport.
func (s *siege) approvals(credential string, of asking) (all []attempt) {
	id := of.id
	approval := `"toolCallId":"` + theCall + `","kind":"approval-response","approvalId":"a-` + theCall + `","approved":true`
	approved := assistant("m1", uiPart{
		"type": "tool-add", "toolCallId": theCall, "state": "approval-responded", "input": map[string]any{}, "approval": map[string]any{"id": "a-" + theCall, "approved": true},
	})
	body := postOf(id, approved)
	all = append(all,
		s.plain(credential, http.MethodPost, "/submit-tool-result", `{"sessionId":`+quote(id)+`,`+approval+`}`),
		s.plain(credential, http.MethodPost, "/submit-tool-result", `{"sessionId":`+quote(id)+`,`+approval+`,"reason":"I may"}`),
		s.plain(credential, http.MethodPost, "/chat/"+url.PathEscape(id)+"/submit-tool-result", `{`+approval+`}`),
		s.plain(credential, http.MethodPost, "/chat", body),
		s.plain(credential, http.MethodPost, "/chat", postOf(id, userMessage("u-hi", "hi"), approved)),
	)
	for i := range all {
		all[i].id = id
	}
	name := url.PathEscape(strings.TrimPrefix(id, "demo:"))
	for what, socket := range map[string]struct{ path, frame string }{
		"GET /chat/ws":               {"/chat/ws", `{"type":"send","requestId":"r1",` + body[1:]},
		"GET /agents/{agent}/{name}": {"/agents/demo/" + name, `{"type":"cf_agent_tool_approval","toolCallId":"` + theCall + `","approved":true}`},
	} {
		for _, browser := range []bool{false, true} {
			all = append(all, attempt{what: what, id: id, send: func() outcome { return s.converse(socket.path, []string{socket.frame}, credential, browser) }})
		}
	}
	return append(all, s.over(credential, "SubmitToolResult", id, &agentv1.SubmitToolResultRequest{
		SessionId: id, ToolCallId: theCall, Answer: &agentv1.SubmitToolResultRequest_Approval{Approval: &agentv1.ApprovalResponse{ApprovalId: "a-" + theCall, Approved: true}},
	})...)
}

// attackCalls approves calls as those behind them, and lists them as callers that may not approve them.
func (s *siege) attackCalls(t *testing.T, keys map[string]string) (leaks []leak) {
	t.Helper()
	all := s.askings(keys)
	tokens := map[string]string{"alice": s.mint(t, keys["server"], "alice", `"approve","chat"`, 600)}
	for _, of := range all {
		for _, name := range of.starters {
			leaks = append(leaks, s.approve(name, keys[name], of)...)
			if token := tokens[name]; token != "" {
				leaks = append(leaks, s.approve("a token of "+name, token, of)...)
			}
		}
	}
	listed := map[string]bool{}
	for _, name := range []string{"writer", "watcher", "foreign", "foreign-admin", "mallory"} {
		for _, a := range s.lists(keys[name], slices.Compact([]string{"", "mallory"})) {
			answer := s.send(a)
			switch found := strings.Contains(answer.text, secret); {
			case name == "mallory" && found:
				listed[a.what] = true
			case found:
				leaks = append(leaks, leak{name, a.what, a.request, fmt.Sprintf("got %.300s", answer.text)})
			}
		}
	}
	if len(listed) != 5 { // plain HTTP and the protocols of the Connect service
		t.Errorf("the calls are shown to an approver by %v alone, so the test would see no leak", slices.Sorted(maps.Keys(listed)))
	}
	s.wantApprovals(t, keys)
	return leaks
}

// approve approves a call over each transport, up to the first that does it.
func (s *siege) approve(name, credential string, of asking) []leak {
	for _, a := range s.approvals(credential, of) {
		if s.answered(of) {
			return nil // by somebody before
		}
		if answer := s.send(a); s.answered(of) {
			return []leak{{name, a.what, a.id, "the call was approved: " + answer.text}}
		}
	}
	return nil
}

// lists returns requests for the calls that wait, with each filter.
func (s *siege) lists(credential string, users []string) (all []attempt) {
	for _, user := range users {
		for _, agent := range []string{"", "demo"} {
			for _, tool := range []string{"", "add"} {
				for kind, name := range map[agentv1.CallKind]string{0: "", agentv1.CallKind_CALL_KIND_APPROVAL: "approval", agentv1.CallKind_CALL_KIND_CLIENT_TOOL: "client_tool"} {
					for _, limit := range []int32{1, 200} {
						query := url.Values{"limit": {fmt.Sprint(limit)}}
						for key, value := range map[string]string{"userId": user, "agentType": agent, "toolName": tool, "kind": name} {
							if value != "" {
								query.Set(key, value)
							}
						}
						all = append(all, s.plain(credential, http.MethodGet, "/calls?"+query.Encode(), ""))
						all = append(all, s.over(credential, "ListPendingCalls", "", &agentv1.ListPendingCallsRequest{UserId: user, AgentType: agent, ToolName: tool, Kind: kind, Limit: limit})...)
					}
				}
			}
		}
	}
	return all
}

// wantApprovals checks that the same requests approve the calls of somebody else.
func (s *siege) wantApprovals(t *testing.T, keys map[string]string) {
	t.Helper()
	transports := s.approvals(keys["author"], asking{})
	for i := range transports {
		id := fmt.Sprint("demo:control ", i)
		s.succeed(keys["alice"], http.MethodPost, "/chat", chatBody(id, "hi"))
		of := s.ask(s.AwaitRun(t, s.tenant, id, nil))
		a := s.approvals(keys["author"], of)[i]
		answer := a.send()
		approved := false
		for range 1000 { // a socket may close before its frame is handled
			if approved = s.answered(of); approved || !strings.HasPrefix(a.what, "GET") {
				break
			}
			s.plain(keys["server"], http.MethodGet, "/healthz", "").send()
		}
		if !approved {
			t.Errorf("%s approves nothing for another key (%.200s), so the test would see no self-approval", a.what, answer.text)
		}
	}
}

// attackAudit reads the audit log without the right to it.
func (s *siege) attackAudit(t *testing.T, keys map[string]string) (leaks []leak) {
	t.Helper()
	reads := func(credential string) (all []attempt) {
		for _, session := range append([]string{"", "demo:for alice"}, victims...) {
			for _, actor := range []string{"", "key:server", "user:alice"} {
				for _, action := range []string{"", "run.started"} {
					for _, oldest := range []bool{false, true} {
						query := url.Values{}
						for key, value := range map[string]string{"sessionId": session, "actor": actor, "action": action} {
							if value != "" {
								query.Set(key, value)
							}
						}
						all = append(all, s.plain(credential, http.MethodGet, "/audit/export?"+query.Encode(), ""))
						query.Set("oldestFirst", fmt.Sprint(oldest))
						all = append(all, s.plain(credential, http.MethodGet, "/audit?"+query.Encode(), ""))
						all = append(all, s.over(credential, "ListAuditEvents", "", &agentv1.ListAuditEventsRequest{SessionId: session, Actor: actor, Action: action, OldestFirst: oldest})...)
					}
				}
			}
		}
		return all
	}
	shows := func(text string) bool {
		return strings.Contains(text, "run.started") && strings.Contains(text, s.runs["ended"])
	}
	for name, credential := range keys {
		if name == "admin" {
			continue
		}
		for _, a := range reads(credential) {
			switch answer := s.send(a); {
			case shows(answer.text):
				leaks = append(leaks, leak{name, a.what, a.request, fmt.Sprintf("got %.300s", answer.text)})
			case name != "foreign-admin" && !strings.Contains(answer.text, "SCOPE_MISSING") && !strings.Contains(answer.text, "API_KEY_EXPIRED"):
				leaks = append(leaks, leak{name, a.what, a.request, fmt.Sprintf("got %d %.200s, want SCOPE_MISSING", answer.status, answer.text)})
			}
		}
	}
	found := map[string]bool{}
	waitFor(t, "an export has the entries, which must be ten seconds old", func() bool {
		return shows(s.plain(keys["admin"], http.MethodGet, "/audit/export", "").send().text)
	})
	for _, a := range reads(keys["admin"]) {
		if shows(a.send().text) {
			found[a.what] = true
		}
	}
	if len(found) != 6 { // two routes, and the protocols of the Connect service
		t.Errorf("the entries are shown to an admin by %v alone, so the test would see no leak", slices.Sorted(maps.Keys(found)))
	}
	s.wantRefusalsInTheLog(t)
	return leaks
}

// wantRefusalsInTheLog checks that the refusals of each tenant are in its log and in no other.
func (s *siege) wantRefusalsInTheLog(t *testing.T) {
	t.Helper()
	s.report(t)
	entries := map[string]bool{}
	for _, e := range s.State.AuditLog(t, s.tenant) {
		entries[e.GetAction()+" "+e.GetActor()] = true
	}
	for _, want := range []string{
		auth.ActionDenied + " user:alice", auth.ActionDenied + " key:author", auth.ActionDenied + " key:server",
		auth.ScopeMissing + " user:mallory", auth.ScopeMissing + " user:trent", auth.ScopeMissing + " key:server", auth.AuditExported + " key:admin",
	} {
		if !entries[want] {
			t.Errorf("the audit log has no entry %s", want)
		}
	}
	for _, e := range s.State.AuditLog(t, "other") {
		if !strings.HasPrefix(e.GetActor(), "key:foreign") {
			t.Errorf("the audit log of another tenant has %v", e)
		}
	}
}
