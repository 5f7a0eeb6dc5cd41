package server

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxAnswers is how many answers a request may have, by the contract.
const maxAnswers = 1000

// maxOwners bounds the owners of the answered calls: each takes a transaction.
const maxOwners = 100

var callOutcomes = map[session.SubmitStatus]statev1.SubmittedCall_Outcome{
	session.Accepted:         statev1.SubmittedCall_OUTCOME_ACCEPTED,
	session.AlreadyCompleted: statev1.SubmittedCall_OUTCOME_ALREADY_COMPLETED,
	session.LateAnswer:       statev1.SubmittedCall_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT,
	session.UnknownCall:      statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL,
	session.NotContinuable:   statev1.SubmittedCall_OUTCOME_OWNER_NOT_CONTINUABLE,
}

// SubmitCalls implements statev1.CallServiceServer. It first takes all answers for those of the session of the request: one
// command stores them, and sees all of the response. If other sessions of the family own some of the calls, it answers the
// calls of one owner after the other, in the order of the request.
func (s *callService) SubmitCalls(ctx context.Context, r *statev1.SubmitCallsRequest) (*statev1.SubmitCallsResponse, error) {
	x := s.runner.read(r)
	key, answers := x.key(r), x.answers(r.GetAnswers())
	seenRun := x.optionalID("seen_run_id", r.GetSeenRunId())
	if x.err != nil {
		return nil, x.err
	}
	out := &statev1.SubmitCallsResponse{Calls: make([]*statev1.SubmittedCall, len(answers))}
	own := ownerGroup{key: key, answers: answers, seenRun: seenRun, ownOnly: true}
	for i, a := range answers {
		out.Calls[i] = &statev1.SubmittedCall{ToolCallId: a.CallID, Outcome: statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL}
		own.indexes = append(own.indexes, i)
	}
	stored, err := s.submitGroup(ctx, x, r, own, out.Calls)
	others, ok := errors.AsType[*session.OtherOwnersError](err)
	switch {
	case ok:
		groups := groupByOwner(key.Tenant, answers, others.Owners)
		if err := checkOwners(groups); err != nil {
			return nil, err
		}
		for _, g := range groups {
			submitted, err := s.submitGroup(ctx, x, r, g, out.Calls)
			switch {
			case fault.ReasonOf(err) == "SESSION_NOT_FOUND": // deleted meanwhile, with its calls
			case err != nil:
				return nil, err
			case g.key == key:
				stored = submitted
			}
		}
	case seenRun != "" && fault.ReasonOf(err) == "SESSION_NOT_FOUND":
		return nil, session.RunStale(key)
	case err != nil:
		return nil, err
	}
	return out, describeSession(ctx, x.owned(s.store), key, stored, out)
}

// submittedGroup is the write of the answers of one session. The zero value has none.
type submittedGroup struct {
	view   *session.View   // nil if there was no write
	change *session.Change // nil if it has changed nothing
	runID  string          // of the run continued by the answers; empty for none
}

// describeSession fills in the session of the request, and its run: the one continued by these answers, even if another has
// begun since. For a session without a family, the write has seen all but earlier runs of a message that was continued before.
func describeSession(ctx context.Context, reader store.Reader, key session.Key, g submittedGroup, out *statev1.SubmitCallsResponse) error {
	shot := &store.Snapshot{}
	before := (*session.Run)(nil) // the run that the answers continue
	if v := g.view; v != nil && v.Session.RootID == key.SessionID && v.Session.Children == 0 {
		after, current, calls := v.After(g.change)
		shot.Session, shot.Current, shot.Calls, shot.AwaitedCalls = *after, current, calls, session.CountAwaited(calls)
		if g.change != nil && g.change.NewRun != nil {
			before = v.Current
		}
	} else {
		var err error
		if shot, err = reader.Session(ctx, key); err != nil {
			return err
		}
	}
	run := shot.Current
	if g.runID != "" && run != nil && run.RunID != g.runID {
		var err error
		if run, err = reader.Run(ctx, key, g.runID); err != nil {
			return err
		}
	}
	out.Session, out.Run, out.OpenCalls = sessionOut(&shot.Session), runOut(key, run), int32(shot.AwaitedCalls)
	var err error
	awaited := slices.DeleteFunc(shot.Calls, func(c session.Call) bool { return !c.AwaitsClient() })
	if out.AwaitedCalls, err = callsOut(awaited); err != nil || run == nil {
		return err
	}
	var runs []session.Run
	if before == nil {
		runs, err = messageRuns(ctx, reader, key, run, run)
	} else if runs, err = messageRuns(ctx, reader, key, before, before); err == nil {
		runs = append(runs[max(0, len(runs)+1-maxMessageRuns):], *run)
	}
	out.MessageRuns = runsOut(key, runs)
	return err
}

