package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func replaceOp(key, value string) *agentv1.StateOp {
	return &agentv1.StateOp{Key: key, Op: &agentv1.StateOp_Replace{Replace: value}}
}

func appendOp(key, items string) *agentv1.StateOp {
	return &agentv1.StateOp{Key: key, Op: &agentv1.StateOp_Append{Append: items}}
}

// mergeOf returns a write of the session s1.
func mergeOf(version int64, ops ...*agentv1.StateOp) *agentv1.MergeStateRequest {
	return &agentv1.MergeStateRequest{SessionId: "s1", ExpectedVersion: version, Ops: ops}
}

// stateOf returns the custom state and the version of a session.
func stateOf(t *testing.T, client agentv1connect.AgentServiceClient, id string) (state string, version int64) {
	t.Helper()
	found, err := client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: id})
	if err != nil {
		t.Fatal(err)
	}
	return found.GetSession().GetCustomState(), found.GetSession().GetVersion()
}

func TestAServerWritesKeysOfTheStateInOrder(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	patch := func(body string) string {
		t.Helper()
		return text(t, h.request(t, http.MethodPatch, "/sessions/s1/state", body))
	}
	got := patch(`{"ops":[{"key":"n","replace":9007199254740993},{"key":"list","append":[1]},{"key":"list","append":[2,3]},` +
		`{"key":"none","replace":null},{"key":"n","append":[4]}]}`)
	if !strings.Contains(got, `"warnings":["`) || !strings.Contains(got, `\"n\"`) {
		t.Errorf("an append to a number: got %s, want a warning", got)
	}
	state, version := stateOf(t, client, "s1")
	if want := `"list":[1,2,3]`; !strings.Contains(state, want) || !strings.Contains(state, `"none":null`) {
		t.Errorf("got %s, want %s and a null", state, want)
	}
	got = patch(fmt.Sprintf(`{"ops":[{"key":"none","delete":true},{"key":"n","replace":9007199254740993}],"expectedVersion":%d}`, version))
	if want := fmt.Sprintf("{\"version\":%d,\"warnings\":[]}\n", version+1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	state, _ = stateOf(t, client, "s1")
	if state != `{"n":9007199254740993,"list":[1,2,3]}` && state != `{"list":[1,2,3],"n":9007199254740993}` {
		t.Errorf("got %s", state)
	}
	for range 2 { // a repetition of replacements changes nothing, and keeps the version
		merged, err := client.MergeState(t.Context(), mergeOf(0, replaceOp("n", "9007199254740993")))
		if err != nil || merged.GetVersion() != version+1 {
			t.Errorf("got %v, %v, want version %d", merged, err, version+1)
		}
	}
	_, err := client.MergeState(t.Context(), mergeOf(version, appendOp("list", "[4]")))
	wantReason(t, "a write of an older version", err, "VERSION_STALE")
	_, err = client.MergeState(t.Context(), mergeOf(0, replaceOp("large", `"`+strings.Repeat("x", 2<<20)+`"`)))
	wantReason(t, "a large state", err, "STATE_SIZE_EXCEEDED")
	_, err = client.MergeState(t.Context(), &agentv1.MergeStateRequest{SessionId: "s1", Ops: []*agentv1.StateOp{replaceOp("n", "{")}})
	wantReason(t, "a value that is no JSON", err, "STATE_INVALID")
	_, err = client.DeleteSession(t.Context(), &agentv1.DeleteSessionRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.MergeState(t.Context(), mergeOf(0, replaceOp("n", "1")))
	wantReason(t, "a deleted session", err, "SESSION_NOT_FOUND")
}

func TestAStateThatBreaksTheSchemaOfItsAgentIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	h.State.Announce(t, &statev1.Agent{AgentType: "demo", StateSchema: `{"type":"object","properties":{"n":{"type":"integer"}}}`})
	playTurn(t, h, "default", "s1")
	_, err := client.MergeState(t.Context(), mergeOf(0, replaceOp("n", `"x"`)))
	wantReason(t, "a text for a number", err, "STATE_INVALID")
	if _, err := client.MergeState(t.Context(), mergeOf(0, replaceOp("n", "1"))); err != nil {
		t.Error(err)
	}
}

func TestAServersStateAndThatOfALiveRunAreMerged(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), Text("One"))
	if _, err := client.MergeState(t.Context(), mergeOf(0, replaceOp("plan", `"free"`))); err != nil {
		t.Fatal(err)
	}
	run.Complete(AssistantMessage(1, "One"))
	if state, _ := stateOf(t, client, "s1"); state != `{"plan":"free"}` {
		t.Errorf("got %s after the step, want the server's write", state)
	}
}

