package worker

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
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
	entry := m.claimed.run.GetEntry()
	if entry == statev1.RunEntry_RUN_ENTRY_CONTINUATION {
		return m.answer(ctx)
	}
	if entry == statev1.RunEntry_RUN_ENTRY_RESUME && m.progress.Run != "" {
		resumed, err := m.client.Resume(ctx, &agentv1.ResumeRequest{SessionId: m.session, Message: m.message(), RequestKey: m.claimed.ref.GetRunId()})
		switch fault.ReasonOf(err) {
		case "":
			return resumed.GetRunId(), nil
		case "SESSION_COMPLETED", "SESSION_BUSY", "SESSION_SUSPENDED": // the stop came too late there
			return m.answer(ctx)
		}
		return "", err
	}
	started, err := m.client.Start(ctx, &agentv1.StartRequest{
		SessionId: m.session, AgentType: m.agent.Agent, Message: m.message(), RequestKey: m.claimed.ref.GetRunId(),
		TimeoutMs: m.recorder.remaining(m.peers.Now()),
	})
	return started.GetRunId(), err
}

// message returns the texts of the users' messages that the run answers.
func (m *remoteRun) message() string {
	var texts []string
	stored := m.claim.GetMessages()
	for i := len(stored) - 1; i >= 0 && isUserMessage(stored[i]); i-- {
		texts = append(texts, textOf(stored[i]))
	}
	slices.Reverse(texts)
	return strings.Join(texts, "\n\n")
}

func isUserMessage(s *statev1.StoredMessage) bool {
	message, err := toMessage(s.GetMessage())
	return err == nil && message.Role == agent.RoleUser
}

func textOf(s *statev1.StoredMessage) string {
	message, err := toMessage(s.GetMessage())
	if err != nil {
		return ""
	}
	return message.Text()
}
