package server

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxScannedCalls bounds the calls examined for a page of a selective filter.
const maxScannedCalls = 5000

// ListOpenCalls implements statev1.CallServiceServer.
func (s *callService) ListOpenCalls(ctx context.Context, r *statev1.ListOpenCallsRequest) (*statev1.ListOpenCallsResponse, error) {
	x := s.runner.read(r)
	q := readCallQuery(x, r)
	if x.err != nil {
		return nil, x.err
	}
	by := x.by
	if r.GetOwnOnly() {
		by.Actor = ""
	}
	page, next, err := s.openCalls(ctx, r.GetTenant(), q, by)
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
		if size += proto.Size(out); size > q.MaxBytes && i > 0 {
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

// openCalls adds, for the caller of a single user, the calls of other users that it may approve.
func (s *callService) openCalls(
	ctx context.Context,
	tenant string,
	q store.CallQuery,
	by session.Caller,
) ([]store.OpenCall, *store.CallPlace, error) {
	own, next, err := s.lister.OpenCalls(ctx, tenant, q)
	if err != nil || by.Owner == "" || !session.IsIdentified(by.Actor) {
		return own, next, err
	}
	q.UserID, q.ApprovableBy = "", by.Actor
	others, nextOther, err := s.lister.OpenCalls(ctx, tenant, q)
	if err != nil {
		return nil, nil, err
	}
	if next == nil || nextOther != nil && nextOther.Compare(*next) < 0 {
		next = nextOther
	}
	page := mergeCalls(own, others, next)
	if len(page) > q.Limit {
		last := page[q.Limit-1].Place()
		page, next = page[:q.Limit], &last
	}
	return page, next, nil
}

// mergeCalls returns the calls of both lists up to a place, nil for all, each once and in order.
func mergeCalls(own, others []store.OpenCall, end *store.CallPlace) []store.OpenCall {
	all := slices.Concat(own, others)
	compare := func(a, b store.OpenCall) int { return a.Place().Compare(b.Place()) }
	slices.SortFunc(all, compare)
	all = slices.CompactFunc(all, func(a, b store.OpenCall) bool { return compare(a, b) == 0 })
	return slices.DeleteFunc(all, func(c store.OpenCall) bool { return end != nil && c.Place().Compare(*end) > 0 })
}

// readCallQuery reads the conditions. Invalid (ID_INVALID, KIND_INVALID, LIMIT_INVALID,
// CURSOR_INVALID), Denied (OWNER_REFUSED).
func readCallQuery(x *reader, r *statev1.ListOpenCallsRequest) store.CallQuery {
	q := store.CallQuery{
		Limit: x.pageLimit(r.GetLimit()), MaxBytes: x.limits.PageBytes, MaxScanned: maxScannedCalls,
	}
	x.id("tenant", r.GetTenant())
	q.UserID = x.user(r.GetUserId())
	q.AgentType = x.optionalID("agent_type", r.GetAgentType())
	q.ToolName = x.optionalID("tool_name", r.GetToolName())
	if r.GetKind() != statev1.CallKind_CALL_KIND_UNSPECIFIED {
		if q.Kind = callKindIn[r.GetKind()]; q.Kind == "" || q.Kind == session.SubAgent {
			x.refuse("KIND_INVALID", "%s is not a kind of call that waits for the outside", r.GetKind())
		}
	}
	if r.GetCursor() != "" {
		q.After = readCallPlace(x, r.GetCursor())
	}
	return q
}

// callCursor encodes the place of a call. A zero byte separates the ids of the root and the call.
func callCursor(p store.CallPlace) string {
	return encodeCursor(callCursors, p.CreatedAt, p.RootID+"\x00"+p.CallID)
}

// readCallPlace gives Invalid (CURSOR_INVALID).
func readCallPlace(x *reader, cursor string) store.CallPlace {
	at, id := readCursor(x, callCursors, cursor)
	root, call, _ := strings.Cut(id, "\x00")
	if idProblem(root) != "" || idProblem(call) != "" {
		x.fail(errCursor)
	}
	return store.CallPlace{CreatedAt: at, RootID: root, CallID: call}
}