// ownerGroup holds the answers to the calls of one session.
type ownerGroup struct {
	key     session.Key
	answers []session.Answer
	indexes []int // the indexes of the answers in their request
	seenRun string
	ownOnly bool // some of the calls may have other owners
}

// groupByOwner groups the answers by the owners of their calls. It leaves out answers to calls
// unknown to the family.
func groupByOwner(tenant string, answers []session.Answer, owners map[string]string) []ownerGroup {
	var groups []ownerGroup
	at := map[string]int{}
	for i, a := range answers {
		owner, known := owners[a.CallID]
		if !known {
			continue
		}
		if _, begun := at[owner]; !begun {
			at[owner] = len(groups)
			groups = append(groups, ownerGroup{key: session.Key{Tenant: tenant, SessionID: owner}})
		}
		g := &groups[at[owner]]
		g.answers, g.indexes = append(g.answers, a), append(g.indexes, i)
	}
	return groups
}

// checkOwners gives Invalid (TOO_MANY_ANSWERS).
func checkOwners(groups []ownerGroup) error {
	if len(groups) > maxOwners {
		return invalid(
			"TOO_MANY_ANSWERS",
			"the answered calls belong to %d sessions; the limit is %d: send the rest in another request",
			len(groups),
			maxOwners,
		)
	}
	return nil
}

var goOnIn = map[statev1.GoOn]session.ResumePolicy{
	statev1.GoOn_GO_ON_ASKED:    session.ResumeOwnCalls,
	statev1.GoOn_GO_ON_ANSWERED: session.ResumeAllCalls,
}

// submitGroup submits the answers of one session, and writes their outcomes to their indexes in out.
func (s *callService) submitGroup(
	ctx context.Context,
	x *reader,
	r *statev1.SubmitCallsRequest,
	g ownerGroup,
	out []*statev1.SubmittedCall,
) (stored submittedGroup, err error) {
	submit := session.SubmitAll{
		Key: g.key, By: x.by, Answers: g.answers, SeenRunID: g.seenRun, OwnOnly: g.ownOnly, NewRunID: x.ids.run(), MaxUnread: x.limits.StepBytes, Now: x.now,
	}
	if g.key.SessionID == r.GetSessionId() {
		submit.Resume = goOnIn[r.GetGoOn()]
		submit.Traceparent, submit.Tracestate = trace(r.GetTraceparent(), r.GetTracestate())
	}
	command := onFamily(x, submit.Key, submit)
	command.Targets[0].Need.State = true // of the response
	command.Decide = func(views []*session.View) (change *session.Change, submitted []session.Submitted, err error) {
		change, submitted, err = submit.Decide(views[0])
		stored.view, stored.change = views[0], change // a hand-over completes the change
		return change, submitted, err
	}
	command.HandsOver = true
	command.Bytes = 0
	for _, i := range g.indexes {
		command.Bytes += proto.Size(r.GetAnswers()[i])
	}
	submitted, err := run(ctx, s.runner, command)
	if err != nil {
		return submittedGroup{}, err
	}
	for i, answer := range submitted {
		outcome := out[g.indexes[i]]
		outcome.Outcome = callOutcomes[answer.Status]
		if answer.Status != session.UnknownCall {
			outcome.OwnerSessionId, outcome.RunId = g.key.SessionID, answer.Call.RunID
		}
		stored.runID = answer.RunID // the same for all answers
	}
	return stored, nil
}
