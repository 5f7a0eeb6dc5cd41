package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ListSessions implements statev1.SessionServiceServer.
func (s *sessionService) ListSessions(ctx context.Context, r *statev1.ListSessionsRequest) (*statev1.ListSessionsResponse, error) {
	q, err := s.limits.sessionQuery(r)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // one more row shows whether more follow
	rows, err := s.lister.Sessions(ctx, r.GetTenant(), q)
	if err != nil {
		return nil, err
	}
	answer := s.sessionPage(rows, limit)
	answer.Offset = r.GetOffset()
	if r.GetCursor() == "" {
		answer.Total, answer.TotalIsMinimum, err = s.countSessions(ctx, r, q)
	}
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
		if size += proto.Size(out); size > s.limits.PageBytes && i > 0 {
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

// countSessions counts the sessions of all pages, and reports whether it stopped counting.
func (s *sessionService) countSessions(ctx context.Context, r *statev1.ListSessionsRequest, q store.SessionQuery) (int64, bool, error) {
	limit := s.limits.Count
	if r.GetExactTotal() {
		total, err := s.lister.CountSessions(ctx, r.GetTenant(), q, 0)
		return total, false, err
	}
	total, err := s.lister.CountSessions(ctx, r.GetTenant(), q, limit+1)
	return min(total, int64(limit)), total > int64(limit), err
}

// sessionQuery checks and converts the request.
//
// Invalid (ID_INVALID, LIMIT_INVALID, CURSOR_INVALID, STATUS_INVALID, TAGS_INVALID,
// METADATA_INVALID).
func (l Limits) sessionQuery(r *statev1.ListSessionsRequest) (store.SessionQuery, error) {
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkOffset(r.GetOffset())); err != nil {
		return store.SessionQuery{}, err
	}
	q := store.SessionQuery{
		From: session.Millis(r.GetCreatedFrom()), Before: session.Millis(r.GetCreatedBefore()), Offset: int(r.GetOffset()), Limit: limit,
	}
	if r.GetCursor() != "" {
		if q.After, err = sessionPlace(r); err != nil {
			return store.SessionQuery{}, err
		}
	}
	user, err := callerIn(r.GetCaller()).User(r.GetUserId())
	if err != nil {
		return store.SessionQuery{}, err
	}
	q.All, q.Any, err = l.facets(r, user)
	return q, err
}

// facets returns the conditions of the request on sessions of the user, or of all for none.
func (l Limits) facets(r *statev1.ListSessionsRequest, user string) (all, anyOf []session.Facet, err error) {
	if err := l.checkFacets(r); err != nil {
		return nil, nil, err
	}
	for _, f := range []struct {
		value string
		facet func(string) session.Facet
	}{{user, session.UserFacet}, {r.GetOrganizationId(), session.OrganizationFacet}, {r.GetAgentType(), session.AgentFacet}, {r.GetParentSessionId(), session.ParentFacet}} {
		if f.value != "" {
			all = append(all, f.facet(f.value))
		}
	}
	if r.GetRoots() {
		all = append(all, session.ParentFacet(""))
	}
	for _, tag := range r.GetTags() {
		all = append(all, session.TagFacet(tag))
	}
	for key, value := range r.GetMetadata() {
		all = append(all, session.MetadataFacet(key, value))
	}
	statuses, err := statusesIn(r.GetStatuses())
	for _, status := range statuses {
		anyOf = append(anyOf, session.StatusFacet(status))
	}
	if len(anyOf) == 1 {
		return append(all, anyOf[0]), nil, err
	}
	return all, anyOf, err
}

func (l Limits) checkFacets(r *statev1.ListSessionsRequest) error {
	if err := cmp.Or(checkID("tenant", r.GetTenant()),
		checkOptionalID("user_id", r.GetUserId()),
		checkOptionalID("organization_id", r.GetOrganizationId()),
		checkOptionalID("agent_type", r.GetAgentType())); err != nil {
		return err
	}
	if _, ok := r.GetFamily().(*statev1.ListSessionsRequest_ParentSessionId); ok {
		if err := checkID("parent_session_id", r.GetParentSessionId()); err != nil {
			return err
		}
	}
	const mostStatuses = 16
	if len(r.GetStatuses()) > mostStatuses {
		return invalid("STATUS_INVALID", "there are %d statuses; the limit is %d", len(r.GetStatuses()), mostStatuses)
	}
	return l.checkProperties(r.GetTags(), r.GetMetadata(), "")
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

// decodeCursor gives Invalid (CURSOR_INVALID).
func decodeCursor(list byte, cursor string) (at session.Millis, id string, err error) {
	const idAt = 1 + 8
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(text) <= idAt || text[0] != list {
		return 0, "", errCursor
	}
	return session.Millis(binary.BigEndian.Uint64(text[1:idAt])), string(text[idAt:]), nil
}

// sessionPlace gives Invalid (CURSOR_INVALID).
func sessionPlace(r *statev1.ListSessionsRequest) (*store.SessionPlace, error) {
	if r.GetOffset() != 0 {
		return nil, invalid("CURSOR_INVALID", "the request has a cursor and an offset; give one of them")
	}
	at, id, err := decodeCursor(sessionCursors, r.GetCursor())
	if err == nil && idProblem(id) != "" {
		err = errCursor
	}
	return &store.SessionPlace{CreatedAt: at, SessionID: id}, err
}
