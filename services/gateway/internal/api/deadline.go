package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// deadlineInterceptor turns STOP_NOT_OBSERVED into DEADLINE_EXCEEDED, a code without a fault kind.
// It wraps the interceptor for faults.
type deadlineInterceptor struct{}

func (deadlineInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		answer, err := next(ctx, r)
		return answer, toDeadlineExceeded(err)
	}
}

func (deadlineInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (deadlineInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func toDeadlineExceeded(err error) error {
	found, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	for _, detail := range found.Details() {
		value, failed := detail.Value()
		if info, is := value.(*errdetails.ErrorInfo); failed == nil && is && info.GetReason() == httpapi.StopNotObserved {
			out := connect.NewError(connect.CodeDeadlineExceeded, errors.New(found.Message()))
			out.AddDetail(detail)
			return out
		}
	}
	return err
}
