package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// late makes DEADLINE_EXCEEDED of the one fault that says so: no kind of fault stands
// for that code. It stands outside of the interceptor that makes errors of faults.
type late struct{}

func (late) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		answer, err := next(ctx, r)
		return answer, tooLate(err)
	}
}

func (late) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (late) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func tooLate(err error) error {
	told, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	for _, detail := range told.Details() {
		value, failed := detail.Value()
		if info, is := value.(*errdetails.ErrorInfo); failed == nil && is && info.GetReason() == httpapi.StopNotObserved {
			out := connect.NewError(connect.CodeDeadlineExceeded, errors.New(told.Message()))
			out.AddDetail(detail)
			return out
		}
	}
	return err
}
