package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// Reasons of a rewind.
const (
	reasonExecutorLost = "executor_lost"
	reasonStepRetried  = "step_retried"
)

// messagesPage is how many messages are asked for at once.
const messagesPage = 200

// execute performs what the planner decides until the run has ended.
func (r *runner) execute(ctx context.Context) error {
	if r.stopping() {
		return errStop
	}
	a, ok := r.worker.peers.Agents[r.started.GetAgentType()]
	if !ok {
		return fmt.Errorf("there is no agent %q here", r.started.GetAgentType())
	}
	start, err := r.start(ctx, a)
	if err != nil {
		return err
	}
	if err := r.open(ctx, start.Journal); err != nil {
		return err
	}
	r.planner = loop.New(start)
	for {
		if done, err := r.perform(ctx, a); done || err != nil {
			return err
		}
	}
}

// perform performs one effect. It stops before an effect that begins something
// new when the executor stops.
func (r *runner) perform(ctx context.Context, a Agent) (done bool, err error) {
	switch e := r.planner.Next().(type) {
	case loop.CallModel:
		if r.stopping() {
			return false, errStop
		}
		return false, r.callModel(ctx, a, e)
	case loop.Wait:
		return false, r.wait(ctx, e)
	case loop.RecordPlan:
		return false, r.recordPlan(ctx, e)
	case loop.RunCalls:
		return false, r.runCalls(ctx, e)
	case loop.Commit:
		return false, r.commit(ctx, e)
	case loop.Finish:
		err := r.finish(ctx, e.Outcome)
		if err == nil {
			r.planner.Finished()
		}
		return false, err
	case loop.Done:
		return true, nil
	default:
		return false, fmt.Errorf("the planner wants the unknown effect %T", e)
	}
}

// start gathers what the planner has to know.
func (r *runner) start(ctx context.Context, a Agent) (loop.Start, error) {
	transcript, err := r.transcript(ctx)
	if err != nil {
		return loop.Start{}, err
	}
	start := loop.Start{
		Run:        loop.Run{Tenant: r.ref.GetTenant(), SessionID: r.ref.GetSessionId(), RunID: r.ref.GetRunId()},
		Agent:      a.Agent,
		Transcript: transcript, SessionSteps: int(r.session.GetStepCount()), RunSteps: int(r.started.GetStepCount()),
		Jitter: r.worker.peers.Jitter,
	}
	journal := r.claim.GetJournal()
	for _, entry := range journal.GetUsage() {
		r.count(entry.GetTokens())
	}
	if journal.GetPlan() == nil {
		return start, nil
	}
	if int(journal.GetStep()) != start.SessionSteps+1 {
		return loop.Start{}, fmt.Errorf("the journal is of step %d, but %d steps are committed", journal.GetStep(), start.SessionSteps)
	}
	plan, err := toMessage(journal.GetPlan())
	if err != nil {
		return loop.Start{}, err
	}
	start.Journal = &loop.Journal{Plan: plan}
	for _, result := range journal.GetResults() {
		start.Journal.Results = append(start.Journal.Results, toResult(result.GetResult()))
	}
	return start, nil
}

// transcript is the whole conversation: the tail that came with the claim, and
// what stands before it.
func (r *runner) transcript(ctx context.Context) ([]agent.Message, error) {
	tail := r.claim.GetMessages()
	first := r.session.GetMessageCount()
	if len(tail) > 0 {
		first = tail[0].GetOrdinal()
	}
	before, err := r.stored(ctx, first)
	if err != nil {
		return nil, err
	}
	transcript := make([]agent.Message, 0, r.session.GetMessageCount())
	if transcript, err = appendMessages(transcript, before); err != nil {
		return nil, err
	}
	return appendMessages(transcript, tail)
}

