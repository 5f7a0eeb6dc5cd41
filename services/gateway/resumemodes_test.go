package gateway_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// openInterrupted opens a gateway with a session whose first run was interrupted.
func openInterrupted(t *testing.T) (*fixture, agentv1connect.AgentServiceClient, *Run) {
	t.Helper()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Once"), StepCommitted(), Interrupted())
	run.Interrupt(AssistantMessage(1, "Once"))
	return h, clients(t, h)["connect"], run
}

// lastStart returns the newest StartRun request.
func lastStart(h *fixture) *statev1.StartRunRequest {
	starts := h.State.Starts()
	return starts[len(starts)-1]
}

func reason(err error) string { return fault.ReasonOf(rpc.FromConnect(err)) }

func TestEachResumeModeWithinASessionContinuesIt(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*agentv1.ResumeRequest{
		"continue":               {Mode: agentv1.ResumeMode_RESUME_MODE_CONTINUE},
		"unspecified":            {},
		"with message":           {Mode: agentv1.ResumeMode_RESUME_MODE_WITH_MESSAGE, Message: "more"},
		"unspecified, a message": {Message: "more"},
		"from checkpoint":        {Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT, CheckpointId: "the newest"},
		"edited":                 {Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT, CheckpointId: "the newest", Message: "more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, client, run := openInterrupted(t)
			if r.GetCheckpointId() != "" {
				r.CheckpointId = run.Checkpoint()
			}
			r.SessionId, r.RequestKey, r.TimeoutMs = "s1", "k1", 5000
			got, err := client.Resume(t.Context(), r)
			if err != nil || got.GetSessionId() != "s1" || got.GetStreamId() != "s1" || got.GetRunId() != "run_2" || got.GetRepeated() || got.GetStartSequence() == 0 {
				t.Fatalf("got %v, %v", got, err)
			}
			start := lastStart(h)
			if start.GetRequestKey() != "k1" || start.GetTimeoutMs() != 5000 || !proto.Equal(start.GetResume(), &statev1.Resume{CheckpointId: r.GetCheckpointId()}) {
				t.Errorf("got %v", start)
			}
			if got := start.GetMessages(); (len(got) == 1) != (r.GetMessage() != "") || len(got) == 1 && got[0].GetParts()[0].GetText().GetText() != "more" {
				t.Errorf("messages: got %v", got)
			}
			if got, err := client.Resume(t.Context(), r); err != nil || got.GetRunId() != "run_2" || !got.GetRepeated() {
				t.Errorf("again: got %v, %v", got, err)
			}
		})
	}
}

