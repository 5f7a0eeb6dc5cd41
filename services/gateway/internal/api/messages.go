package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
)

// ListMessages implements the service.
func (s *Server) ListMessages(ctx context.Context, r *agentv1.ListMessagesRequest) (*agentv1.ListMessagesResponse, error) {
	page, err := ask(ctx, s, s.Sessions.Sessions.ListMessages, &statev1.ListMessagesRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Offset: r.GetOffset(), Limit: r.GetLimit(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.ListMessagesResponse{
		Messages: each(page.GetMessages(), func(m *statev1.StoredMessage) *agentv1.StoredMessage {
			s.Files.ShowStored(m.GetMessage())
			showPublicErrors(m.GetMessage())
			if !seesContext(ctx) {
				hideContext(m.GetMessage())
				m.GetMessage().Caller = nil // an application may have given its users' messages instructions
			}
			return &agentv1.StoredMessage{Ordinal: m.GetOrdinal(), Message: m.GetMessage()}
		}),
		Total: page.GetTotal(), HasMore: page.GetHasMore(),
	}, nil
}

// showPublicErrors replaces the errors for the model by those for clients.
func showPublicErrors(m *eventv1.Message) {
	for _, p := range m.GetParts() {
		if r := p.GetToolResult(); r.GetPublicError() != "" {
			r.Error, r.PublicError = r.GetPublicError(), ""
		}
	}
}

// AppendMessages implements the service.
func (s *Server) AppendMessages(ctx context.Context, r *agentv1.AppendMessagesRequest) (*agentv1.AppendMessagesResponse, error) {
	messages, err := inputMessages(ctx, s.Files, r.GetMessages())
	if err != nil {
		return nil, err
	}
	for _, m := range messages { // with ids the request is safe to repeat
		if m.GetId() == "" {
			m.Id = "msg_" + s.NewID()
		}
	}
	appended, err := ask(ctx, s, s.Sessions.Sessions.AppendMessages, &statev1.AppendMessagesRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Messages: messages,
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.AppendMessagesResponse{MessageCount: appended.GetMessageCount(), Version: appended.GetVersion()}, nil
}

// TruncateMessages implements the service.
func (s *Server) TruncateMessages(ctx context.Context, r *agentv1.TruncateMessagesRequest) (*agentv1.TruncateMessagesResponse, error) {
	truncated, err := ask(ctx, s, s.Sessions.Sessions.TruncateMessages, &statev1.TruncateMessagesRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Count: r.GetCount(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.TruncateMessagesResponse{MessageCount: truncated.GetMessageCount(), Version: truncated.GetVersion()}, nil
}

var inputRoles = map[string]eventv1.Role{
	"": eventv1.Role_ROLE_USER, "user": eventv1.Role_ROLE_USER, "assistant": eventv1.Role_ROLE_ASSISTANT, "system": eventv1.Role_ROLE_SYSTEM,
}

// inputMessages converts the messages of a client, and stores their large files. It returns the faults of Files.Refer.
func inputMessages(ctx context.Context, stored *files.Files, messages []*agentv1.InputMessage) ([]*eventv1.Message, error) {
	var out []*eventv1.Message
	for _, m := range messages {
		message := &eventv1.Message{Id: m.GetId(), Role: inputRoles[m.GetRole()], Hidden: m.GetHidden(), UiMetadata: m.GetMetadata()}
		if m.GetText() != "" {
			message.Parts = append(message.Parts, textPart(m.GetText()))
		}
		for _, part := range m.GetParts() {
			switch p := part.GetPart().(type) {
			case *agentv1.InputPart_Text:
				message.Parts = append(message.Parts, textPart(p.Text))
			case *agentv1.InputPart_File:
				message.Parts = append(message.Parts, &eventv1.Part{Part: &eventv1.Part_File{File: p.File}})
			}
		}
		out = append(out, message)
	}
	return out, stored.ReferAll(ctx, tenantOf(ctx), out)
}

func textPart(text string) *eventv1.Part {
	return &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}
}

// userMessage returns a user's message with a text; none for an empty text.
func userMessage(text string) []*eventv1.Message {
	if text == "" {
		return nil
	}
	return []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{textPart(text)}}}
}
