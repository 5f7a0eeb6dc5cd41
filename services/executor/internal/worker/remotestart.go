package worker

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// isRefusal reports whether the other Holdfast has answered, and would answer the same again.
func isRefusal(err error) bool {
	f, ok := fault.From(err)
	return ok && f.Kind != fault.Unavailable && f.Kind != fault.Exhausted && f.Kind != fault.Internal
}

// begin starts or continues the remote session, and returns the run there to copy. All requests may be repeated.
func (m *remoteRun) begin(ctx context.Context) (run string, err error) {
	deadline := m.peers.Now().Add(m.config.RemotePatience)
	var wait backoff
	for {
		call, cancel := context.WithTimeout(ctx, m.config.CallTimeout)
		run, err = m.request(call)
		cancel()
		if err == nil || ctx.Err() != nil || isRefusal(err) || m.peers.Now().After(deadline) || isClosed(m.draining) {
			return run, err
		}
		if err := wait.sleep(ctx); err != nil {
			return "", err
		}
	}
}

func (m *remoteRun) request(ctx context.Context) (run string, err error) {
	switch entry := m.claimed.run.GetEntry(); entry { //nolint:exhaustive // the others start
	case statev1.RunEntry_RUN_ENTRY_CONTINUATION:
		return m.answer(ctx)
	case statev1.RunEntry_RUN_ENTRY_RESUME:
		resumed, err := m.client.Resume(ctx, &agentv1.ResumeRequest{SessionId: m.session, Message: m.message, RequestKey: m.claimed.ref.GetRunId()})
		switch fault.ReasonOf(err) {
		case "SESSION_NOT_FOUND": // the stop came before the start there
		case "SESSION_COMPLETED", "SESSION_BUSY", "SESSION_SUSPENDED": // the stop came too late there
			return m.answer(ctx)
		default:
			return resumed.GetRunId(), err
		}
	}
	started, err := m.client.Start(ctx, &agentv1.StartRequest{
		SessionId: m.session, AgentType: m.agent.Agent, Message: cmp.Or(m.message, m.question), RequestKey: m.claimed.ref.GetRunId(),
		TimeoutMs: m.recorder.remaining(m.claimed.stateTime(m.peers.Now())),
	})
	return started.GetRunId(), err
}

// usersMessages returns the texts of the users' messages at the begin of the run, empty for none, and of the newest
// ones in the conversation.
func (r *runner) usersMessages(ctx context.Context) (own, newest string, err error) {
	stored, err := conversation{claimed: r.claimed, sessions: r.peers.Sessions, timeout: r.config.CallTimeout}.load(ctx, r.claim.GetMessages())
	if err != nil {
		return "", "", err
	}
	transcript, err := toTranscript(stored)
	if err != nil {
		return "", "", err
	}
	begin := min(int(r.claimed.run.GetStartMessageCount()), len(transcript))
	return joinUsers(transcript[begin:]), joinUsers(transcript[beginOfTurn(transcript, len(transcript)):]), nil
}

// joinUsers returns the texts of the users' messages.
func joinUsers(messages []agent.Message) string {
	var texts []string
	for _, m := range messages {
		if m.Role == agent.RoleUser {
			texts = append(texts, m.Text())
		}
	}
	return strings.Join(texts, "\n\n")
}

// newRemoteHTTP returns an HTTP client for the gateways of others. Requests have the trace context of the run.
func newRemoteHTTP() *http.Client {
	c := model.HTTPClient(nil)
	c.Transport = traced{c.Transport}
	return c
}

// traced adds the trace context to requests.
type traced struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return t.next.RoundTrip(r)
}