func TestAStateOfAServerReachesTheSocketsOfItsSessionAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		options := &websocket.DialOptions{HTTPClient: client}
		conn, _, err := websocket.Dial(t.Context(), "http://localhost/agents/demo/room", options) //nolint:bodyclose // the body is the socket
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		s := &agentSocket{conn, t}
		s.until(mcpFrame)
		s.say(setState(`{"n":1}`))
		s.barrier()
		began := time.Now()
		for range 2 { // the second one changes nothing
			body := strings.NewReader(`{"ops":[{"key":"n","replace":2}]}`)
			patch, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://localhost/sessions/demo:room/state", body)
			if err != nil {
				t.Fatal(err)
			}
			patch.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(patch)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatal(answer, err)
			}
			_ = answer.Body.Close()
		}
		s.want(stateFrame(`{"n":2}`))
		if took := time.Since(began); took > time.Second {
			t.Errorf("the state came after %v, by a poll", took)
		}
		s.barrier()
	})
}

func TestASetStatusSaysHowASessionIsThatIsNotAsExpected(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	_, version := stateOf(t, client, "s1")
	set := func(body, want string) {
		t.Helper()
		if got := text(t, h.request(t, http.MethodPatch, "/sessions/s1/status", body)); got != want+"\n" {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	conflict := fmt.Sprintf(`{"ok":false,"currentStatus":"completed","currentVersion":%d}`, version)
	written := func(n int64) string { return fmt.Sprintf(`{"ok":true,"newVersion":%d}`, version+n) }
	set(`{"status":"paused","expected":["active","failed"]}`, conflict)
	set(fmt.Sprintf(`{"status":"paused","expected":["completed"],"expectedVersion":%d}`, version+1), conflict)
	set(fmt.Sprintf(`{"status":"interrupted","interruptReason":"review","expected":["completed"],"expectedVersion":%d}`, version), written(1))
	set(`{"status":"failed","failure":{"error":"Refused.","code":"policy","retryable":true},"expected":["interrupted"]}`, written(2))
	found, err := client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "s1"})
	f := found.GetSession().GetFailure()
	if err != nil || f.GetError() != "Refused." || f.GetCode() != "policy" || !f.GetRetryable() || f.GetReason() != "" {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestReadersSeeTheEndOfARunWhoseSessionWasEndedByAServer(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), Text("One"))
	stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	set, err := client.SetStatus(t.Context(), &agentv1.SetStatusRequest{
		SessionId: "s1", Status: "failed", Failure: &agentv1.Failure{Error: "Refused.", Code: "policy"}, Expected: []string{"active"},
	})
	if err != nil || !set.GetOk() {
		t.Fatalf("got %v, %v", set, err)
	}
	for stream.Receive() {
		if fail := stream.Msg().GetFail(); fail != nil {
			if fail.GetCode() != "policy" || fail.GetError() != "Refused." {
				t.Errorf("got %v", fail)
			}
			return
		}
	}
	t.Errorf("the stream ended without the failure: %v", stream.Err())
}

func TestAHostsSubSessionsAndUsageBelongToTheSession(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	run := playTurn(t, h, "default", "s1")
	put := func(sub *agentv1.SubSession) error {
		_, err := client.PutSubSession(t.Context(), &agentv1.PutSubSessionRequest{SessionId: "s1", SubSession: sub})
		return err
	}
	for _, status := range []string{"active", "active", "completed"} {
		sub := &agentv1.SubSession{SessionId: "far", AgentType: "critic", Name: "critic", ToolCallId: "c1", Status: status, Remote: true}
		if err := put(sub); err != nil {
			t.Fatal(err)
		}
	}
	wantReason(t, "a remote one that becomes local", put(&agentv1.SubSession{SessionId: "far", Status: "active"}), "LOCATION_FIXED")
	wantReason(t, "a local one without a session", put(&agentv1.SubSession{SessionId: "near", Status: "active"}), "CHILD_UNKNOWN")
	wantReason(t, "one without a status", put(&agentv1.SubSession{SessionId: "far", Remote: true}), "STATUS_INVALID")
	wantReason(t, "none", put(nil), "ID_INVALID")
	found, err := client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "s1"})
	subs := found.GetSubSessions()
	if err != nil || len(subs) != 1 {
		t.Fatalf("got %v, %v", found, err)
	}
	if far := subs[0]; far.GetStatus() != "completed" || far.GetName() != "critic" || !far.GetRemote() || far.GetCompletedAt() == 0 {
		t.Errorf("got %v, %v", found, err)
	}

	record := func(usage ...*eventv1.UsageEntry) error {
		_, err := client.RecordUsage(t.Context(), &agentv1.RecordUsageRequest{SessionId: "s1", RunId: run.GetRunId(), Usage: usage})
		return err
	}
	if err := record(customUsage("pages", 3), customUsage("pages", 4)); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "nothing to record", record(), "USAGE_INVALID")
	wantReason(t, "no measurement", record(&eventv1.UsageEntry{}), "USAGE_INVALID")
	sums, err := client.GetUsage(t.Context(), &agentv1.GetUsageRequest{SessionId: "s1", RunId: run.GetRunId()})
	if custom := sums.GetUsage().GetCustom(); err != nil || len(custom) != 1 || custom[0].GetName() != "pages" || custom[0].GetValue() != 7 {
		t.Errorf("got %v, %v, want 7 pages", sums, err)
	}
}

