package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// apiClient returns a client of the Connect service.
func apiClient(t *testing.T, h *fixture) agentv1connect.AgentServiceClient {
	t.Helper()
	return protocols(t, h, "")["connect"]
}

func TestSessionsAreFoundByWhatTheirStartSaid(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	for i, user := range []string{"ada", "bob", "ada"} {
		_, err := client.Start(t.Context(), &agentv1.StartRequest{
			SessionId: fmt.Sprintf("s%d", i), Message: "hi", UserId: user, OrganizationId: "acme", Tags: []string{"trip", user}, Metadata: map[string]string{"n": fmt.Sprint(i)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		list *agentv1.ListSessionsRequest
		want string
	}{
		{&agentv1.ListSessionsRequest{}, "s2 s1 s0 of 3"},
		{&agentv1.ListSessionsRequest{UserId: "ada"}, "s2 s0 of 2"},
		{&agentv1.ListSessionsRequest{Metadata: map[string]string{"n": "1"}}, "s1 of 1"},
		{&agentv1.ListSessionsRequest{Tags: []string{"trip", "bob"}}, "s1 of 1"},
		{&agentv1.ListSessionsRequest{OrganizationId: "acme", Limit: 2}, "s2 s1 of 3"},
		{&agentv1.ListSessionsRequest{Statuses: []string{"completed", "failed"}}, " of 0"},
		{&agentv1.ListSessionsRequest{Statuses: []string{"active"}, AgentType: "demo", Family: &agentv1.ListSessionsRequest_Roots{Roots: true}}, "s2 s1 s0 of 3"},
		{&agentv1.ListSessionsRequest{Offset: 2}, "s0 of 3"},
	} {
		page, err := client.ListSessions(t.Context(), tc.list)
		if got := fmt.Sprintf("%s of %d", sessionIDs(page.GetSessions()), page.GetTotal()); err != nil || got != tc.want {
			t.Errorf("%v: got %s, %v, want %s", tc.list, got, err, tc.want)
		}
	}
	first, err := client.ListSessions(t.Context(), &agentv1.ListSessionsRequest{UserId: "ada", Limit: 1})
	if err != nil || first.GetNextCursor() == "" {
		t.Fatalf("got %v, %v", first, err)
	}
	second, err := client.ListSessions(t.Context(), &agentv1.ListSessionsRequest{UserId: "ada", Limit: 1, Cursor: first.GetNextCursor()})
	if got := sessionIDs(second.GetSessions()); err != nil || got != "s0" || second.GetNextCursor() != "" || second.Total != nil || first.GetTotal() != 2 {
		t.Errorf("second page: got %v, %v", second, err)
	}
	for name, list := range map[string]*agentv1.ListSessionsRequest{
		"STATUS_INVALID": {Statuses: []string{"Active"}}, "CURSOR_INVALID": {Cursor: "x"}, "TAGS_INVALID": {Tags: []string{""}},
	} {
		_, err := client.ListSessions(t.Context(), list)
		wantReason(t, "list", err, name)
	}
}

func sessionIDs(sessions []*agentv1.Session) string {
	var ids []string
	for _, s := range sessions {
		ids = append(ids, s.GetSessionId())
	}
	return strings.Join(ids, " ")
}

func TestASessionNamesItsProperties(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "hi", UserId: "ada", OrganizationId: "acme", State: `{"a":1}`})
	if err != nil {
		t.Fatal(err)
	}
	found, err := client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	s := found.GetSession()
	if s.GetUserId() != "ada" || s.GetOrganizationId() != "acme" || s.GetCustomState() != `{"a":1}` || s.GetStatus() != "active" || found.GetRun().GetStatus() != "running" {
		t.Errorf("got %v", found)
	}
	updated, err := client.UpdateSession(t.Context(), &agentv1.UpdateSessionRequest{
		SessionId: "s1", ExpectedVersion: s.GetVersion(), Title: proto.String("Rome"), UserId: proto.String("bob"), Tags: &agentv1.Tags{Tags: []string{"trip"}},
		Metadata: &agentv1.Metadata{Pairs: map[string]string{"k": "v"}}, ExpiresAt: proto.Int64(4102444800000),
	})
	if err != nil || updated.GetVersion() != s.GetVersion()+1 {
		t.Fatalf("got %v, %v", updated, err)
	}
	_, err = client.UpdateSession(t.Context(), &agentv1.UpdateSessionRequest{SessionId: "s1", ExpectedVersion: s.GetVersion(), Title: proto.String("Paris")})
	wantReason(t, "an update of an older version", err, "VERSION_STALE")
	page, err := client.ListSessions(t.Context(), &agentv1.ListSessionsRequest{UserId: "bob", Tags: []string{"trip"}, Metadata: map[string]string{"k": "v"}})
	if err != nil || len(page.GetSessions()) != 1 || page.GetSessions()[0].GetTitle() != "Rome" || page.GetSessions()[0].GetExpiresAt() != 4102444800000 || page.GetSessions()[0].GetOrganizationId() != "acme" {
		t.Errorf("got %v, %v", page, err)
	}
	_, err = client.UpdateSession(t.Context(), &agentv1.UpdateSessionRequest{SessionId: "s1", Title: proto.String("a\nb")})
	wantReason(t, "a title of two lines", err, "TITLE_INVALID")
}

func TestADeletedSessionIsGoneWithItsRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	deleted, err := client.DeleteSession(t.Context(), &agentv1.DeleteSessionRequest{SessionId: "s1"})
	if err != nil || deleted.GetDeleted() != 1 {
		t.Errorf("got %v, %v", deleted, err)
	}
	_, err = client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "s1"})
	wantReason(t, "get", err, "SESSION_NOT_FOUND")
	_, err = client.DeleteSession(t.Context(), &agentv1.DeleteSessionRequest{SessionId: "s1"})
	wantReason(t, "delete again", err, "SESSION_NOT_FOUND")
}

