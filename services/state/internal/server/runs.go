package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// StartRun implements statev1.RunServiceServer.
func (s *Server) StartRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	command, err := s.start(r)
	if err != nil {
		return nil, err
	}
	place := s.slotFor(command.AgentType)
	defer place.leave()
	target := session.Target{Key: command.Key, Need: place.need(command.Need())}
	started, err := run(ctx, s, []session.Target{target}, proto.Size(r), func(targets []session.Target, views []*session.View) ([]*session.Change, session.Started, error) {
		place.try()
		own, started, err := command.Decide(views...)
		if err != nil {
			return nil, started, err
		}
		family, err := s.family(targets, command.Now)
		if err != nil {
			return nil, started, err
		}
		changes, err := family.Spread(views, own)
		if len(changes) > 0 {
			started.Session = *changes[0].Session // another run may have begun
			err = place.claim(views[0], changes[0])
		}
		return changes, started, err
	})
	place.end(ctx, err)
	if fault.ReasonOf(err) == "AGENT_NOT_FOUND" {
		return nil, s.withKnownAgents(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	return &statev1.StartRunResponse{
		Session: sessionOut(&started.Session), Run: runOut(command.Key, &started.Run),
		SessionCreated: started.Created, Repeated: started.Repeated, Waiting: started.Waiting,
		AbandonedCalls: started.Abandoned,
	}, nil
}

// start checks the request and makes the command of it.
func (s *Server) start(r *statev1.StartRunRequest) (session.Start, error) {
	if err := s.config.Limits.checkStart(r); err != nil {
		return session.Start{}, err
	}
	hash, err := startPrint(r)
	if err != nil {
		return session.Start{}, err
	}
	command := session.Start{
		Key: session.Key{Tenant: r.GetTenant(), SessionID: r.GetSessionId()}, AgentType: r.GetAgentType(),
		RequestKey: r.GetRequestKey(), RequestHash: hash, RunID: s.newRunID(), MessageID: "msg_" + s.newID(), Now: s.millis(),
		ParentID: r.GetParent().GetSessionId(), Child: bornIn(r.GetParent()), Resume: r.GetResume(),
		UserID: r.GetUserId(), OrganizationID: r.GetOrganizationId(), Tags: r.GetTags(), Metadata: r.GetMetadata(), State: r.GetCustomState(),
		RewindTo: r.GetRewindTo(), OnBusy: busyIn[r.GetOnBusy()], Limits: s.config.Limits.heart(),
	}
	if timeout := r.GetTimeoutMs(); timeout > 0 {
		command.DeadlineAt = command.Now + session.Millis(timeout)
	}
	if command.Ops, err = s.config.Limits.opsIn(r.GetStateOps()); err != nil {
		return session.Start{}, err
	}
	if command.Append, err = messagesIn(r.GetAppendMessages(), origin{now: command.Now, newID: s.newID}); err != nil {
		return session.Start{}, err
	}
	if command.Expect, err = expectIn(r.GetExpect()); err != nil {
		return session.Start{}, err
	}
	if r.GetAbandonCalls() {
		answer, err := abandoned()
		if err != nil {
			return session.Start{}, err
		}
		command.Abandon = always(answer)
	}
	if command.Answers, err = s.config.Limits.answersIn(r.GetAnswers()); err != nil {
		return session.Start{}, err
	}
	if r.GetTakeBack() != nil {
		command.TakeBack = takeBackIn(r.GetTakeBack())
	}
	if command.SessionID == "" {
		command.SessionID = s.sessionOf(r)
	}
	if command.State == "" {
		command.State = "{}"
	}
	command.Traceparent, command.Tracestate = traceIn(r.GetTraceparent(), r.GetTracestate())
	command.Messages, err = messagesIn(r.GetMessages(), origin{runID: command.RunID, now: command.Now, newID: s.newID})
	return command, err
}

// sessionOf makes the id of a session that the request does not name. With a
// request key it is made from that, so that a repetition meets the same session
// and its run.
func (s *Server) sessionOf(r *statev1.StartRunRequest) string {
	if r.GetRequestKey() == "" {
		return "ses_" + s.newID()
	}
	digest := sha256.Sum256([]byte(r.GetTenant() + "\x00" + r.GetRequestKey()))
	return "ses_" + hex.EncodeToString(digest[:16])
}

func (l Limits) checkStart(r *statev1.StartRunRequest) error {
	if err := checkID("tenant", r.GetTenant()); err != nil {
		return err
	}
	if err := checkOptionalIDs(map[string]string{
		"session_id": r.GetSessionId(), "agent_type": r.GetAgentType(), "request_key": r.GetRequestKey(),
		"user_id": r.GetUserId(), "organization_id": r.GetOrganizationId(),
	}); err != nil {
		return err
	}
	if err := checkParent(r.GetParent()); err != nil {
		return err
	}
	if err := l.checkUserMessages(r.GetMessages(), r.GetResume() || r.GetTakeBack().GetKeep() || len(r.GetAppendMessages()) > 0); err != nil {
		return err
	}
	if err := l.checkAppended(r.GetAppendMessages()); err != nil {
		return err
	}
	if err := checkHow(r); err != nil {
		return err
	}
	return l.checkBirth(r.GetTags(), r.GetMetadata(), r.GetCustomState())
}

// checkHow gives Invalid (TIMEOUT_INVALID, BUSY_POLICY_INVALID, REWIND_INVALID,
// ANSWER_INVALID, ID_INVALID).
func checkHow(r *statev1.StartRunRequest) error {
	const longest = 30 * 24 * time.Hour
	if timeout := r.GetTimeoutMs(); timeout < 0 || timeout > longest.Milliseconds() {
		return fault.New(fault.Invalid, "TIMEOUT_INVALID", "timeout_ms is %d; give 1 to %d, or 0 for none", timeout, longest.Milliseconds())
	}
	if err := checkBusy(r.GetOnBusy()); err != nil {
		return err
	}
	if len(r.GetAnswers()) > 0 && !r.GetAbandonCalls() {
		return fault.New(fault.Invalid, "ANSWER_INVALID", "answers come with abandon_calls; to answer calls and leave the others open, submit them")
	}
	switch back := r.GetTakeBack(); {
	case back != nil && (r.GetRewindTo() != "" || r.GetResume()):
		return fault.New(fault.Invalid, "REWIND_INVALID", "take_back begins a run of its own where it leads to; leave rewind_to and resume out")
	case back != nil:
		return checkID("take_back's message_id", back.GetMessageId())
	case r.GetRewindTo() != "":
		return checkCheckpointID(r.GetRewindTo())
	default:
		return nil
	}
}

func checkBusy(p statev1.BusyPolicy) error {
	if _, known := busyIn[p]; !known && p != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		return fault.New(fault.Invalid, "BUSY_POLICY_INVALID", "%s is no policy; REJECT, ENQUEUE, INTERRUPT and ROLLBACK are", p)
	}
	return nil
}

