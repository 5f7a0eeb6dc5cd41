package server

import (
	"cmp"
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxScannedCalls bounds the calls examined for a page whose filter few of them meet.
const maxScannedCalls = 5000

// ListOpenCalls implements statev1.CallServiceServer.
func (s *callService) ListOpenCalls(ctx context.Context, r *statev1.ListOpenCallsRequest) (*statev1.ListOpenCallsResponse, error) {
	q, err := callQuery(r)
	if err != nil {
		return nil, err
	}
	q.MaxBytes, q.MaxScanned = s.limits.PageBytes, maxScannedCalls
	page, next, err := s.lister.OpenCalls(ctx, r.GetTenant(), q)
	if err != nil {
		return nil, err
	}
	answer := &statev1.ListOpenCallsResponse{}
	size := 0
	for i := range page {
		call, err := callOut(&page[i].Call)
		if err != nil {
			return nil, err
		}
		out := &statev1.OpenCall{Call: call, RootSessionId: page[i].RootID, AgentType: page[i].AgentType, UserId: page[i].UserID}
		if size += proto.Size(out); size > s.limits.PageBytes && i > 0 {
			last := page[i-1].Place()
			next = &last
			break
		}
		answer.Calls = append(answer.Calls, out)
	}
	if next != nil {
		answer.Next = callCursor(*next)
	}
	return answer, nil
}

// callQuery checks and converts the request. Invalid (ID_INVALID, KIND_INVALID, LIMIT_INVALID,
// CURSOR_INVALID).
func callQuery(r *statev1.ListOpenCallsRequest) (store.CallQuery, error) {
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkID("tenant", r.GetTenant()),
		checkOptionalID("user_id", r.GetUserId()),
		checkOptionalID("agent_type", r.GetAgentType()),
		checkOptionalID("tool_name", r.GetToolName())); err != nil {
		return store.CallQuery{}, err
	}
	q := store.CallQuery{UserID: r.GetUserId(), AgentType: r.GetAgentType(), ToolName: r.GetToolName(), Limit: limit}
	if r.GetKind() != statev1.CallKind_CALL_KIND_UNSPECIFIED {
		kind, known := callKindIn[r.GetKind()]
		if !known || kind == session.SubAgent {
			return q, invalid("KIND_INVALID", "%s is not a kind of call that clients answer", r.GetKind())
		}
		q.Kind = kind
	}
	if r.GetCursor() != "" {
		q.After, err = callPlace(r.GetCursor())
	}
	return q, err
}

// callCursor encodes the place of a call. A zero byte separates the ids of the root and the call.
func callCursor(p store.CallPlace) string {
	return encodeCursor(callCursors, p.CreatedAt, p.RootID+"\x00"+p.CallID)
}

// callPlace gives Invalid (CURSOR_INVALID).
func callPlace(cursor string) (store.CallPlace, error) {
	at, id, err := decodeCursor(callCursors, cursor)
	root, call, _ := strings.Cut(id, "\x00")
	if err == nil && (idProblem(root) != "" || idProblem(call) != "") {
		err = errCursor
	}
	return store.CallPlace{CreatedAt: at, RootID: root, CallID: call}, err
}
