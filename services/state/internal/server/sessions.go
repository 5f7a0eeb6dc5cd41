package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// sessionService implements statev1.SessionServiceServer.
type sessionService struct {
	statev1.UnimplementedSessionServiceServer
	grants     *grants
	store      store.Reader
	files      store.Files
	lister     store.Lister
	registry   store.Registry
	stored     store.StoredAgents
	counts     store.Counts
	runner     *runner
	admissions *admissions
	queue      *queue
}

// CreateSession implements statev1.SessionServiceServer.
func (s *sessionService) CreateSession(ctx context.Context, r *statev1.CreateSessionRequest) (*statev1.CreateSessionResponse, error) {
	x := s.runner.read(r)
	create := session.Create{
		Key: session.Key{
			Tenant: x.id("tenant", r.GetTenant()), SessionID: cmp.Or(x.optionalID("session_id", r.GetSessionId()), x.ids.session()),
		},
		AgentType: x.optionalID("agent_type", r.GetAgentType()), ParentID: x.parentID(r.GetParent()), Child: x.child(r.GetParent()),
		Owner: x.by.Owner, UserID: x.user(r.GetUserId()), OrganizationID: x.optionalID("organization_id", r.GetOrganizationId()),
		Tags: x.tags(r.GetTags()), Metadata: x.textMetadata(r.GetMetadata()), State: x.initialState(r.GetCustomState()),
		ExpiresAt: session.Millis(max(r.GetExpiresAt(), 0)), MaxTree: x.limits.Tree, Schemas: s.runner.schemas, Now: x.now,
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.creates(ctx, create.Key, r); err != nil {
		return nil, err
	}
	target := session.Target{Key: create.Key, Need: create.Need(), Owner: x.by.Owner}
	created, err := run(ctx, s.runner, onViews(x, target, create.Decide))
	if fault.ReasonOf(err) == "AGENT_NOT_FOUND" {
		return nil, withKnownAgents(ctx, s.registry, s.stored, r.GetTenant(), err)
	}
	if err != nil {
		return nil, err
	}
	return &statev1.CreateSessionResponse{Session: sessionOut(&created)}, nil
}

// GetSession implements statev1.SessionServiceServer.
func (s *sessionService) GetSession(ctx context.Context, r *statev1.GetSessionRequest) (*statev1.GetSessionResponse, error) {
	x := s.runner.read(r)
	key, messageOf := x.key(r), x.optionalID("message_of_run", r.GetMessageOfRun())
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.reads(ctx, key); err != nil {
		return nil, err
	}
	found, err := x.owned(s.store).Session(ctx, key)
	if err != nil {
		return nil, err
	}
	answer := &statev1.GetSessionResponse{
		Session: sessionOut(&found.Session), CurrentRun: runOut(key, found.Current), SubSessions: childrenOut(found.Children),
	}
	if err := s.queue.explain(ctx, key, found.Current, answer.CurrentRun); err != nil {
		return nil, err
	}
	for i := range found.Waiting {
		answer.Waiting = append(answer.Waiting, runOut(key, &found.Waiting[i]))
	}
	if answer.Calls, err = callsOut(found.Calls); err != nil || r.MessageOfRun == nil {
		return answer, err
	}
	run := found.Current
	if messageOf != "" && messageOf != found.Session.CurrentRunID {
		if run, err = x.owned(s.store).Run(ctx, key, messageOf); err != nil {
			return nil, err
		}
	}
	if run != nil {
		runs, err := messageRuns(ctx, x.owned(s.store), key, run, found.Current)
		if err != nil {
			return nil, err
		}
		answer.MessageRuns = runsOut(key, runs)
	}
	return answer, nil
}

// DeleteSession implements statev1.SessionServiceServer.
func (s *sessionService) DeleteSession(ctx context.Context, r *statev1.DeleteSessionRequest) (*statev1.DeleteSessionResponse, error) {
	x := s.runner.read(r)
	key := x.key(r)
	if x.err != nil {
		return nil, x.err
	}
	removed, err := run(ctx, s.runner, deletion(x, key))
	if err != nil {
		return nil, err
	}
	return &statev1.DeleteSessionResponse{Deleted: int32(removed["sessions"]), Removed: removedOut(removed)}, nil
}

// deletion returns the command that deletes a session and all below it. Its answer counts the removed rows.
func deletion(x *reader, key session.Key) session.Command[session.Removed] {
	d := session.DeleteSession{Key: key}
	target := session.Target{Key: key, Need: d.Need(), Owner: x.by.Owner}
	c := onViews(x, target, func(views ...*session.View) (*session.Change, session.Removed, error) {
		change, err := d.Decide(views[0])
		return change, nil, err
	})
	c.Bytes = 100
	c.Amend = func(views []*session.View, changes []*session.Change, removed *session.Removed) {
		*removed = session.CountRemoved(views, changes)
	}
	return c
}

// UpdateSession implements statev1.SessionServiceServer.
func (s *sessionService) UpdateSession(ctx context.Context, r *statev1.UpdateSessionRequest) (*statev1.UpdateSessionResponse, error) {
	x := s.runner.read(r)
	command := session.UpdateSession{
		Key: x.key(r), Title: readTitle(x, r.Title), UserID: r.UserId, OrganizationID: r.OrganizationId,
		ExpectedVersion: r.GetExpectedVersion(), Now: x.now,
	}
	x.optionalID("user_id", r.GetUserId())
	x.optionalID("organization_id", r.GetOrganizationId())
	if r.GetTags() != nil {
		command.Tags = new(x.tags(r.GetTags().GetTags()))
	}
	if r.GetMetadata() != nil {
		command.Metadata = new(x.textMetadata(r.GetMetadata().GetPairs()))
	}
	if r.ExpiresAt != nil {
		command.ExpiresAt = new(session.Millis(max(r.GetExpiresAt(), 0)))
	}
	if r.UserId != nil {
		x.ownUser(r.GetUserId())
	}
	if x.err != nil {
		return nil, x.err
	}
	version, err := run(ctx, s.runner, onFamily(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.UpdateSessionResponse{Version: version}, nil
}

// SetStatus implements statev1.SessionServiceServer.
func (s *sessionService) SetStatus(ctx context.Context, r *statev1.SetStatusRequest) (*statev1.SetStatusResponse, error) {
	x := s.runner.read(r)
	command := session.SetStatus{
		Key: x.key(r), Expected: x.statuses(r.GetExpected()), ExpectedVersion: r.GetExpectedVersion(), Status: statusIn[r.GetStatus()],
		Reason: x.text("STATUS_INVALID", "interrupt_reason", r.GetInterruptReason()), Now: x.now,
	}
	if code := r.GetFailure().GetCode(); code != "" && idProblem(code) != "" {
		x.refuse("STATUS_INVALID", "failure.code %s", idProblem(code))
	}
	if r.GetFailure().GetError() != "" {
		command.Failure = x.failure(r.GetFailure())
	}
	if x.err != nil {
		return nil, x.err
	}
	c := onFamily(x, command.Key, command)
	c.Intent = session.ActionStatusSet
	set, err := run(ctx, s.runner, c)
	if err != nil {
		return nil, err
	}
	return &statev1.SetStatusResponse{Ok: set.OK, Version: set.Version, Status: statusOut[set.Status]}, nil
}

// PutSubSession implements statev1.SessionServiceServer.
func (s *sessionService) PutSubSession(ctx context.Context, r *statev1.PutSubSessionRequest) (*statev1.PutSubSessionResponse, error) {
	x := s.runner.read(r)
	command := session.PutChild{Key: x.key(r), Child: x.subSession(r.GetSubSession()), Now: x.now}
	if x.err != nil {
		return nil, x.err
	}
	c := onFamily(x, command.Key, withoutAnswer{command})
	c.Intent = session.ActionSubSessionPut
	if _, err := run(ctx, s.runner, c); err != nil {
		return nil, err
	}
	return &statev1.PutSubSessionResponse{}, nil
}

// GrantMethod implements statev1.SessionServiceServer.
func (s *sessionService) GrantMethod(ctx context.Context, r *statev1.GrantMethodRequest) (*statev1.GrantMethodResponse, error) {
	const longest = 24 * time.Hour
	x := s.runner.read(r)
	key := x.key(r)
	ttl := time.Duration(r.GetTtlMs()) * time.Millisecond
	if ttl < time.Millisecond || r.GetTtlMs() > longest.Milliseconds() {
		x.refuse("TTL_INVALID", "ttl_ms is %d; give 1 to %d, a day", r.GetTtlMs(), longest.Milliseconds())
	}
	if x.err != nil {
		return nil, x.err
	}
	if x.by.Owner != "" { // the method may create a session, but not take one of another user
		found, err := s.store.Session(ctx, key)
		if err == nil && !x.by.Reaches(&found.Session) {
			err = session.SessionNotFound(key)
		} else if errors.Is(err, fault.NotFound) {
			err = nil
		}
		if err != nil {
			return nil, err
		}
	}
	return &statev1.GrantMethodResponse{Grant: s.grants.signMethod(key, ttl)}, nil
}

// mostQueuedRuns is the most queued runs that ListAgents counts.
const mostQueuedRuns = 10_000

// ListAgents implements statev1.SessionServiceServer.
func (s *sessionService) ListAgents(ctx context.Context, r *statev1.ListAgentsRequest) (*statev1.ListAgentsResponse, error) {
	agents, err := s.registry.Agents(ctx)
	if err != nil {
		return nil, err
	}
	unserved, err := s.registry.Unserved(ctx)
	if err != nil {
		return nil, err
	}
	problems, err := s.registry.Problems(ctx)
	if err != nil {
		return nil, err
	}
	answer := &statev1.ListAgentsResponse{UnservedAgentTypes: slices.Sorted(maps.Keys(unserved)), Problems: problemsOut(problems)}
	answer.UnservedAgentTypes = slices.DeleteFunc(answer.UnservedAgentTypes, func(name string) bool { return name == session.StoredAgents })
	for i := range agents {
		answer.Agents = append(answer.Agents, agentOut(&agents[i]))
	}
	if r.GetTenant() == "" {
		return answer, nil
	}
	executors, err := s.registry.Executors(ctx)
	if err != nil {
		return nil, err
	}
	queued, err := s.counts.QueuedRuns(ctx, r.GetTenant(), mostQueuedRuns)
	if err != nil {
		return nil, err
	}
	if err := s.addStored(ctx, r.GetTenant(), executors, answer); err != nil {
		return nil, err
	}
	for _, a := range answer.GetAgents() {
		of, announced := queued[a.GetAgentType()], a.GetAgentType()
		if a.GetStored() != nil {
			announced = session.StoredAgents
		}
		a.Executors, a.LastAnnouncedAt = executors[announced], int64(unserved[announced])
		a.QueuedRuns, a.OldestQueuedAt = of.Runs, int64(of.Oldest)
	}
	return answer, nil
}

// readTitle gives Invalid (TITLE_INVALID).
func readTitle(x *reader, title *string) *string {
	if t := title; t != nil && (len(*t) > x.limits.TitleBytes || !utf8.ValidString(*t) || strings.ContainsFunc(*t, unicode.IsControl)) {
		x.refuse("TITLE_INVALID", "the title is longer than %d bytes, is not UTF-8, or has control characters", x.limits.TitleBytes)
	}
	return title
}
