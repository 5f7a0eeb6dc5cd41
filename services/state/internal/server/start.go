package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// startCommand is the command of a StartRun, with its targets: first the run's own session.
type startCommand struct {
	targets []session.Target
	decide  func(views ...*session.View) (*session.Change, session.Started, error)
}

// StartRun implements statev1.RunServiceServer.
func (s *runService) StartRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	if err := cmp.Or(checkCaller(r.GetCaller()), s.limits.checkStart(r)); err != nil {
		return nil, err
	}
	if err := s.grants.starts(ctx, r); err != nil {
		return nil, err
	}
	if err := checkFiles(ctx, s.files, r.GetTenant(), slices.Concat(r.GetMessages(), r.GetResume().GetAppendMessages(), r.GetRetry().GetAppendMessages(), r.GetBranch().GetAppendMessages(), r.GetHistory())...); err != nil {
		return nil, err
	}
	post, err := s.newPost(r)
	if err != nil {
		return nil, err
	}
	command, err := s.newStartCommand(r, post)
	if err != nil {
		return nil, err
	}
	started, err := s.startWithinQuotas(ctx, r, post, command)
	if fault.ReasonOf(err) == "AGENT_REQUIRED" {
		if post.DefaultAgent, err = onlyAgent(ctx, s.registry); err != nil {
			return nil, err
		}
		if command, err = s.newStartCommand(r, post); err != nil {
			return nil, err
		}
		started, err = s.startWithinQuotas(ctx, r, post, command)
	}
	if fault.ReasonOf(err) == "AGENT_NOT_FOUND" {
		return nil, withKnownAgents(ctx, s.registry, err)
	}
	if err != nil {
		return nil, err
	}
	var runs []session.Run // of the message
	if started.Repeated {
		if runs, err = repeatedMessageRuns(ctx, readerOf(r, s.store), post.Key, started); err != nil {
			return nil, err
		}
	}
	return &statev1.StartRunResponse{
		Session: sessionOut(&started.Session), Run: runOut(post.Key, &started.Run), MessageRuns: runsOut(post.Key, runs),
		SessionCreated: started.Created, Repeated: started.Repeated, Waiting: started.Waiting,
		AbandonedCalls: started.Abandoned, UnknownMessages: int32(started.Unknown), RemovedMessages: started.Removed, MissingMessages: int32(started.Missing),
	}, nil
}

// startWithinQuotas is start for a request that its tenant's and its user's quotas may refuse. The user of an existing
// session is known only from its row, so the command may run again.
func (s *runService) startWithinQuotas(ctx context.Context, r *statev1.StartRunRequest, post session.RunRequest, command startCommand) (session.Started, error) {
	by, size := s.runner.by(r.GetCaller()), proto.Size(r)
	by.intent = intentOf(r)
	if r.GetParent() != nil { // by an executor: its run waits for the new one
		return s.start(ctx, by, post, command, size)
	}
	userID := cmp.Or(r.GetCaller().GetOwner(), r.GetUserId())
	for {
		admission, err := s.admissions.admit(ctx, post.Tenant, userID, int64(size))
		if err != nil {
			return session.Started{}, err
		}
		started, err := s.start(ctx, by, post, admission.guard(command), size)
		admission.finish(err == nil && !started.Repeated)
		other, again := errors.AsType[*otherUserError](err)
		if !again {
			s.runner.meters.Refused(ctx, err)
			return started, err
		}
		userID = other.userID
	}
}

// start runs the command, and hands the run over to an idle executor.
func (s *runService) start(ctx context.Context, by *runner, post session.RunRequest, command startCommand, bytes int) (session.Started, error) {
	handOver := by.scheduler.HandOver(cmp.Or(post.AgentType, post.DefaultAgent))
	defer handOver.Abandon()
	command.targets[0].Need = handOver.Need(command.targets[0].Need)
	started, err := spreadAll(ctx, by, handOver, command.targets, bytes, post.Now, command.decide, func(changes []*session.Change, started *session.Started) {
		if len(changes) > 0 && changes[0] != nil {
			started.Session = *changes[0].Session // another run may have begun in the same write
		}
	})
	handOver.Finish(ctx, err)
	return started, err
}

