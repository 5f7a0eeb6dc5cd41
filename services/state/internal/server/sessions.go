package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

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
	counts     store.Counts
	runner     *runner
	admissions *admissions
	queue      *queue
	limits     Limits
	clock      clock
	ids        ids
}

// CreateSession implements statev1.SessionServiceServer.
func (s *sessionService) CreateSession(ctx context.Context, r *statev1.CreateSessionRequest) (*statev1.CreateSessionResponse, error) {
	command, err := s.newCreate(r)
	if err != nil {
		return nil, err
	}
	if err := s.grants.creates(ctx, command.Key, r); err != nil {
		return nil, err
	}
	created, err := spread(ctx, s.runner.by(r.GetCaller()), targetOf(r, command.Key, command.Need()), proto.Size(r), command.Now, command.Decide)
	if fault.ReasonOf(err) == "AGENT_NOT_FOUND" {
		return nil, withKnownAgents(ctx, s.registry, err)
	}
	if err != nil {
		return nil, err
	}
	return &statev1.CreateSessionResponse{Session: sessionOut(&created)}, nil
}

// newCreate checks and converts the request.
func (s *sessionService) newCreate(r *statev1.CreateSessionRequest) (session.Create, error) {
	if err := cmp.Or(checkID("tenant", r.GetTenant()),
		checkCaller(r.GetCaller()),
		checkOptionalID("session_id", r.GetSessionId()),
		checkOptionalID("agent_type", r.GetAgentType()),
		checkOptionalID("user_id", r.GetUserId()),
		checkOptionalID("organization_id", r.GetOrganizationId()),
		checkParent(r.GetParent()),
		s.limits.checkProperties(r.GetTags(), r.GetMetadata(), r.GetCustomState())); err != nil {
		return session.Create{}, err
	}
	user, err := callerIn(r.GetCaller()).User(r.GetUserId())
	if err != nil {
		return session.Create{}, err
	}
	command := session.Create{
		Key: session.Key{Tenant: r.GetTenant(), SessionID: r.GetSessionId()}, AgentType: r.GetAgentType(),
		ParentID: r.GetParent().GetSessionId(), Child: newChildIn(r.GetParent()),
		Owner: r.GetCaller().GetOwner(), UserID: user, OrganizationID: r.GetOrganizationId(), Tags: r.GetTags(), Metadata: r.GetMetadata(),
		State: r.GetCustomState(), ExpiresAt: session.Millis(max(r.GetExpiresAt(), 0)), MaxTree: s.limits.Tree, Schemas: s.runner.schemas, Now: s.clock.millis(),
	}
	if command.SessionID == "" {
		command.SessionID = s.ids.session()
	}
	if command.State == "" {
		command.State = "{}"
	}
	return command, nil
}

// GetSession implements statev1.SessionServiceServer.
func (s *sessionService) GetSession(ctx context.Context, r *statev1.GetSessionRequest) (*statev1.GetSessionResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := s.grants.reads(ctx, key); err != nil {
		return nil, err
	}
	found, err := readerOf(r, s.store).Session(ctx, key)
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
	if id := r.GetMessageOfRun(); id != "" && id != found.Session.CurrentRunID {
		if err := checkID("message_of_run", id); err != nil {
			return nil, err
		}
		if run, err = readerOf(r, s.store).Run(ctx, key, id); err != nil {
			return nil, err
		}
	}
	if run != nil {
		runs, err := messageRuns(ctx, readerOf(r, s.store), key, run, found.Current)
		if err != nil {
			return nil, err
		}
		answer.MessageRuns = runsOut(key, runs)
	}
	return answer, nil
}

// DeleteSession implements statev1.SessionServiceServer.
func (s *sessionService) DeleteSession(ctx context.Context, r *statev1.DeleteSessionRequest) (*statev1.DeleteSessionResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	removed, err := deleteSession(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, session.DeleteSession{}.Need()))
	if err != nil {
		return nil, err
	}
	return &statev1.DeleteSessionResponse{Deleted: int32(removed["sessions"]), Removed: removedOut(removed)}, nil
}

// deleteSession deletes the session and all below it, and counts the removed sessions.
func deleteSession(ctx context.Context, r *runner, target session.Target) (session.Removed, error) {
	const bytes = 100 // that the command holds
	command := session.DeleteSession{Key: target.Key}
	var seen []*session.View
	return spreadAll(ctx, r, nil, []session.Target{target}, bytes, r.clock.millis(), func(views ...*session.View) (*session.Change, session.Removed, error) {
		seen = views
		own, err := command.Decide(views[0])
		return own, nil, err
	}, func(changes []*session.Change, removed *session.Removed) {
		*removed = session.CountRemoved(seen, changes)
	})
}

// UpdateSession implements statev1.SessionServiceServer.
func (s *sessionService) UpdateSession(ctx context.Context, r *statev1.UpdateSessionRequest) (*statev1.UpdateSessionResponse, error) {
	command, err := s.newUpdate(r)
	if err != nil {
		return nil, err
	}
	version, err := spread(ctx, s.runner.by(r.GetCaller()), targetOf(r, command.Key, command.Need()), proto.Size(r), command.Now, alone(command.Decide))
	if err != nil {
		return nil, err
	}
	return &statev1.UpdateSessionResponse{Version: version}, nil
}