func TestAResumeMayChangeStateAndAppendMessages(t *testing.T) {
	t.Parallel()
	h, client, _ := openInterrupted(t)
	_, err := client.Resume(t.Context(), &agentv1.ResumeRequest{
		SessionId: "s1", ModifyState: ` {"b": {"x": [1, null]}, "a": null, "c": "text", "b": 2}`,
		AppendMessages: []*agentv1.InputMessage{{Role: "system", Text: "Be brief.", Hidden: true}, {Role: "user", Text: "u"}, {Role: "assistant", Text: "a"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &statev1.Resume{
		StateOps: []*statev1.StateOp{
			{Key: "b", Op: &statev1.StateOp_Replace{Replace: `{"x": [1, null]}`}},
			{Key: "a", Op: &statev1.StateOp_Delete{Delete: true}},
			{Key: "c", Op: &statev1.StateOp_Replace{Replace: `"text"`}},
			{Key: "b", Op: &statev1.StateOp_Replace{Replace: "2"}},
		},
	}
	got := lastStart(h).GetResume()
	if !proto.Equal(&statev1.Resume{StateOps: got.GetStateOps()}, want) {
		t.Errorf("ops: got %v", got.GetStateOps())
	}
	appended := got.GetAppendMessages()
	if len(appended) != 3 || appended[0].GetRole() != eventv1.Role_ROLE_SYSTEM || !appended[0].GetHidden() || appended[2].GetParts()[0].GetText().GetText() != "a" {
		t.Errorf("messages: got %v", appended)
	}
}

func TestFieldsThatAModeDoesNotHaveAreRefused(t *testing.T) {
	t.Parallel()
	h, client, _ := openInterrupted(t)
	before := len(h.State.Starts())
	for name, tc := range map[string]struct {
		r    *agentv1.ResumeRequest
		want string
	}{
		"continue with a message":       {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_CONTINUE, Message: "x"}, "RESUME_INVALID"},
		"continue with a checkpoint":    {&agentv1.ResumeRequest{SessionId: "s1", CheckpointId: "the newest"}, "RESUME_INVALID"},
		"continue with a new session":   {&agentv1.ResumeRequest{SessionId: "s1", NewSessionId: "s2"}, "RESUME_INVALID"},
		"with_message without one":      {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_WITH_MESSAGE}, "RESUME_INVALID"},
		"retry with a message":          {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY, Message: "x"}, "RESUME_INVALID"},
		"retry with a checkpoint":       {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY, CheckpointId: "the newest"}, "RESUME_INVALID"},
		"branch without a checkpoint":   {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_BRANCH}, "RESUME_INVALID"},
		"rewind without a checkpoint":   {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT}, "RESUME_INVALID"},
		"rewind into another session":   {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT, CheckpointId: "cp-1", NewSessionId: "s2"}, "RESUME_INVALID"},
		"a mode that is not there":      {&agentv1.ResumeRequest{SessionId: "s1", Mode: 77}, "RESUME_INVALID"},
		"no session":                    {&agentv1.ResumeRequest{}, "ID_INVALID"},
		"state that is no object":       {&agentv1.ResumeRequest{SessionId: "s1", ModifyState: "[]"}, "STATE_INVALID"},
		"state that is no JSON":         {&agentv1.ResumeRequest{SessionId: "s1", ModifyState: `{"a":`}, "STATE_INVALID"},
		"state that is null":            {&agentv1.ResumeRequest{SessionId: "s1", ModifyState: "null"}, "STATE_INVALID"},
		"a message of a tool":           {&agentv1.ResumeRequest{SessionId: "s1", AppendMessages: []*agentv1.InputMessage{{Role: "tool", Text: "x"}}}, "MESSAGE_INVALID"},
		"an appended message of nobody": {&agentv1.ResumeRequest{SessionId: "s1", AppendMessages: []*agentv1.InputMessage{{Role: "user"}}}, "MESSAGE_INVALID"},
	} {
		if _, err := client.Resume(t.Context(), tc.r); reason(err) != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	if got := len(h.State.Starts()) - before; got != 0 {
		t.Errorf("%d runs were asked for", got)
	}
	for name, tc := range map[string]struct {
		r    *agentv1.ResumeRequest
		want string
	}{
		"a session that is not there":    {&agentv1.ResumeRequest{SessionId: "nobody"}, "SESSION_NOT_FOUND"},
		"a checkpoint that is not there": {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT, CheckpointId: "cp-9"}, "CHECKPOINT_NOT_FOUND"},
		"a branch into another session":  {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_BRANCH, CheckpointId: "cp-1", NewSessionId: "s1"}, "SESSION_EXISTS"},
		"a branch of nothing":            {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_BRANCH, CheckpointId: "cp-9"}, "CHECKPOINT_NOT_FOUND"},
		"a retry of what did not fail":   {&agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY}, "SESSION_CHANGED"},
		"a retry of nothing":             {&agentv1.ResumeRequest{SessionId: "nobody", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY}, "SESSION_NOT_FOUND"},
	} {
		if _, err := client.Resume(t.Context(), tc.r); reason(err) != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

func TestARetryIsOneCommandThatCanBeRepeated(t *testing.T) {
	t.Parallel()
	h, client, first := openInterrupted(t)
	h.chat(t, chatBody("s1", "again"))
	run := h.AwaitRun(t, "default", "s1", first)
	run.Fail("It went wrong.", "framework_guard_refused", AssistantMessage(2, "Bad."))
	r := &agentv1.ResumeRequest{
		SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY, RequestKey: "k1", ModifyState: `{"b": 2}`,
		AppendMessages: []*agentv1.InputMessage{{Role: "system", Text: "Be brief."}},
	}
	h.State.FailNext(1)
	got, err := client.Resume(t.Context(), r)
	if err != nil || got.GetRunId() != "run_3" || got.GetRepeated() {
		t.Fatalf("got %v, %v", got, err)
	}
	retry := lastStart(h).GetRetry()
	if len(retry.GetAppendMessages()) != 1 || len(retry.GetStateOps()) != 1 || lastStart(h).GetRequestKey() != "k1" {
		t.Errorf("got %v", lastStart(h))
	}
	h.AwaitRun(t, "default", "s1", run).Fail("It went wrong.", "x")
	if got, err := client.Resume(t.Context(), r); err != nil || got.GetRunId() != "run_3" || !got.GetRepeated() {
		t.Errorf("again, when it has failed: got %v, %v", got, err)
	}
}

func TestARunThatWasAbortedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	h, client, first := openInterrupted(t)
	h.chat(t, chatBody("s1", "again"))
	run := h.AwaitRun(t, "default", "s1", first)
	run.Fail("The run was cancelled.", "framework_cancelled", AssistantMessage(2, "Half a"))
	if _, err := client.Resume(t.Context(), &agentv1.ResumeRequest{SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY}); reason(err) != "RUN_CANCELLED" {
		t.Errorf("got %v, want RUN_CANCELLED", err)
	}
	can, err := client.CanResume(t.Context(), &agentv1.CanResumeRequest{SessionId: "s1"})
	if err != nil || can.GetCanResume() || can.GetReason() != "aborted" || can.GetStatus() != "failed" {
		t.Errorf("got %v, %v", can, err)
	}
	h.chat(t, chatBody("s1", "something else"))
	if next := h.AwaitRun(t, "default", "s1", run); next.GetTurn() != 3 {
		t.Errorf("got %v, want that a message is taken", next.Run)
	}
}

