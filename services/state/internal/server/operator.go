package server

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// operatorService implements statev1.OperatorServiceServer.
type operatorService struct {
	statev1.UnimplementedOperatorServiceServer
	overdue *overdue
}

// ExpireSessions implements statev1.OperatorServiceServer.
func (s *operatorService) ExpireSessions(ctx context.Context, r *statev1.ExpireSessionsRequest) (*statev1.ExpireSessionsResponse, error) {
	const byDefault, highest = 1000, 100_000
	limit := int(r.GetLimit())
	if limit < 0 || limit > highest {
		return nil, invalid("LIMIT_INVALID", "limit is %d; give 1 to %d, or 0 for %d", limit, highest, byDefault)
	}
	if limit == 0 {
		limit = byDefault
	}
	sum, err := s.overdue.expire(ctx, limit)
	if err != nil {
		return nil, err
	}
	return &statev1.ExpireSessionsResponse{
		Detected: int32(sum.Detected), Marked: int32(sum.Marked), AlreadyTerminal: int32(sum.AlreadyTerminal), Errors: int32(sum.Errors),
	}, nil
}
