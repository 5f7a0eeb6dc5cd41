package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// measure measures the RPCs. It wraps the interceptor for faults.
type measure struct {
	meters *httpapi.Meters
	now    func() time.Time
}

func (m measure) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		began := m.now()
		answer, err := next(ctx, r)
		m.meters.Called(ctx, r.Spec().Procedure, codeOf(err), m.now().Sub(began))
		return answer, err
	}
}

func (m measure) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (m measure) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		began := m.now()
		err := next(ctx, conn)
		m.meters.Called(ctx, conn.Spec().Procedure, codeOf(err), m.now().Sub(began))
		return err
	}
}

// codeOf returns the code of an RPC as Connect writes it, or "ok".
func codeOf(err error) string {
	if err == nil || connect.IsNotModifiedError(err) {
		return "ok"
	}
	return connect.CodeOf(err).String()
}
