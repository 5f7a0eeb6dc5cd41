package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// StartRun implements statev1.RunServiceServer.
func (s *runService) StartRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	x := s.runner.read(r)
	command := s.readStart(x, r)
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.starts(ctx, r); err != nil {
		return nil, err
	}
	if err := checkFiles(ctx, s.files, r.GetTenant(), x.fileIDs); err != nil {
		return nil, err
	}
	// The row of the session tells what the request may leave open: the user whose quotas count, and whether an agent is
	// missing. The command then runs again.
	userID := cmp.Or(r.GetCaller().GetOwner(), r.GetUserId())
	var started session.Started
	for {
		var admitted admission
		var err error
		if r.GetParent() == nil { // the run of an executor waits for a run below it: it is never refused
			if admitted, err = s.admissions.admit(ctx, r.GetTenant(), userID, int64(command.Bytes)); err != nil {
				return nil, err
			}
		}
		command.Quotas = admitted.quotas
		started, err = run(ctx, s.runner, command)
		admitted.finish(err == nil && !started.Repeated)
		if err == nil {
			break
		}
		if other, ok := errors.AsType[*session.OtherUserError](err); ok {
			userID = other.UserID
			continue
		}
		switch reason := fault.ReasonOf(err); {
		case reason == "AGENT_REQUIRED" && command.AgentType == "":
			if command.AgentType, err = onlyAgent(ctx, s.registry, s.stored, r.GetTenant()); err != nil {
				return nil, err
			}
			command.Targets[0].Need.AgentType = command.AgentType
			continue
		case reason == "AGENT_NOT_FOUND":
			return nil, withKnownAgents(ctx, s.registry, s.stored, r.GetTenant(), err)
		}
		s.runner.meters.Refused(ctx, err)
		return nil, err
	}
	key := started.Session.Key
	var runs []session.Run // of the message
	if started.Repeated {
		var err error
		if runs, err = repeatedMessageRuns(ctx, x.owned(s.store), key, started); err != nil {
			return nil, err
		}
	}
	return &statev1.StartRunResponse{
		Session: sessionOut(&started.Session), Run: runOut(key, &started.Run), MessageRuns: runsOut(key, runs),
		SessionCreated: started.Created, Repeated: started.Repeated, Waiting: started.Waiting,
		AbandonedCalls: started.Abandoned, UnknownMessages: int32(started.Unknown), RemovedMessages: started.Removed,
		MissingMessages: int32(started.Missing),
	}, nil
}

// highestPriority bounds the priority of a run, above and below 0.
const highestPriority = 100