func TestAServersWriteIsRepeatedInAnOutageOnlyIfThatChangesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	_, version := stateOf(t, client, "s1")
	merge := func(version int64, ops ...*agentv1.StateOp) func() error {
		return func() error {
			_, err := client.MergeState(t.Context(), mergeOf(version, ops...))
			return err
		}
	}
	set := func(r *agentv1.SetStatusRequest) func() error {
		r.SessionId, r.Status = "s1", "paused"
		return func() error {
			_, err := client.SetStatus(t.Context(), r)
			return err
		}
	}
	for _, tc := range []struct {
		name     string
		write    func() error
		repeated bool
	}{
		{"a replacement", merge(0, replaceOp("k", "1")), true},
		{"a replacement of a version", merge(version+1, replaceOp("k", "2")), false},
		{"an append", merge(0, appendOp("list", "[1]")), false},
		{"any status", set(&agentv1.SetStatusRequest{}), true},
		{"an expected status", set(&agentv1.SetStatusRequest{Expected: []string{"paused"}}), false},
		{"usage", func() error {
			usage := []*eventv1.UsageEntry{customUsage("pages", 1)}
			_, err := client.RecordUsage(t.Context(), &agentv1.RecordUsageRequest{SessionId: "s1", Usage: usage})
			return err
		}, false},
		{"a sub-session", func() error {
			sub := &agentv1.SubSession{SessionId: "far", Status: "active", Remote: true}
			_, err := client.PutSubSession(t.Context(), &agentv1.PutSubSessionRequest{SessionId: "s1", SubSession: sub})
			return err
		}, true},
	} {
		h.State.LoseNext(1)
		if err := tc.write(); tc.repeated && err != nil {
			t.Errorf("%s: got %v", tc.name, err)
		} else if !tc.repeated {
			wantReason(t, tc.name, err, "STORE_UNAVAILABLE")
		}
	}
	if state, _ := stateOf(t, client, "s1"); state != `{"k":2,"list":[1]}` && state != `{"list":[1],"k":2}` {
		t.Errorf("got %s, want each write once", state)
	}
	sums, err := client.GetUsage(t.Context(), &agentv1.GetUsageRequest{SessionId: "s1"})
	if custom := sums.GetUsage().GetCustom(); err != nil || len(custom) != 1 || custom[0].GetValue() != 1 {
		t.Errorf("got %v, %v, want one page", sums, err)
	}
}

func TestOnlyServersWriteStatesStatusesSubSessionsAndUsage(t *testing.T) {
	t.Parallel()
	key, sum := gateway.NewAPIKey()
	h := open(t, func(c *gateway.Config) {
		entry := fmt.Sprintf("- {name: web, tenant: default, subject: mia, scopes: [read, chat, approve], sha256: %s}\n", sum)
		c.APIKeys = keysFile(t, entry)
		c.InsecureNoAuth = false
	})
	playTurn(t, h, "default", "s1")
	before := h.State.Get("default", "s1").GetSession().GetVersion()
	client := protocols(t, h, "Bearer "+key)["connect"]
	for _, name := range []string{"MergeState", "SetStatus", "PutSubSession", "RecordUsage"} {
		_, err := call(t.Context(), client, name, rpcCases[name].good("s1", "", ""))
		wantReason(t, name, err, "SCOPE_MISSING")
	}
	for path, body := range map[string]string{"/state": `{"ops":[{"key":"k","replace":1}]}`, "/status": `{"status":"paused"}`} {
		answer := h.request(t, http.MethodPatch, "/sessions/s1"+path, body, "Authorization", "Bearer "+key)
		wantFault(t, answer, http.StatusForbidden, "SCOPE_MISSING")
	}
	if after := h.State.Get("default", "s1").GetSession().GetVersion(); after != before {
		t.Errorf("got version %d, want %d", after, before)
	}
}