// newUpdate checks and converts the request.
func (s *sessionService) newUpdate(r *statev1.UpdateSessionRequest) (session.UpdateSession, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return session.UpdateSession{}, err
	}
	if err := cmp.Or(checkOptionalID("user_id", r.GetUserId()),
		checkOptionalID("organization_id", r.GetOrganizationId()),
		s.limits.checkTitle(r.GetTitle()),
		s.limits.checkProperties(r.GetTags().GetTags(), r.GetMetadata().GetPairs(), "")); err != nil {
		return session.UpdateSession{}, err
	}
	if owner := r.GetCaller().GetOwner(); owner != "" && r.UserId != nil && r.GetUserId() != owner {
		return session.UpdateSession{}, session.OwnerRefused(owner, r.GetUserId())
	}
	command := session.UpdateSession{
		Key: key, Title: r.Title, UserID: r.UserId, OrganizationID: r.OrganizationId, ExpectedVersion: r.GetExpectedVersion(), Now: s.clock.millis(),
	}
	if r.GetTags() != nil {
		tags := r.GetTags().GetTags()
		command.Tags = &tags
	}
	if r.GetMetadata() != nil {
		pairs := r.GetMetadata().GetPairs()
		command.Metadata = &pairs
	}
	if r.ExpiresAt != nil {
		at := session.Millis(max(r.GetExpiresAt(), 0))
		command.ExpiresAt = &at
	}
	return command, nil
}

// SetStatus implements statev1.SessionServiceServer.
func (s *sessionService) SetStatus(ctx context.Context, r *statev1.SetStatusRequest) (*statev1.SetStatusResponse, error) {
	command, err := s.newSetStatus(r)
	if err != nil {
		return nil, err
	}
	reason := r.GetInterruptReason()
	target := targetOf(r, command.Key, command.Need())
	set, err := spread(ctx, s.runner.byFor(r.GetCaller(), session.ActionStatusSet), target, proto.Size(r), command.Now, alone(func(v *session.View) (*session.Change, session.StatusSet, error) {
		decided := command
		if v.Session != nil && command.Status == session.Interrupted {
			decided.Interruption = &session.Interruption{RunID: v.Session.CurrentRunID, Reason: reason, At: command.Now}
		}
		return decided.Decide(v)
	}))
	if err != nil {
		return nil, err
	}
	return &statev1.SetStatusResponse{Ok: set.OK, Version: set.Version, Status: statusOut[set.Status]}, nil
}

// newSetStatus checks and converts the request.
func (s *sessionService) newSetStatus(r *statev1.SetStatusRequest) (session.SetStatus, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return session.SetStatus{}, err
	}
	expected, err := statusesIn(r.GetExpected())
	if err != nil {
		return session.SetStatus{}, err
	}
	if p := s.limits.textProblem(r.GetInterruptReason()); p != "" {
		return session.SetStatus{}, invalid("STATUS_INVALID", "interrupt_reason %s", p)
	}
	if code := r.GetFailure().GetCode(); code != "" && idProblem(code) != "" {
		return session.SetStatus{}, invalid("STATUS_INVALID", "failure.code %s", idProblem(code))
	}
	command := session.SetStatus{
		Key: key, Expected: expected, ExpectedVersion: r.GetExpectedVersion(), Status: statusIn[r.GetStatus()], Now: s.clock.millis(),
	}
	if r.GetFailure().GetError() != "" {
		command.Failure = s.limits.failureIn(r.GetFailure())
	}
	return command, nil
}

// PutSubSession implements statev1.SessionServiceServer.
func (s *sessionService) PutSubSession(ctx context.Context, r *statev1.PutSubSessionRequest) (*statev1.PutSubSessionResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := s.limits.checkSubSession(r.GetSubSession()); err != nil {
		return nil, err
	}
	command := session.PutChild{Key: key, Child: childIn(r.GetSubSession()), Now: s.clock.millis()}
	target := targetOf(r, key, command.Need())
	if _, err := spread(ctx, s.runner.byFor(r.GetCaller(), session.ActionSubSessionPut), target, proto.Size(r), command.Now, alone(silent(command.Decide))); err != nil {
		return nil, err
	}
	return &statev1.PutSubSessionResponse{}, nil
}

// GrantMethod implements statev1.SessionServiceServer.
func (s *sessionService) GrantMethod(ctx context.Context, r *statev1.GrantMethodRequest) (*statev1.GrantMethodResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err = cmp.Or(err, checkCaller(r.GetCaller())); err != nil {
		return nil, err
	}
	const longest = 24 * time.Hour
	ttl := time.Duration(r.GetTtlMs()) * time.Millisecond
	if ttl < time.Millisecond || r.GetTtlMs() > longest.Milliseconds() {
		return nil, invalid("TTL_INVALID", "ttl_ms is %d; give 1 to %d, a day", r.GetTtlMs(), longest.Milliseconds())
	}
	if err := s.checkForeign(ctx, key, callerIn(r.GetCaller())); err != nil {
		return nil, err
	}
	return &statev1.GrantMethodResponse{Grant: s.grants.signMethod(key, ttl)}, nil
}

// checkForeign gives NotFound (SESSION_NOT_FOUND) for an existing session that the caller does not reach.
func (s *sessionService) checkForeign(ctx context.Context, key session.Key, by session.Caller) error {
	if by.Owner == "" {
		return nil
	}
	found, err := s.store.Session(ctx, key)
	switch {
	case errors.Is(err, fault.NotFound):
		return nil
	case err == nil && !by.Reaches(&found.Session):
		return session.SessionNotFound(key)
	}
	return err
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
	for _, a := range agents {
		answer.Agents = append(answer.Agents, &statev1.Agent{AgentType: a.Type, Description: a.Description, OnBusy: busyOut[a.OnBusy], StateSchema: a.StateSchema, Remote: a.Remote})
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
	for _, a := range answer.GetAgents() {
		of := queued[a.GetAgentType()]
		a.Executors, a.LastAnnouncedAt = executors[a.GetAgentType()], int64(unserved[a.GetAgentType()])
		a.QueuedRuns, a.OldestQueuedAt = of.Runs, int64(of.Oldest)
	}
	return answer, nil
}