func TestABranchIsMadeOnceForAKey(t *testing.T) {
	t.Parallel()
	for name, into := range map[string]string{"an id of the service": "", "an id of the caller": "b1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, client, run := openInterrupted(t)
			r := &agentv1.ResumeRequest{
				SessionId: "s1", Mode: agentv1.ResumeMode_RESUME_MODE_BRANCH, CheckpointId: run.Checkpoint(), NewSessionId: into, RequestKey: "k1", Message: "else",
			}
			first, err := client.Resume(t.Context(), r)
			if err != nil || first.GetSessionId() == "s1" || first.GetSessionId() == "" || into != "" && first.GetSessionId() != into || first.GetRunId() != "run_2" {
				t.Fatalf("got %v, %v", first, err)
			}
			start := lastStart(h)
			if want := (&statev1.Branch{FromSessionId: "s1", CheckpointId: run.Checkpoint()}); !proto.Equal(start.GetBranch(), want) || start.GetSessionId() != into {
				t.Errorf("got %v, want %v", start, want)
			}
			again, err := client.Resume(t.Context(), r)
			if err != nil || again.GetSessionId() != first.GetSessionId() || again.GetRunId() != "run_2" || !again.GetRepeated() {
				t.Errorf("again: got %v, %v", again, err)
			}
			page := text(t, h.request(t, "GET", "/messages?sessionId="+first.GetSessionId(), ""))
			if !strings.Contains(page, "Once") || !strings.Contains(page, "else") {
				t.Errorf("the branch: got %s", page)
			}
			if page := text(t, h.request(t, "GET", "/messages?sessionId=s1", "")); strings.Contains(page, "else") {
				t.Errorf("the source: got %s", page)
			}
		})
	}
}

func TestCanResumeSaysWhyNot(t *testing.T) {
	t.Parallel()
	h, client, first := openInterrupted(t)
	for _, tc := range []struct {
		play           func()
		status, reason string
	}{
		{func() {}, "interrupted", ""},
		{func() { h.chat(t, chatBody("s1", "again")) }, "active", "active"},
		{func() { h.AwaitRun(t, "default", "s1", first).Fail("x", "y") }, "failed", ""},
		{func() {
			before := h.AwaitRun(t, "default", "s1", first)
			h.chat(t, chatBody("s1", "once more"))
			h.AwaitRun(t, "default", "s1", before).Complete(AssistantMessage(2, "Done."))
		}, "completed", "completed"},
	} {
		tc.play()
		got, err := client.CanResume(t.Context(), &agentv1.CanResumeRequest{SessionId: "s1"})
		if err != nil || got.GetStatus() != tc.status || got.GetReason() != tc.reason || got.GetCanResume() != (tc.reason == "") {
			t.Errorf("got %v, %v, want %s %q", got, err, tc.status, tc.reason)
		}
	}
	if _, err := client.CanResume(t.Context(), &agentv1.CanResumeRequest{SessionId: "nobody"}); reason(err) != "SESSION_NOT_FOUND" {
		t.Errorf("got %v", err)
	}
}

func TestAStartThatWaitsSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := clients(t, h)["grpc"]
	if _, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "one", TimeoutMs: 1000}); err != nil {
		t.Fatal(err)
	}
	if got := lastStart(h).GetTimeoutMs(); got != 1000 {
		t.Errorf("timeout: got %d", got)
	}
	if _, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "two"}); reason(err) != "SESSION_BUSY" {
		t.Errorf("got %v", err)
	}
	got, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "two", OnBusy: agentv1.BusyPolicy_BUSY_POLICY_INTERRUPT})
	if err != nil || !got.GetWaiting() || got.GetRunId() != "run_2" {
		t.Errorf("got %v, %v", got, err)
	}
	if got := lastStart(h).GetOnBusy(); got != statev1.BusyPolicy_BUSY_POLICY_INTERRUPT {
		t.Errorf("policy: got %v", got)
	}
	if _, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "x", OnBusy: 77}); reason(err) != "ON_BUSY_INVALID" {
		t.Errorf("got %v", err)
	}
	if got, err := client.Interrupt(t.Context(), &agentv1.InterruptRequest{SessionId: "s1", RunId: "run_2"}); err != nil || got.GetEffect() != "done" {
		t.Errorf("give up: got %v, %v", got, err)
	}
}
