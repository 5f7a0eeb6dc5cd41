package gateway_test

import (
	"fmt"
	"slices"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestAClientOfApprovalsPagesThroughAllThatWait(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := apiClient(t, h)
	for i := range 5 {
		id := fmt.Sprintf("s%d", i)
		if _, err := h.State.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "default", SessionId: id, AgentType: "demo", UserId: fmt.Sprintf("u%d", i%2)}); err != nil {
			t.Fatal(err)
		}
		playAsk(h.AwaitRun(t, "default", id, nil), 1, "c"+id, "y"+id)
	}
	// all follows the cursors. It answers a call of each page meanwhile.
	all := func(r *agentv1.ListPendingCallsRequest, answer bool) (ids []string) {
		for {
			page, err := client.ListPendingCalls(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.GetCalls() {
				ids = append(ids, c.GetToolCallId())
			}
			if answer {
				c := page.GetCalls()[len(page.GetCalls())-1]
				_, err := client.SubmitToolResult(t.Context(), &agentv1.SubmitToolResultRequest{
					SessionId: c.GetRootSessionId(), ToolCallId: c.GetToolCallId(),
					Answer: &agentv1.SubmitToolResultRequest_Approval{Approval: &agentv1.ApprovalResponse{ApprovalId: c.GetApprovalId(), Approved: true}},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if r.Cursor = page.GetNextCursor(); r.Cursor == "" {
				return ids
			}
		}
	}
	for _, tc := range []struct {
		list *agentv1.ListPendingCallsRequest
		want []string
	}{
		{&agentv1.ListPendingCallsRequest{Limit: 3}, []string{"cs0", "ys0", "cs1", "ys1", "cs2", "ys2", "cs3", "ys3", "cs4", "ys4"}},
		{&agentv1.ListPendingCallsRequest{UserId: "u1", Kind: agentv1.CallKind_CALL_KIND_CLIENT_TOOL}, []string{"cs1", "cs3"}},
		{&agentv1.ListPendingCallsRequest{AgentType: "other"}, nil},
		{&agentv1.ListPendingCallsRequest{ToolName: "add", UserId: "u0", Limit: 1}, []string{"cs0", "ys0", "cs2", "ys2", "cs4", "ys4"}},
	} {
		got := all(tc.list, false)
		slices.Sort(got)
		slices.Sort(tc.want) // sessions of one millisecond are in the order of their ids
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v: got %v, want %v", tc.list, got, tc.want)
		}
	}
	approvals := all(&agentv1.ListPendingCallsRequest{Kind: agentv1.CallKind_CALL_KIND_APPROVAL, Limit: 1}, true)
	if len(approvals) != 5 {
		t.Errorf("answered while listing: got %v", approvals)
	}
	if left := all(&agentv1.ListPendingCallsRequest{Kind: agentv1.CallKind_CALL_KIND_APPROVAL}, false); len(left) != 0 {
		t.Errorf("left: got %v", left)
	}
	page, err := client.ListPendingCalls(t.Context(), &agentv1.ListPendingCallsRequest{Limit: 1})
	if c := page.GetCalls()[0]; err != nil || c.GetAgentType() != "demo" || c.GetUserId() == "" || c.GetRootSessionId() != c.GetSessionId() || c.GetCreatedAt() == 0 {
		t.Errorf("got %v, %v", page, err)
	}
	for reason, r := range map[string]*agentv1.ListPendingCallsRequest{
		"KIND_INVALID": {Kind: 3}, "CURSOR_INVALID": {Cursor: "AQ"}, "ID_INVALID": {ToolName: "a\x00"},
	} {
		_, err := client.ListPendingCalls(t.Context(), r)
		wantReason(t, "list", err, reason)
	}
}