func TestAWriteWhoseAnswerWasLostIsNotReportedAsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	version := h.State.Get("default", "s1").GetSession().GetVersion()
	h.State.LoseNext(1)
	_, err := client.UpdateSession(t.Context(), &agentv1.UpdateSessionRequest{SessionId: "s1", ExpectedVersion: version, Title: proto.String("Rome")})
	wantReason(t, "an update of a version", err, "STORE_UNAVAILABLE")
	h.State.LoseNext(1)
	if _, err := client.UpdateSession(t.Context(), &agentv1.UpdateSessionRequest{SessionId: "s1", Title: proto.String("Rome")}); err != nil {
		t.Errorf("an update of any version: got %v", err)
	}
	h.State.LoseNext(1)
	if deleted, err := client.DeleteSession(t.Context(), &agentv1.DeleteSessionRequest{SessionId: "s1"}); err != nil || deleted.GetDeleted() != 1 {
		t.Errorf("a delete: got %v, %v", deleted, err)
	}
	_, err = client.DeleteSession(t.Context(), &agentv1.DeleteSessionRequest{SessionId: "s1"})
	wantReason(t, "a later delete", err, "SESSION_NOT_FOUND")
}

func TestAStartTakesMessagesWithFiles(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	photo := &eventv1.FilePart{MediaType: "image/png", Url: "https://example.com/a.png", Filename: "a.png"}
	_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "What is it?", Messages: []*agentv1.InputMessage{
		{Id: "m1", Text: "Look.", Parts: []*agentv1.InputPart{{Part: &agentv1.InputPart_File{File: photo}}}},
		{Role: "user", Parts: []*agentv1.InputPart{{Part: &agentv1.InputPart_Text{Text: "There."}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	page, err := client.ListMessages(t.Context(), &agentv1.ListMessagesRequest{SessionId: "s1"})
	if err != nil || len(page.GetMessages()) != 3 || page.GetTotal() != 3 {
		t.Fatalf("got %v, %v", page, err)
	}
	first := page.GetMessages()[0].GetMessage()
	if first.GetId() != "m1" || len(first.GetParts()) != 2 || !proto.Equal(first.GetParts()[1].GetFile(), photo) {
		t.Errorf("got %v", first)
	}
	if got := page.GetMessages()[2].GetMessage().GetParts()[0].GetText().GetText(); got != "What is it?" {
		t.Errorf("last message: got %q", got)
	}
	for name, message := range map[string]*agentv1.InputMessage{"a role": {Role: "assistant", Text: "x"}, "no content": {}, "an empty part": {Parts: []*agentv1.InputPart{{}}}} {
		_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s2", Messages: []*agentv1.InputMessage{message}})
		wantReason(t, name, err, "MESSAGE_INVALID")
	}
}

func TestListedMessagesShowClientsThePublicErrorAlone(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	result := ToolMessage(1, "c1", "")
	failed := result.GetParts()[0].GetToolResult()
	failed.Result, failed.Success, failed.Error, failed.PublicError = "", false, "panic in db-7", "The service failed."
	h.begin(t, "s1", "hi", nil).Complete(AssistantMessage(1, "", "c1"), result, AssistantMessage(2, "Sorry."))
	page, err := apiClient(t, h).ListMessages(t.Context(), &agentv1.ListMessagesRequest{SessionId: "s1", Offset: 2, Limit: 1})
	if err != nil || len(page.GetMessages()) != 1 {
		t.Fatalf("got %v, %v", page, err)
	}
	got := page.GetMessages()[0].GetMessage().GetParts()[0].GetToolResult()
	if got.GetError() != "The service failed." || got.GetPublicError() != "" {
		t.Errorf("got %v", got)
	}
}

func TestARequestHasAtMost1000Messages(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	many := slices.Repeat([]*agentv1.InputMessage{{Text: "x"}}, 1001)
	for name, request := range map[string]proto.Message{
		"Start":          &agentv1.StartRequest{SessionId: "s2", Messages: many},
		"AppendMessages": &agentv1.AppendMessagesRequest{SessionId: "s1", Messages: many},
		"Resume":         &agentv1.ResumeRequest{SessionId: "s1", Message: "x", AppendMessages: many},
	} {
		_, err := call(t.Context(), client, name, request)
		wantReason(t, name, err, "MESSAGE_INVALID")
		if f, _ := fault.From(rpc.FromConnect(err)); f == nil || !strings.Contains(f.Detail, "1000") {
			t.Errorf("%s: got %v, want the limit", name, err)
		}
	}
	if _, err := client.AppendMessages(t.Context(), &agentv1.AppendMessagesRequest{SessionId: "s1", Messages: many[:1000]}); err != nil {
		t.Errorf("1000 messages: got %v", err)
	}
}

func TestMessagesAreAppendedOnceAndRemoved(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	playTurn(t, h, "default", "s1")
	more := &agentv1.AppendMessagesRequest{SessionId: "s1", Messages: []*agentv1.InputMessage{{Id: "m1", Role: "system", Text: "Be brief.", Hidden: true}, {Id: "m2", Role: "assistant", Text: "Yes."}}}
	for range 2 {
		if appended, err := client.AppendMessages(t.Context(), more); err != nil || appended.GetMessageCount() != 4 {
			t.Errorf("append: got %v, %v", appended, err)
		}
	}
	h.State.FailNext(1)
	appended, err := client.AppendMessages(t.Context(), &agentv1.AppendMessagesRequest{SessionId: "s1", Messages: []*agentv1.InputMessage{{Text: "Once."}}})
	if err != nil || appended.GetMessageCount() != 5 {
		t.Errorf("append through an outage: got %v, %v", appended, err)
	}
	if page, err := client.ListMessages(t.Context(), &agentv1.ListMessagesRequest{SessionId: "s1", Offset: 2}); err != nil || page.GetTotal() != 5 || page.GetMessages()[0].GetMessage().GetId() != "m1" || page.GetMessages()[0].GetOrdinal() != 2 {
		t.Errorf("list: got %v, %v", page, err)
	}
	for range 2 {
		if cut, err := client.TruncateMessages(t.Context(), &agentv1.TruncateMessagesRequest{SessionId: "s1", Count: 2}); err != nil || cut.GetMessageCount() != 2 {
			t.Errorf("truncate: got %v, %v", cut, err)
		}
	}
	_, err = client.TruncateMessages(t.Context(), &agentv1.TruncateMessagesRequest{SessionId: "s1", Count: 3})
	wantReason(t, "truncate to more than there are", err, "COUNT_INVALID")
}

func TestACheckpointIsBranchedAndRewoundTo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	run := playTurn(t, h, "default", "s1")
	list, err := client.ListCheckpoints(t.Context(), &agentv1.ListCheckpointsRequest{SessionId: "s1"})
	if err != nil || len(list.GetCheckpoints()) != 1 || list.GetTotal() != 1 || list.GetCheckpoints()[0].GetRunId() != run.GetRunId() {
		t.Fatalf("got %v, %v", list, err)
	}
	id := list.GetCheckpoints()[0].GetCheckpointId()
	if one, err := client.GetCheckpoint(t.Context(), &agentv1.GetCheckpointRequest{SessionId: "s1", CheckpointId: id}); err != nil || one.GetCheckpoint().GetCustomState() != "{}" {
		t.Errorf("get: got %v, %v", one, err)
	}
	branch, err := client.Branch(t.Context(), &agentv1.BranchRequest{SessionId: "s1", CheckpointId: id})
	if err != nil || branch.GetSession().GetStatus() != "paused" || branch.GetSession().GetMessageCount() != 2 || branch.GetSession().GetSessionId() == "" {
		t.Errorf("branch: got %v, %v", branch, err)
	}
	named := &agentv1.BranchRequest{SessionId: "s1", CheckpointId: id, NewSessionId: "s2"}
	if branch, err := client.Branch(t.Context(), named); err != nil || branch.GetSession().GetSessionId() != "s2" {
		t.Errorf("named branch: got %v, %v", branch, err)
	}
	_, err = client.Branch(t.Context(), named)
	wantReason(t, "branch again", err, "SESSION_EXISTS")
	if _, err := client.AppendMessages(t.Context(), &agentv1.AppendMessagesRequest{SessionId: "s1", Messages: []*agentv1.InputMessage{{Text: "x"}}}); err != nil {
		t.Fatal(err)
	}
	if rewound, err := client.Rewind(t.Context(), &agentv1.RewindRequest{SessionId: "s1", CheckpointId: id}); err != nil || rewound.GetSession().GetMessageCount() != 2 {
		t.Errorf("rewind: got %v, %v", rewound, err)
	}
	_, err = client.Rewind(t.Context(), &agentv1.RewindRequest{SessionId: "s1", CheckpointId: "none"})
	wantReason(t, "rewind to nothing", err, "CHECKPOINT_NOT_FOUND")
}

func TestAgentsAreListedWithTheirDefault(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	list, err := apiClient(t, h).ListAgents(t.Context(), &agentv1.ListAgentsRequest{})
	var got []string
	for _, a := range list.GetAgents() {
		got = append(got, a.GetAgentType())
	}
	if err != nil || !slices.Equal(got, []string{"demo", "other"}) || list.GetDefaultAgent() != "demo" {
		t.Errorf("got %v, %v", list, err)
	}
}