// readStart returns the command of the request's intent.
func (s *runService) readStart(x *reader, r *statev1.StartRunRequest) session.Command[session.Started] {
	sends := r.GetIntent() == nil || r.GetEdit() != nil
	post := session.RunRequest{
		DefaultAgent: x.optionalID("default_agent_type", r.GetDefaultAgentType()),
		Key:          session.Key{Tenant: x.id("tenant", r.GetTenant()), SessionID: x.optionalID("session_id", r.GetSessionId())}, By: x.by,
		AgentType: x.optionalID("agent_type", r.GetAgentType()), RequestKey: x.optionalID("request_key", r.GetRequestKey()),
		RunID: x.ids.run(), MessageID: x.ids.message(),
		LastSeenRunID: x.optionalID("seen_run_id", r.GetSeenRunId()), MustExist: r.GetMustExist(),
		RefuseUnknownAnswers: r.GetRefuseUnknownAnswers(),
		DeadlineAt:           x.deadline(r.GetTimeoutMs()), Priority: r.GetPriority(),
		OnBusy: readBusyPolicy(x, r.GetOnBusy()), DefaultOnBusy: readBusyPolicy(x, r.GetDefaultOnBusy()),
		Limits: x.limits.sessionLimits(), Schemas: s.runner.schemas, Now: x.now, Bodies: bodies,
	}
	switch {
	case post.SessionID != "":
	case post.RequestKey == "":
		post.SessionID = x.ids.session()
	default: // a repeated request finds the same session
		names := []string{post.Tenant, post.RequestKey}
		if branch := r.GetBranch(); branch != nil {
			names = []string{post.Tenant, branch.GetFromSessionId(), branch.GetCheckpointId(), post.RequestKey}
		}
		if x.by.Owner != "" { // users may choose the same key
			names = append(names, x.by.Owner)
		}
		digest := sha256.Sum256([]byte(strings.Join(names, "\x00")))
		post.SessionID = "ses_" + hex.EncodeToString(digest[:16])
	}
	post.Traceparent, post.Tracestate = trace(r.GetTraceparent(), r.GetTracestate())
	if post.Priority < -highestPriority || post.Priority > highestPriority {
		x.refuse("PRIORITY_INVALID", "priority is %d; it must be -%d to %d", post.Priority, highestPriority, highestPriority)
	}
	missing, known := missingIn[r.GetMissing()]
	if !known {
		x.refuse("MISSING_POLICY_INVALID", "%s is not a policy for missing messages; the policies are REWIND and REFUSE", r.GetMissing())
	}
	if r.GetAbandonCalls() {
		post.Abandon = abandon
	} else if len(r.GetAnswers()) > 0 {
		x.refuse("ANSWER_INVALID", "answers need abandon_calls; to answer calls without abandoning the others, use SubmitCalls")
	}
	if n := len(r.GetMessages()); n > 0 {
		x.asked = r.GetMessages()[n-1]
		post.Caller = x.callerInput(x.asked.GetCaller())
	}
	post.Messages = x.userMessages(r.GetMessages(), !sends, post.RunID)
	history := x.history(r.GetHistory(), post.RunID)
	const maxEarlier = 1000
	if n := len(r.GetEarlierMessageIds()); n > maxEarlier {
		x.refuse("MESSAGE_INVALID", "earlier_message_ids has %d ids; the limit is %d", n, maxEarlier)
	}
	post.EarlierIDs = x.eachID("an id in earlier_message_ids", r.GetEarlierMessageIds())
	if e := r.GetExpect(); e != nil {
		x.optionalID("current_run_id", e.GetCurrentRunId())
		post.Expect = session.Expect{Statuses: x.statuses(e.GetStatuses()), Version: e.GetVersion(), RunID: e.CurrentRunId}
	}
	post.Answers = x.answers(r.GetAnswers())
	// Equal requests have equal hashes: of the messages as they were sent, and of the intent unless it sends or edits.
	hash := sha256.New()
	for _, m := range r.GetMessages() {
		body := x.encode(m)
		hash.Write(binary.AppendUvarint(nil, uint64(len(body))))
		hash.Write(body)
	}
	post.RequestHash = hash.Sum(nil)
	if !sends {
		digest := sha256.Sum256(append(post.RequestHash, x.encode(&statev1.StartRunRequest{Intent: r.GetIntent()})...))
		post.RequestHash = digest[:]
	}
	send := session.Send{RunRequest: post, History: history, Missing: missing, NewSession: session.Create{
		ParentID: x.parentID(r.GetParent()), Child: x.child(r.GetParent()), Owner: x.by.Owner, MaxTree: x.limits.Tree,
		UserID: x.user(r.GetUserId()), OrganizationID: x.optionalID("organization_id", r.GetOrganizationId()),
		Tags: x.tags(r.GetTags()), Metadata: x.textMetadata(r.GetMetadata()), State: x.initialState(r.GetCustomState()),
	}}

	begin := func(action session.AuditAction, c start, targets ...session.Target) session.Command[session.Started] {
		return session.Command[session.Started]{
			Targets: targets, Bytes: x.bytes(), Now: x.now, Actor: x.by.Actor, Intent: action,
			HandsOver: true, AgentType: cmp.Or(post.AgentType, post.DefaultAgent),
			Decide: func(views []*session.View) (*session.Change, session.Started, error) {
				change, started, err := c.Decide(views...)
				if err == nil && change != nil {
					err = post.CheckCallerInput(change, views...)
				}
				if err != nil {
					return nil, session.Started{}, err
				}
				return change, started, nil
			},
			Amend: func(views []*session.View, changes []*session.Change, started *session.Started) {
				started.Unknown = c.Unknown(views...)
				if len(changes) > 0 && changes[0] != nil {
					started.Session = *changes[0].Session // another run may have begun in the same write
				}
			},
		}
	}
	own := func(need session.Need) session.Target {
		return session.Target{Key: post.Key, Need: need, Owner: x.by.Owner}
	}
	switch intent := r.GetIntent().(type) {
	case *statev1.StartRunRequest_Edit:
		c := session.Edit{Send: send, Target: x.id("edit's message_id", intent.Edit.GetMessageId())}
		return begin(session.ActionEdited, c, own(c.Need()))
	case *statev1.StartRunRequest_Regenerate:
		c := session.Regenerate{
			Send: send, Target: x.id("regenerate's message_id", intent.Regenerate.GetMessageId()),
			AnswerID: x.optionalID("regenerate's answer_id", intent.Regenerate.GetAnswerId()),
		}
		return begin(session.ActionRegenerated, c, own(c.Need()))
	case *statev1.StartRunRequest_Resume:
		c := session.Resume{
			RunRequest: post, CheckpointID: x.optionalCheckpointID(intent.Resume.GetCheckpointId()), Addition: x.addition(intent.Resume),
		}
		return begin(session.ActionResumed, c, own(c.Need()))
	case *statev1.StartRunRequest_Retry:
		c := session.Retry{RunRequest: post, Addition: x.addition(intent.Retry)}
		return begin(session.ActionRetried, c, own(c.Need()))
	case *statev1.StartRunRequest_Branch:
		c := session.BranchAndStart{
			RunRequest: post, From: session.Key{Tenant: post.Tenant, SessionID: x.id("branch's from_session_id", intent.Branch.GetFromSessionId())},
			CheckpointID: x.checkpointID(intent.Branch.GetCheckpointId()), Addition: x.addition(intent.Branch),
		}
		return begin(session.ActionStarted, c, c.Targets()...)
	default:
		return begin(session.ActionStarted, send, own(send.Need()))
	}
}

