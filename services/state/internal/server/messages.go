package server

import (
	"cmp"
	"context"
	"math"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ListMessages implements statev1.SessionServiceServer.
func (s *sessionService) ListMessages(ctx context.Context, r *statev1.ListMessagesRequest) (*statev1.ListMessagesResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkRange("LIMIT_INVALID", "offset", r.GetOffset(), math.MaxInt64, "the first message has the ordinal 0")); err != nil {
		return nil, err
	}
	if err := s.grants.ofClaim(ctx, key); err != nil {
		return nil, err
	}
	page := store.Page{From: r.GetOffset(), Limit: limit, MaxBytes: s.limits.PageBytes}
	rows, total, err := readerOf(r, s.store).Messages(ctx, key, page)
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

// conversationState describes a session after a change of its messages.
type conversationState struct{ count, version int64 }

// withVersion adds the session's version to a command's number of messages.
func withVersion(decide func(*session.View) (*session.Change, int64, error)) func(*session.View) (*session.Change, conversationState, error) {
	return func(v *session.View) (*session.Change, conversationState, error) {
		change, count, err := decide(v)
		if err != nil {
			return nil, conversationState{}, err
		}
		after := v.Session
		if change != nil {
			after = change.Session
		}
		return change, conversationState{count, after.Version}, nil
	}
}

// AppendMessages implements statev1.SessionServiceServer.
func (s *sessionService) AppendMessages(ctx context.Context, r *statev1.AppendMessagesRequest) (*statev1.AppendMessagesResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if len(r.GetMessages()) == 0 {
		return nil, messageInvalid("messages is empty; give at least one")
	}
	if err := s.limits.checkAppended(r.GetMessages()); err != nil {
		return nil, err
	}
	if err := checkFiles(ctx, s.files, key.Tenant, r.GetMessages()...); err != nil {
		return nil, err
	}
	command := session.AppendMessages{Key: key, Now: s.clock.millis()}
	if command.Messages, err = messagesIn(r.GetMessages(), origin{now: command.Now, newID: s.ids}); err != nil {
		return nil, err
	}
	size := proto.Size(r)
	if err := s.admissions.checkBytes(ctx, key.Tenant, int64(size)); err != nil {
		return nil, err
	}
	after, err := update(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, command.Need()), size, withVersion(command.Decide))
	if err != nil {
		return nil, err
	}
	s.admissions.bytes.Add(key.Tenant, int64(size))
	return &statev1.AppendMessagesResponse{MessageCount: after.count, Version: after.version}, nil
}

// TruncateMessages implements statev1.SessionServiceServer.
func (s *sessionService) TruncateMessages(ctx context.Context, r *statev1.TruncateMessagesRequest) (*statev1.TruncateMessagesResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkRange("COUNT_INVALID", "count", r.GetCount(), math.MaxInt64, "give how many messages stay"); err != nil {
		return nil, err
	}
	command := session.Truncate{Key: key, Messages: r.GetCount(), Now: s.clock.millis()}
	after, err := update(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, command.Need()), proto.Size(r), withVersion(command.Decide))
	if err != nil {
		return nil, err
	}
	return &statev1.TruncateMessagesResponse{MessageCount: after.count, Version: after.version}, nil
}