// stored reads the first count messages of the conversation.
func (r *runner) stored(ctx context.Context, count int64) ([]*statev1.StoredMessage, error) {
	var messages []*statev1.StoredMessage
	for int64(len(messages)) < count {
		page, err := call(ctx, r, func(ctx context.Context) (*statev1.ListMessagesResponse, error) {
			return r.worker.peers.Sessions.ListMessages(ctx, &statev1.ListMessagesRequest{
				Tenant: r.ref.GetTenant(), SessionId: r.ref.GetSessionId(), Offset: int64(len(messages)),
				Limit: int32(min(messagesPage, count-int64(len(messages)))),
			})
		})
		if err != nil {
			return nil, fmt.Errorf("read the conversation: %w", err)
		}
		if len(page.GetMessages()) == 0 {
			return nil, fmt.Errorf("the conversation ends at message %d, but %d exist", len(messages), count)
		}
		messages = append(messages, page.GetMessages()...)
	}
	return messages, nil
}

func appendMessages(transcript []agent.Message, stored []*statev1.StoredMessage) ([]agent.Message, error) {
	for _, s := range stored {
		if s.GetOrdinal() != int64(len(transcript)) {
			return nil, fmt.Errorf("message %d stands where message %d should", s.GetOrdinal(), len(transcript))
		}
		m, err := toMessage(s.GetMessage())
		if err != nil {
			return nil, err
		}
		transcript = append(transcript, m)
	}
	return transcript, nil
}

// open makes the stream say what it should at this point, once: what a lost
// owner left behind is taken back or completed, while the run goes on. After an
// error readers may miss steps; what the run tells still reaches them.
func (r *runner) open(ctx context.Context, journal *loop.Journal) error {
	defer r.begin()
	r.opened = true
	if r.started.GetAttempt() <= 1 && journal == nil {
		return r.writer.Write(ctx, proto.CloneOf(r.head))
	}
	err := r.missed(ctx)
	if err == nil && journal != nil {
		var adopted bool
		if adopted, err = r.adopt(ctx, journal.Plan); adopted {
			return nil
		}
		r.note(r.step+1, planChunks(journal.Plan))
	}
	r.retell(false)
	return err
}

// adopt goes on with what stands of the step in flight, where that is everything
// up to its plan and nothing is missing before.
func (r *runner) adopt(ctx context.Context, plan agent.Message) (bool, error) {
	if len(r.untold) > 0 {
		return false, nil
	}
	step := r.step + 1
	found, told, err := r.rewind(ctx, r.base, step, r.worker.config.StreamPatience)
	if errors.Is(err, writer.ErrAway) {
		return false, nil
	}
	if err != nil || !told.has(r.head) || !told.says(step, plan) {
		return false, err
	}
	r.ended = told.toolEnd
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range found.Kept {
		if chunk := record.GetChunk(); chunk.GetAgentId() == r.started.GetRunId() && chunk.GetStep() == step {
			r.keep(chunk)
		}
	}
	return true, nil
}

// wait lets the time before a retry pass. When the executor stops, the next owner
// need not wait for it.
func (r *runner) wait(ctx context.Context, e loop.Wait) error {
	r.log.WarnContext(ctx, "the model call failed and is made again", "step", e.Step, "wait", e.For, "code", e.Cause.Code, "error", e.Cause.Detail)
	timer := time.NewTimer(e.For)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.planner.Waited()
		return nil
	case <-r.stop:
		return errStop
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count adds tokens to what the run is said to have used.
func (r *runner) count(t *statev1.TokenUsage) {
	if t == nil {
		return
	}
	if r.usage == nil {
		r.usage = &eventv1.Usage{}
	}
	r.usage.PromptTokens += t.GetPromptTokens()
	r.usage.CompletionTokens += t.GetCompletionTokens()
	r.usage.ReasoningTokens += t.GetReasoningTokens()
	r.usage.CachedTokens += t.GetCachedTokens()
	r.usage.TotalTokens += t.GetTotalTokens()
}

// spent notes the tokens of a model call for the step in flight.
func (r *runner) spent(a Agent, u model.Usage) {
	if u == (model.Usage{}) {
		return
	}
	entry := tokenUsage(a.Model, u)
	r.count(entry.GetTokens())
	r.pending = append(r.pending, entry)
}
