package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ListSessions implements statev1.SessionServiceServer.
func (s *sessionService) ListSessions(ctx context.Context, r *statev1.ListSessionsRequest) (*statev1.ListSessionsResponse, error) {
	x := s.runner.read(r)
	q := readSessionQuery(x, r)
	if x.err != nil {
		return nil, x.err
	}
	limit := q.Limit
	q.Limit++ // one more row shows whether more follow
	rows, err := s.lister.Sessions(ctx, r.GetTenant(), q)
	if err != nil {
		return nil, err
	}
	answer := s.sessionPage(rows, limit)
	answer.Offset = r.GetOffset()
	if r.GetCursor() != "" {
		return answer, nil
	}
	most := s.runner.limits.Count
	if r.GetExactTotal() {
		answer.Total, err = s.lister.CountSessions(ctx, r.GetTenant(), q, 0)
		return answer, err
	}
	total, err := s.lister.CountSessions(ctx, r.GetTenant(), q, most+1)
	answer.Total, answer.TotalIsMinimum = min(total, int64(most)), total > int64(most)
	return answer, err
}

// sessionPage makes a page of rows. One row beyond the limit means more follow. A page within
// PageBytes may have to end earlier: its limit is then its length, so the next offset stays
// right.
func (s *sessionService) sessionPage(rows []session.Session, limit int) *statev1.ListSessionsResponse {
	page, more := splitPage(rows, limit)
	answer := &statev1.ListSessionsResponse{Limit: int32(limit), HasMore: more}
	size := 0
	for i := range page {
		out := sessionOut(&page[i])
		if size += proto.Size(out); size > s.runner.limits.PageBytes && i > 0 {
			answer.Limit, answer.HasMore = int32(i), true
			break
		}
		answer.Sessions = append(answer.Sessions, out)
	}
	if answer.HasMore {
		last := page[len(answer.Sessions)-1]
		answer.Next = encodeCursor(sessionCursors, last.CreatedAt, last.SessionID)
	}
	return answer
}

// readSessionQuery reads the conditions.
//
// Invalid (ID_INVALID, LIMIT_INVALID, CURSOR_INVALID, STATUS_INVALID, TAGS_INVALID, METADATA_INVALID), Denied
// (OWNER_REFUSED).
func readSessionQuery(x *reader, r *statev1.ListSessionsRequest) store.SessionQuery {
	const mostStatuses = 16
	q := store.SessionQuery{
		Limit: x.pageLimit(r.GetLimit()), Offset: x.offset(r.GetOffset()),
		From: session.Millis(r.GetCreatedFrom()), Before: session.Millis(r.GetCreatedBefore()),
	}
	if r.GetCursor() != "" {
		if q.Offset != 0 {
			x.refuse("CURSOR_INVALID", "the request has a cursor and an offset; give one of them")
		}
		q.After = readSessionPlace(x, r.GetCursor())
	}
	x.id("tenant", r.GetTenant())
	parent := x.optionalID("parent_session_id", r.GetParentSessionId())
	if _, ok := r.GetFamily().(*statev1.ListSessionsRequest_ParentSessionId); ok {
		x.id("parent_session_id", parent)
	}
	for _, f := range []struct {
		value string
		facet func(string) session.Facet
	}{
		{x.user(r.GetUserId()), session.UserFacet},
		{x.optionalID("organization_id", r.GetOrganizationId()), session.OrganizationFacet},
		{x.optionalID("agent_type", r.GetAgentType()), session.AgentFacet},
		{parent, session.ParentFacet},
	} {
		if f.value != "" {
			q.All = append(q.All, f.facet(f.value))
		}
	}
	if r.GetRoots() {
		q.All = append(q.All, session.ParentFacet(""))
	}
	for _, tag := range x.tags(r.GetTags()) {
		q.All = append(q.All, session.TagFacet(tag))
	}
	for key, value := range x.textMetadata(r.GetMetadata()) {
		q.All = append(q.All, session.MetadataFacet(key, value))
	}
	if n := len(r.GetStatuses()); n > mostStatuses {
		x.refuse("STATUS_INVALID", "there are %d statuses; the limit is %d", n, mostStatuses)
	}
	for _, status := range x.statuses(r.GetStatuses()) {
		q.Any = append(q.Any, session.StatusFacet(status))
	}
	if len(q.Any) == 1 {
		q.All = append(q.All, q.Any[0])
		q.Any = nil
	}
	return q
}

// A cursor names the last entry of its page: the kind of the list, the entry's time of creation in
// eight bytes, and its id, in base64.

// The kinds of lists with cursors.
const (
	sessionCursors = 1
	callCursors    = 2
)

var errCursor = invalid("CURSOR_INVALID", "the cursor is not from a page of this list; start without it")

func encodeCursor(list byte, at session.Millis, id string) string {
	text := binary.BigEndian.AppendUint64([]byte{list}, uint64(at))
	return base64.RawURLEncoding.EncodeToString(append(text, id...))
}

// readSessionPlace gives Invalid (CURSOR_INVALID).
func readSessionPlace(x *reader, cursor string) *store.SessionPlace {
	at, id := readCursor(x, sessionCursors, cursor)
	if idProblem(id) != "" {
		x.fail(errCursor)
	}
	return &store.SessionPlace{CreatedAt: at, SessionID: id}
}

// readCursor gives Invalid (CURSOR_INVALID).
func readCursor(x *reader, list byte, cursor string) (at session.Millis, id string) {
	const idAt = 1 + 8
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(text) <= idAt || text[0] != list {
		x.fail(errCursor)
		return 0, ""
	}
	return session.Millis(binary.BigEndian.Uint64(text[1:idAt])), string(text[idAt:])
}

// pageLimit returns the limit of a page: 1 to 200, 50 for 0. Invalid (LIMIT_INVALID).
func (x *reader) pageLimit(limit int32) int {
	const highest, byDefault = 200, 50
	return int(cmp.Or(number(x, "LIMIT_INVALID", "limit", limit, highest, "give 1 to 200, or 0 for 50"), byDefault))
}

func (x *reader) offset(offset int32) int {
	return int(number(x, "LIMIT_INVALID", "offset", offset, math.MaxInt32, "the first one is 0"))
}

// splitPage splits a page from rows. One row beyond the limit means more follow.
func splitPage[R any](rows []R, limit int) (page []R, more bool) {
	return rows[:min(limit, len(rows))], len(rows) > limit
}
