package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// waitStep is how long one WaitRun waits. It is shorter than usual timeouts of proxies.
const waitStep = 25 * time.Second

// Answer is the outcome of a run.
type Answer struct {
	Session string
	// Text is the output as a text: the text of an agent without an output schema, else JSON.
	Text string
	// Output is the output, one JSON value; nil if the run waits for a client.
	Output json.RawMessage
	// Calls are the open calls for a client. After the last answer to them, Wait waits for the next event.
	Calls []Call
	Run   *agentv1.Run
}

// Ask starts a run and waits for its answer. It sends the request again during an outage, and starts one run only. An
// answer with Calls is not the last: the run waits for a client. Faults as Start and Wait.
func (c *Client) Ask(ctx context.Context, r *agentv1.StartRequest) (*Answer, error) {
	r = proto.CloneOf(r)
	if r.GetRequestKey() == "" {
		r.RequestKey = rand.Text()
	}
	if r.GetSessionId() == "" {
		r.SessionId = rand.Text()
	}
	started, err := callWithRetry(ctx, c, c.agents.Start, r)
	if err != nil {
		return nil, err
	}
	return c.Wait(ctx, started.GetSessionId(), started.GetRunId())
}

// Wait waits until the run has ended or waits for a client, with the runs that continue it. An empty run id is the
// newest run at the time of the call. Conflict (RUN_FAILED, with the metadata "code"; RUN_INTERRUPTED), NotFound
// (SESSION_NOT_FOUND, RUN_NOT_FOUND).
func (c *Client) Wait(ctx context.Context, session, run string) (*Answer, error) {
	for {
		request := &agentv1.WaitRunRequest{SessionId: session, RunId: run, WaitMs: waitStep.Milliseconds()}
		waited, err := callWithRetry(ctx, c, c.agents.WaitRun, request)
		if err != nil {
			return nil, err
		}
		if waited.GetDone() {
			return answerOf(session, waited)
		}
		run = waited.GetRun().GetRunId()
	}
}

func answerOf(session string, waited *agentv1.WaitRunResponse) (*Answer, error) {
	run := waited.GetRun()
	switch run.GetStatus() {
	case "failed":
		return nil, fault.New(fault.Conflict, "RUN_FAILED", "%s", run.GetFailure().GetError()).With("code", run.GetFailure().GetCode())
	case "interrupted":
		return nil, fault.New(fault.Conflict, "RUN_INTERRUPTED", "run %q was interrupted; resume the session to continue it", run.GetRunId())
	}
	answer := &Answer{Session: session, Text: run.GetOutput(), Run: run}
	if run.GetOutput() != "" {
		answer.Output = json.RawMessage(run.GetOutput())
	}
	var text string
	if json.Unmarshal(answer.Output, &text) == nil {
		answer.Text = text
	}
	for _, call := range waited.GetPendingCalls() {
		answer.Calls = append(answer.Calls, Call{Session: call.GetSessionId(), ID: call.GetToolCallId(), Approval: call.GetApprovalId()})
	}
	return answer, nil
}
