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

// SubmitCalls implements statev1.CallServiceServer. It answers the calls of one owner session
// after the other, in the order of the request.
func (s *callService) SubmitCalls(ctx context.Context, r *statev1.SubmitCallsRequest) (*statev1.SubmitCallsResponse, error) {
	x := s.runner.read(r)
	key, answers := x.key(r), x.answers(r.GetAnswers())
	seenRun := x.optionalID("seen_run_id", r.GetSeenRunId())
	if x.err != nil {
		return nil, x.err
	}
	reader := x.owned(s.store)
	out := &statev1.SubmitCallsResponse{Calls: make([]*statev1.SubmittedCall, len(answers))}
	for i, a := range answers {
		out.Calls[i] = &statev1.SubmittedCall{ToolCallId: a.CallID, Outcome: statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL}
	}
	if err := checkSeenRun(ctx, reader, key, seenRun); err != nil {
		return nil, err
	}
	groups, err := groupByOwner(ctx, reader, key, answers)
	if err != nil {
		return nil, err
	}
	if err := checkOwners(groups); err != nil {
		return nil, err
	}
	continued := ""
	for _, g := range groups {
		runID, err := s.submitGroup(ctx, x, r, g, out.Calls)
		if err != nil {
			return nil, err
		}
		if g.key == key {
			continued = runID
		}
	}
	return out, s.describeSession(ctx, reader, key, continued, out)
}

// describeSession fills in the session of the request, and its run: the one continued by these
// answers, even if another has begun since.
func (s *callService) describeSession(ctx context.Context, reader store.Reader, key session.Key, continued string, out *statev1.SubmitCallsResponse) error {
	snapshot, err := reader.Session(ctx, key)
	if err != nil {
		return err
	}
	run := snapshot.Current
	if continued != "" && run != nil && run.RunID != continued {
		if run, err = reader.Run(ctx, key, continued); err != nil {
			return err
		}
	}
	out.Session, out.Run, out.OpenCalls = sessionOut(&snapshot.Session), runOut(key, run), int32(snapshot.AwaitedCalls)
	awaited := slices.DeleteFunc(snapshot.Calls, func(c session.Call) bool { return !c.AwaitsClient() })
	if out.AwaitedCalls, err = callsOut(awaited); err != nil || run == nil {
		return err
	}
	runs, err := messageRuns(ctx, reader, key, run, run)
	out.MessageRuns = runsOut(key, runs)
	return err
}

// ownerGroup holds the answers to the calls of one session.
type ownerGroup struct {
	key     session.Key
	answers []session.Answer
	indexes []int // the indexes of the answers in their request
}

// groupByOwner groups the answers by the owners of their calls. It leaves out answers to calls
// unknown to the family.
func groupByOwner(ctx context.Context, reader store.Reader, key session.Key, answers []session.Answer) ([]ownerGroup, error) {
	if len(answers) == 0 {
		return nil, nil
	}
	ids := make([]string, len(answers))
	for i, a := range answers {
		ids[i] = a.CallID
	}
	owners, err := reader.Owners(ctx, key, ids)
	if err != nil {
		return nil, err
	}
	var groups []ownerGroup
	at := map[string]int{}
	for i, a := range answers {
		owner, known := owners[a.CallID]
		if !known {
			continue
		}
		if _, begun := at[owner]; !begun {
			at[owner] = len(groups)
			groups = append(groups, ownerGroup{key: session.Key{Tenant: key.Tenant, SessionID: owner}})
		}
		g := &groups[at[owner]]
		g.answers, g.indexes = append(g.answers, a), append(g.indexes, i)
	}
	return groups, nil
}

// checkOwners gives Invalid (TOO_MANY_ANSWERS).
func checkOwners(groups []ownerGroup) error {
	if len(groups) > maxOwners {
		return invalid("TOO_MANY_ANSWERS", "the answered calls belong to %d sessions; the limit is %d: send the rest in another request", len(groups), maxOwners)
	}
	return nil
}

var goOnIn = map[statev1.GoOn]session.ResumePolicy{
	statev1.GoOn_GO_ON_ASKED:    session.ResumeOwnCalls,
	statev1.GoOn_GO_ON_ANSWERED: session.ResumeAllCalls,
}

// checkSeenRun gives Conflict (RUN_STALE) unless the run has written, or helped to write, the
// newest answer. An empty id is valid.
func checkSeenRun(ctx context.Context, reader store.Reader, key session.Key, runID string) error {
	if runID == "" {
		return nil
	}
	snapshot, err := reader.Session(ctx, key)
	var seen *session.Run
	if err == nil {
		seen, err = reader.Run(ctx, key, runID)
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || snapshot.Current == nil || snapshot.Current.MessageID != seen.MessageID {
		return session.RunStale(key)
	}
	return nil
}

// submitGroup submits the answers of one session, and writes their outcomes to their indexes in
// out. It returns the run continued by them; empty for none.
func (s *callService) submitGroup(ctx context.Context, x *reader, r *statev1.SubmitCallsRequest, g ownerGroup, out []*statev1.SubmittedCall) (runID string, err error) {
	submit := session.SubmitAll{Key: g.key, By: x.by, Answers: g.answers, NewRunID: x.ids.run(), MaxUnread: x.limits.StepBytes, Now: x.now}
	if g.key.SessionID == r.GetSessionId() {
		submit.Resume = goOnIn[r.GetGoOn()]
		submit.Traceparent, submit.Tracestate = trace(r.GetTraceparent(), r.GetTracestate())
	}
	command := onFamily(x, submit.Key, submit)
	command.HandsOver = true
	command.Bytes = 0
	for _, i := range g.indexes {
		command.Bytes += proto.Size(r.GetAnswers()[i])
	}
	submitted, err := run(ctx, s.runner, command)
	if fault.ReasonOf(err) == "SESSION_NOT_FOUND" {
		return "", nil // deleted meanwhile, with its calls
	}
	if err != nil {
		return "", err
	}
	for i, answer := range submitted {
		outcome := out[g.indexes[i]]
		outcome.Outcome = callOutcomes[answer.Status]
		if answer.Status != session.UnknownCall {
			outcome.OwnerSessionId, outcome.RunId = g.key.SessionID, answer.Call.RunID
		}
		runID = answer.RunID // the same for all answers
	}
	return runID, nil
}
