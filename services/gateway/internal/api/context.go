package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// AddContext implements the service.
func (s *Server) AddContext(ctx context.Context, r *agentv1.AddContextRequest) (*agentv1.AddContextResponse, error) {
	if len(r.GetRows()) == 0 {
		return nil, fault.New(fault.Invalid, "CONTEXT_INVALID", "there are no rows of context; give at least one")
	}
	messages, err := contextMessages(r.GetRows())
	if err != nil {
		return nil, err
	}
	for i, m := range messages { // with ids the request is safe to repeat
		m.Id = "ctx_" + s.NewID()
		if key := r.GetRequestKey(); key != "" {
			digest := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(i)))
			m.Id = "ctx_" + hex.EncodeToString(digest[:16])
		}
	}
	appended, err := ask(ctx, s, s.Sessions.Sessions.AppendMessages, &statev1.AppendMessagesRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Messages: messages,
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.AddContextResponse{MessageCount: appended.GetMessageCount(), Version: appended.GetVersion()}, nil
}

// contextMessages returns the messages for rows of context. The faults are those of agent.CheckContext.
func contextMessages(rows []*eventv1.ContextRow) ([]*eventv1.Message, error) {
	list := make([]agent.ContextRow, len(rows))
	for i, r := range rows {
		list[i] = agent.ContextRow{
			Kind: agent.ContextKind(r.GetKind()), Text: r.GetText(), Key: r.GetKey(), Disable: r.GetDisable(), Enable: r.GetEnable(),
		}
	}
	if err := agent.CheckContext(list); err != nil {
		return nil, err
	}
	messages := make([]*eventv1.Message, len(list))
	for i, row := range list {
		messages[i] = &eventv1.Message{
			Role: eventv1.Role_ROLE_CONTEXT, Hidden: true, Metadata: row.Message("", agent.ContextOfApp).Metadata,
			Parts: []*eventv1.Part{textPart(row.Text)},
		}
	}
	return messages, nil
}

// hideContext removes the content of a row of context. The runtime's own context messages, such as summaries, stay.
func hideContext(m *eventv1.Message) {
	if _, _, isRow := agent.ContextRowOf(agent.Message{Role: agent.Role(contextRole(m)), Metadata: m.GetMetadata()}); isRow {
		m.Parts, m.Metadata = nil, nil
	}
}

func contextRole(m *eventv1.Message) string {
	if m.GetRole() == eventv1.Role_ROLE_CONTEXT {
		return string(agent.RoleContext)
	}
	return ""
}

// seesContext reports whether the caller may read rows of context.
func seesContext(ctx context.Context) bool {
	caller, _ := auth.From(ctx)
	return caller.May(auth.Operate)
}
