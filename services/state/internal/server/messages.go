package server

import (
	"context"
	"math"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ListMessages implements statev1.SessionServiceServer.
func (s *sessionService) ListMessages(ctx context.Context, r *statev1.ListMessagesRequest) (*statev1.ListMessagesResponse, error) {
	x := s.runner.read(r)
	key := x.key(r)
	page := store.Page{
		Limit: x.pageLimit(r.GetLimit()), MaxBytes: x.limits.PageBytes,
		From: number(x, "LIMIT_INVALID", "offset", r.GetOffset(), math.MaxInt64, "the first message has the ordinal 0"),
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.ofClaim(ctx, key); err != nil {
		return nil, err
	}
	rows, total, err := x.owned(s.store).Messages(ctx, key, page)
	if err != nil {
		return nil, err
	}
	messages, err := messagesOut(rows)
	if err != nil {
		return nil, err
	}
	more := page.From+int64(len(rows)) < total
	return &statev1.ListMessagesResponse{Messages: messages, Total: total, HasMore: more}, nil
}

// AppendMessages implements statev1.SessionServiceServer.
func (s *sessionService) AppendMessages(ctx context.Context, r *statev1.AppendMessagesRequest) (*statev1.AppendMessagesResponse, error) {
	x := s.runner.read(r)
	command := session.AppendMessages{Key: x.key(r), Now: x.now}
	if len(r.GetMessages()) == 0 {
		x.refuse("MESSAGE_INVALID", "messages is empty; give at least one")
	}
	command.Messages = x.appended(r.GetMessages())
	if x.err != nil {
		return nil, x.err
	}
	if err := checkFiles(ctx, s.files, command.Tenant, x.fileIDs); err != nil {
		return nil, err
	}
	size := int64(x.bytes())
	if err := s.admissions.checkBytes(ctx, command.Tenant, size); err != nil {
		return nil, err
	}
	after, err := run(ctx, s.runner, onSession(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	s.admissions.bytes.Add(command.Tenant, size)
	return &statev1.AppendMessagesResponse{MessageCount: after.Messages, Version: after.Version}, nil
}

// TruncateMessages implements statev1.SessionServiceServer.
func (s *sessionService) TruncateMessages(
	ctx context.Context, r *statev1.TruncateMessagesRequest,
) (*statev1.TruncateMessagesResponse, error) {
	x := s.runner.read(r)
	command := session.Truncate{
		Key: x.key(r), Messages: number(x, "COUNT_INVALID", "count", r.GetCount(), math.MaxInt64, "give how many messages stay"), Now: x.now,
	}
	if x.err != nil {
		return nil, x.err
	}
	after, err := run(ctx, s.runner, onSession(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.TruncateMessagesResponse{MessageCount: after.Messages, Version: after.Version}, nil
}