// newPost returns the common part of all intents' commands, of a checked request.
func (s *runService) newPost(r *statev1.StartRunRequest) (session.RunRequest, error) {
	post := session.RunRequest{
		Key: session.Key{Tenant: r.GetTenant(), SessionID: s.sessionID(r)}, By: callerIn(r.GetCaller()), AgentType: r.GetAgentType(),
		RequestKey: r.GetRequestKey(), RunID: s.ids.run(), MessageID: s.ids.message(), Now: s.clock.millis(),
		LastSeenRunID: r.GetSeenRunId(), OnBusy: busyIn[r.GetOnBusy()], DefaultOnBusy: busyIn[r.GetDefaultOnBusy()], Priority: r.GetPriority(), Limits: s.limits.sessionLimits(), Schemas: s.runner.schemas, Bodies: bodies,
	}
	post.Traceparent, post.Tracestate = traceIn(r.GetTraceparent(), r.GetTracestate())
	if timeout := r.GetTimeoutMs(); timeout > 0 {
		post.DeadlineAt = post.Now + session.Millis(timeout)
	}
	if r.GetAbandonCalls() {
		answer, err := abandonedAnswer()
		if err != nil {
			return post, err
		}
		post.Abandon = always(answer)
	}
	post.MustExist, post.EarlierIDs = r.GetMustExist(), r.GetEarlierMessageIds()
	post.DefaultAgent, post.RefuseUnknownAnswers = r.GetDefaultAgentType(), r.GetRefuseUnknownAnswers()
	var err error
	if post.RequestHash, err = startFingerprint(r); err != nil {
		return post, err
	}
	if post.Expect, err = expectIn(r.GetExpect()); err != nil {
		return post, err
	}
	if post.Answers, err = s.limits.answersIn(r.GetAnswers()); err != nil {
		return post, err
	}
	post.Messages, err = messagesIn(r.GetMessages(), origin{runID: post.RunID, now: post.Now, newID: s.ids})
	return post, err
}

// newStartCommand returns the command of the request's intent.
func (s *runService) newStartCommand(r *statev1.StartRunRequest, post session.RunRequest) (startCommand, error) {
	send, err := s.newSend(r, post)
	if err != nil {
		return startCommand{}, err
	}
	own := func(need session.Need, decide func(...*session.View) (*session.Change, session.Started, error)) (startCommand, error) {
		return startCommand{[]session.Target{{Key: post.Key, Need: need, Owner: post.By.Owner}}, func(views ...*session.View) (*session.Change, session.Started, error) {
			change, started, err := decide(views...)
			started.Unknown = post.Unknown(views[0])
			return change, started, err
		}}, nil
	}
	switch intent := r.GetIntent().(type) {
	case *statev1.StartRunRequest_Edit:
		c := session.Edit{Send: send, Target: intent.Edit.GetMessageId()}
		return own(c.Need(), c.Decide)
	case *statev1.StartRunRequest_Regenerate:
		c := session.Regenerate{Send: send, Target: intent.Regenerate.GetMessageId(), AnswerID: intent.Regenerate.GetAnswerId()}
		return own(c.Need(), c.Decide)
	case *statev1.StartRunRequest_Resume:
		add, err := s.addition(intent.Resume, post.Now)
		c := session.Resume{RunRequest: post, CheckpointID: intent.Resume.GetCheckpointId(), Addition: add}
		if err != nil {
			return startCommand{}, err
		}
		return own(c.Need(), c.Decide)
	case *statev1.StartRunRequest_Retry:
		add, err := s.addition(intent.Retry, post.Now)
		c := session.Retry{RunRequest: post, Addition: add}
		if err != nil {
			return startCommand{}, err
		}
		return own(c.Need(), alone(c.Decide))
	case *statev1.StartRunRequest_Branch:
		return s.branchCommand(intent.Branch, post)
	default:
		return own(send.Need(), send.Decide)
	}
}

// intentOf returns what the audit log calls the request.
func intentOf(r *statev1.StartRunRequest) session.AuditAction {
	switch r.GetIntent().(type) {
	case *statev1.StartRunRequest_Edit:
		return session.ActionEdited
	case *statev1.StartRunRequest_Regenerate:
		return session.ActionRegenerated
	case *statev1.StartRunRequest_Resume:
		return session.ActionResumed
	case *statev1.StartRunRequest_Retry:
		return session.ActionRetried
	default:
		return session.ActionStarted
	}
}

