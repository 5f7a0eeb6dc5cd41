package conversation

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// recordBytes limits the step records of a page. Further steps are shown without records.
const recordBytes = 16 << 20

// stepPage is the number of steps per request.
const stepPage = 200

// RunOf returns what messages show of a run.
func RunOf(run *statev1.Run) uistream.Run {
	out := uistream.Run{
		ID: run.GetRunId(), MessageID: run.GetMessageId(), AgentType: run.GetAgentType(), CreatedAt: run.GetCreatedAt(),
		Interrupted: run.GetStatus() == statev1.RunStatus_RUN_STATUS_INTERRUPTED,
	}
	switch run.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_COMPLETED:
		out.Usage, out.CompletionReason = run.GetUsage(), run.GetCompletionReason()
	case statev1.RunStatus_RUN_STATUS_FAILED:
		out.Failure = &eventv1.Error{Error: run.GetFailure().GetError(), Code: run.GetFailure().GetCode()}
	default: // neither
	}
	return out
}

// loadStored combines the messages with their runs and steps. last is a run that may have ended
// behind them; "" for none.
func (r *Reader) loadStored(ctx context.Context, s *statev1.Session, messages []*eventv1.Message, last string) (uistream.Stored, error) {
	out := uistream.Stored{Messages: messages}
	var err error
	if out.Runs, out.Last, err = r.loadRuns(ctx, s, messages, last); err != nil {
		return out, err
	}
	out.Records, err = r.loadRecords(ctx, s, messages, out.Runs)
	return out, err
}

// loadRuns returns the runs of the messages, and last if that run ended behind them. The newest runs
// need one request, older runs one each.
func (r *Reader) loadRuns(
	ctx context.Context,
	s *statev1.Session,
	messages []*eventv1.Message,
	last string,
) (map[string]uistream.Run, string, error) {
	wanted := unansweredRuns(messages)
	answering := map[string]bool{}
	for _, m := range messages {
		if uistream.IsPartOfAnswer(m) && m.GetRunId() != "" {
			wanted[m.GetRunId()], answering[m.GetRunId()] = true, true
		}
	}
	if last != "" {
		wanted[last] = true
	}
	found, err := r.findRuns(ctx, s, wanted)
	if err != nil {
		return nil, "", err
	}
	if run := found[last]; !ended(run) || run.GetStepCount() > 0 && !answering[last] { // its messages were withdrawn
		last = ""
	}
	runs := map[string]uistream.Run{}
	for id, run := range found {
		runs[id] = RunOf(run)
	}
	groupForeignRuns(messages, runs)
	return runs, last, nil
}

// ended reports whether the run began and ended.
func ended(run *statev1.Run) bool {
	return run != nil && !Executing(run) && !Waiting(run) && !NeverStarted(run)
}

func (r *Reader) findRuns(ctx context.Context, s *statev1.Session, wanted map[string]bool) (map[string]*statev1.Run, error) {
	found := map[string]*statev1.Run{}
	if len(wanted) == 0 {
		return found, nil
	}
	newest, err := r.ListRuns(ctx, &statev1.ListRunsRequest{Tenant: s.GetTenant(), SessionId: s.GetSessionId(), Limit: storedPage})
	if err != nil {
		return nil, err
	}
	for _, run := range newest {
		if wanted[run.GetRunId()] {
			found[run.GetRunId()] = run
		}
	}
	for id := range wanted {
		if found[id] != nil {
			continue
		}
		run, err := r.Run(ctx, s.GetTenant(), &statev1.Run{SessionId: s.GetSessionId(), RunId: id})
		if errors.Is(err, fault.NotFound) { // a branch has messages of runs of another session
			continue
		}
		if err != nil {
			return nil, err
		}
		found[id] = run
	}
	return found, nil
}

// unansweredRuns returns the runs of questions without an answer.
func unansweredRuns(messages []*eventv1.Message) map[string]bool {
	runs := map[string]bool{}
	for i, m := range messages {
		if isQuestion(m) {
			if open := openQuestion(messages[:i]); open != "" && open != m.GetRunId() {
				runs[open] = true
			}
		}
	}
	if open := openQuestion(messages); open != "" {
		runs[open] = true
	}
	return runs
}

// openQuestion returns the run of an unanswered question at the end of the messages; "" for none.
func openQuestion(messages []*eventv1.Message) string {
	for _, m := range slices.Backward(messages) {
		switch {
		case isQuestion(m):
			return m.GetRunId()
		case uistream.IsPartOfAnswer(m):
			return ""
		}
	}
	return ""
}

// groupForeignRuns gives adjacent runs of another session a common message id. They have none in
// this session.
func groupForeignRuns(messages []*eventv1.Message, runs map[string]uistream.Run) {
	foreign, open := map[string]bool{}, "" // id of the open message of foreign runs; "" for none
	for _, m := range messages {
		run := m.GetRunId()
		switch {
		case isInvisible(m):
		case !uistream.IsPartOfAnswer(m) || run == "":
			open = ""
		case runs[run].MessageID == "":
			open = cmp.Or(open, m.GetId())
			known := runs[run]
			known.MessageID = open
			runs[run], foreign[run] = known, true
		case !foreign[run]:
			open = ""
		}
	}
}

// loadRecords returns the records of the messages' steps, up to recordBytes.
func (r *Reader) loadRecords(
	ctx context.Context,
	s *statev1.Session,
	messages []*eventv1.Message,
	runs map[string]uistream.Run,
) (map[uistream.Step]*eventv1.StepRecord, error) {
	first, last := int32(0), int32(0)
	for _, m := range messages {
		if uistream.IsPartOfAnswer(m) && m.GetStep() > 0 && runs[m.GetRunId()].ID != "" {
			last = max(last, m.GetStep())
			first = min(cmp.Or(first, m.GetStep()), m.GetStep())
		}
	}
	if last == 0 {
		return nil, nil
	}
	records, bytes := map[uistream.Step]*eventv1.StepRecord{}, 0
	for after := first - 1; after < last; {
		page, err := r.listSteps(ctx, s, after, min(last-after, stepPage))
		if err != nil {
			return nil, err
		}
		for _, step := range page.GetSteps() {
			after = step.GetStep()
			if bytes += proto.Size(step.GetRecord()); bytes > recordBytes || after > last {
				return records, nil
			}
			if step.GetRecord() != nil {
				records[uistream.Step{RunID: step.GetRunId(), Number: after}] = step.GetRecord()
			}
		}
		if !page.GetHasMore() || len(page.GetSteps()) == 0 {
			break
		}
	}
	return records, nil
}

func (r *Reader) listSteps(ctx context.Context, s *statev1.Session, after, limit int32) (*statev1.ListStepsResponse, error) {
	var got *statev1.ListStepsResponse
	request := &statev1.ListStepsRequest{Tenant: s.GetTenant(), SessionId: s.GetSessionId(), AfterStep: after, Limit: limit}
	err := retry.Do(ctx, r.Policy, func() (err error) {
		got, err = r.Sessions.ListSteps(ctx, request)
		return err
	})
	return got, err
}