// withKnownAgents adds the agents that there are, as far as a fault can carry
// them.
func (s *Server) withKnownAgents(ctx context.Context, err error) error {
	const most = 100
	agents, listErr := s.store.Agents(ctx)
	f, ok := fault.From(err)
	if listErr != nil || !ok {
		return err
	}
	var types []string
	for _, a := range agents[:min(most, len(agents))] {
		types = append(types, a.Type)
	}
	return f.With("availableTypes", strings.Join(types, ","))
}

// GetRun implements statev1.RunServiceServer.
func (s *Server) GetRun(ctx context.Context, r *statev1.GetRunRequest) (*statev1.GetRunResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	run, err := s.store.Run(ctx, key, r.GetRunId())
	if err != nil {
		return nil, err
	}
	return &statev1.GetRunResponse{Run: runOut(key, run)}, nil
}

// ListRuns implements statev1.RunServiceServer. Those that wait come first, on
// the first page, and beside its limit: they have no turn to go on from.
func (s *Server) ListRuns(ctx context.Context, r *statev1.ListRunsRequest) (*statev1.ListRunsResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit, err := checkPage(r.GetLimit())
	if err != nil {
		return nil, err
	}
	if r.GetBeforeTurn() < 0 {
		return nil, fault.New(fault.Invalid, "LIMIT_INVALID", "before_turn is %d; give a turn, or 0 for the newest runs", r.GetBeforeTurn())
	}
	runs, err := s.store.Runs(ctx, key, r.GetBeforeTurn(), limit+1) // one more tells whether there is more
	if err != nil {
		return nil, err
	}
	page, more := pageOf(runs, limit)
	answer := &statev1.ListRunsResponse{HasMore: more}
	if r.GetBeforeTurn() == 0 {
		waiting, err := s.store.Waiting(ctx, key)
		if err != nil {
			return nil, err
		}
		for _, run := range slices.Backward(waiting) {
			answer.Runs = append(answer.Runs, runOut(key, &run))
		}
	}
	for i := range page {
		page[i].Outcome.Output = "" // a page of outputs may be larger than a message
		answer.Runs = append(answer.Runs, runOut(key, &page[i]))
	}
	return answer, nil
}

var stopEffects = map[session.StopEffect]statev1.RequestStopResponse_Effect{
	session.StopRequested: statev1.RequestStopResponse_EFFECT_REQUESTED,
	session.StopDone:      statev1.RequestStopResponse_EFFECT_DONE,
	session.StopNone:      statev1.RequestStopResponse_EFFECT_NONE,
}

// RequestStop implements statev1.RunServiceServer.
func (s *Server) RequestStop(ctx context.Context, r *statev1.RequestStopRequest) (*statev1.RequestStopResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkOptionalID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	kind, known := stopInKinds[r.GetKind()]
	if !known {
		return nil, fault.New(fault.Invalid, "STOP_INVALID", "%s is no way to stop a run; interrupt or abort it", r.GetKind())
	}
	if p := s.config.Limits.wrongText(r.GetReason()); p != "" {
		return nil, fault.New(fault.Invalid, "STOP_INVALID", "the reason %s", p)
	}
	command := session.RequestStop{Key: key, RunID: r.GetRunId(), Kind: kind, Reason: r.GetReason(), Now: s.millis()}
	stopped, err := spread(ctx, s, session.Target{Key: key, Need: command.Need()}, proto.Size(r), command.Now, alone(command.Decide))
	if err != nil {
		return nil, err
	}
	return &statev1.RequestStopResponse{Effect: stopEffects[stopped.Effect], RunId: stopped.RunID}, nil
}
