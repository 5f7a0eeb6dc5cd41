package server

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// dueBytes is about what a command that nobody has sent holds while it waits.
const dueBytes = 1024

// ExpireSessions implements statev1.OperatorServiceServer.
func (s *Server) ExpireSessions(ctx context.Context, r *statev1.ExpireSessionsRequest) (*statev1.ExpireSessionsResponse, error) {
	const usual, most = 1000, 100_000
	limit := int(r.GetLimit())
	if limit < 0 || limit > most {
		return nil, fault.New(fault.Invalid, "LIMIT_INVALID", "limit is %d; ask for 1 to %d, or 0 for %d", limit, most, usual)
	}
	if limit == 0 {
		limit = usual
	}
	sum, err := s.Expire(ctx, limit)
	if err != nil {
		return nil, err
	}
	return &statev1.ExpireSessionsResponse{
		Detected: int32(sum.Detected), Marked: int32(sum.Marked), AlreadyTerminal: int32(sum.AlreadyTerminal), Errors: int32(sum.Errors),
	}, nil
}

// Expire fails the sessions whose time is over, at most so many.
func (s *Server) Expire(ctx context.Context, most int) (sweep.Summary, error) {
	return sweep.Expiry{Store: s.store, Expire: s.expire, Now: s.now, Log: s.log}.Run(ctx, most)
}

func (s *Server) expire(ctx context.Context, key session.Key) (session.Expired, error) {
	command := session.Expire{Key: key, Now: s.millis()}
	return spread(ctx, s, session.Target{Key: key, Need: command.Need()}, dueBytes, command.Now, alone(command.Decide))
}

// TimeOut answers the overdue calls of a session. One that is gone has none.
func (s *Server) TimeOut(ctx context.Context, key session.Key) error {
	answer, err := timedOut()
	if err != nil {
		return err
	}
	command := session.Timeout{Key: key, Response: always(answer), NewRunID: s.newRunID(), Now: s.millis()}
	_, err = spread(ctx, s, session.Target{Key: key, Need: command.Need()}, dueBytes, command.Now, alone(command.Decide))
	if err != nil && fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}