// newSend returns the command that sends the messages of the request. Denied (OWNER_REFUSED).
func (s *runService) newSend(r *statev1.StartRunRequest, post session.RunRequest) (session.Send, error) {
	user, err := post.By.User(r.GetUserId())
	if err != nil {
		return session.Send{}, err
	}
	send := session.Send{RunRequest: post, NewSession: session.Create{
		ParentID: r.GetParent().GetSessionId(), Child: newChildIn(r.GetParent()), Owner: post.By.Owner, UserID: user, OrganizationID: r.GetOrganizationId(),
		Tags: r.GetTags(), Metadata: r.GetMetadata(), State: cmp.Or(r.GetCustomState(), "{}"), MaxTree: s.limits.Tree,
	}}
	send.Missing = missingIn[r.GetMissing()]
	send.History, err = historyIn(r.GetHistory(), post, s.ids)
	return send, err
}

func (s *runService) branchCommand(r *statev1.Branch, post session.RunRequest) (startCommand, error) {
	add, err := s.addition(r, post.Now)
	from := session.Key{Tenant: post.Tenant, SessionID: r.GetFromSessionId()}
	c := session.BranchAndStart{RunRequest: post, From: from, CheckpointID: r.GetCheckpointId(), Addition: add}
	return startCommand{c.Targets(), func(views ...*session.View) (*session.Change, session.Started, error) {
		change, started, err := c.Decide(views...)
		started.Unknown = c.Unknown(views[1])
		return change, started, err
	}}, err
}

// additionRequest is an intent with messages to append, and state to write, before the run
// begins.
type additionRequest interface {
	GetAppendMessages() []*eventv1.Message
	GetStateOps() []*statev1.StateOp
}

func (s *runService) addition(r additionRequest, now session.Millis) (add session.Addition, err error) {
	if add.Ops, err = s.limits.opsIn(r.GetStateOps()); err != nil {
		return add, err
	}
	add.Append, err = messagesIn(r.GetAppendMessages(), origin{now: now, newID: s.ids})
	return add, err
}

// sessionID returns the id of the run's session. Without one in the request it makes one: from
// the request key, so a repeated request finds the same session, or at random.
func (s *runService) sessionID(r *statev1.StartRunRequest) string {
	names := []string{r.GetTenant(), r.GetRequestKey()}
	if branch := r.GetBranch(); branch != nil {
		names = []string{r.GetTenant(), branch.GetFromSessionId(), branch.GetCheckpointId(), r.GetRequestKey()}
	}
	if owner := r.GetCaller().GetOwner(); owner != "" { // users may choose the same key
		names = append(names, owner)
	}
	switch {
	case r.GetSessionId() != "":
		return r.GetSessionId()
	case r.GetRequestKey() == "":
		return s.ids.session()
	}
	digest := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return "ses_" + hex.EncodeToString(digest[:16])
}

// startFingerprint returns the fingerprint of a request: of its messages, and of its intent
// unless it sends or edits.
func startFingerprint(r *statev1.StartRunRequest) ([]byte, error) {
	messages, err := fingerprint(r.GetMessages())
	if err != nil || r.GetIntent() == nil || r.GetEdit() != nil {
		return messages, err
	}
	rest, err := encode(&statev1.StartRunRequest{Intent: r.GetIntent()})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(append(messages, rest...))
	return digest[:], nil
}

// onlyAgent returns the only announced agent. Invalid (AGENT_REQUIRED) if there is not exactly one.
func onlyAgent(ctx context.Context, registry store.Registry) (string, error) {
	agents, err := registry.Agents(ctx)
	if err != nil {
		return "", err
	}
	if len(agents) == 1 {
		return agents[0].Type, nil
	}
	names := make([]string, len(agents))
	for i, a := range agents {
		names[i] = a.Type
	}
	return "", invalid("AGENT_REQUIRED", "the session is new and there is no default agent: name an agentType (known: %s), or configure a default agent", strings.Join(names, ", "))
}

// withKnownAgents adds at limit 100 known agents to the fault.
func withKnownAgents(ctx context.Context, registry store.Registry, err error) error {
	const limit = 100
	agents, listErr := registry.Agents(ctx)
	f, ok := fault.From(err)
	if listErr != nil || !ok {
		return err
	}
	var types []string
	for _, a := range agents[:min(limit, len(agents))] {
		types = append(types, a.Type)
	}
	return f.With("availableTypes", strings.Join(types, ","))
}