// start is a command of package session that begins a run.
type start interface {
	Decide(views ...*session.View) (*session.Change, session.Started, error)
	Unknown(views ...*session.View) int
}

// knownAgents returns the types of the agents that a tenant may use, sorted: the announced ones and those that it has stored.
func knownAgents(ctx context.Context, registry store.Registry, stored store.StoredAgents, tenant string) (types []string, err error) {
	agents, err := registry.Agents(ctx)
	if err != nil {
		return nil, err
	}
	own, err := stored.StoredAgentsOf(ctx, tenant)
	for _, a := range agents {
		types = append(types, a.Type)
	}
	for _, a := range own {
		types = append(types, a.Type)
	}
	slices.Sort(types)
	return slices.Compact(types), err
}

// onlyAgent returns the only agent that the tenant may use. Invalid (AGENT_REQUIRED) if there is not exactly one.
func onlyAgent(ctx context.Context, registry store.Registry, stored store.StoredAgents, tenant string) (string, error) {
	names, err := knownAgents(ctx, registry, stored, tenant)
	if err != nil {
		return "", err
	}
	if len(names) == 1 {
		return names[0], nil
	}
	return "", invalid("AGENT_REQUIRED",
		"the session is new and there is no default agent: name an agentType (known: %s), or configure a default agent",
		strings.Join(names, ", "))
}

// withKnownAgents adds at most limit known agents to the fault.
func withKnownAgents(ctx context.Context, registry store.Registry, stored store.StoredAgents, tenant string, err error) error {
	const limit = 100
	types, listErr := knownAgents(ctx, registry, stored, tenant)
	f, ok := fault.From(err)
	if listErr != nil || !ok {
		return err
	}
	return f.With("availableTypes", strings.Join(types[:min(limit, len(types))], ","))
}
