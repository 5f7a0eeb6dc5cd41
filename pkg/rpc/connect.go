package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// ConnectError returns the Connect error for a caller, by the rules of StatusError.
func ConnectError(err error) error {
	if err == nil {
		return nil
	}
	a := visibleError(err)
	out := connect.NewError(connect.Code(a.code), errors.New(a.text))
	if a.info == nil {
		return out
	}
	if detail, err := connect.NewErrorDetail(a.info); err == nil {
		out.AddDetail(detail)
	}
	if f, ok := fault.From(err); ok && f.RetryAfter() > 0 {
		out.Meta().Set("Retry-After", strconv.FormatInt(f.RetryAfterSeconds(), 10))
	}
	return out
}

// FromConnect converts the error of a Connect client into an error with a *fault.Fault, by the rules of
// FaultError. If the caller's context has ended, it returns the context's error.
func FromConnect(err error) error {
	// The regular end of a stream is io.EOF without a code of its own; with one it is a broken connection.
	if err == nil || errors.Is(err, io.EOF) && connect.CodeOf(err) == connect.CodeUnknown {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	c, ok := errors.AsType[*connect.Error](err)
	if _, known := fault.From(err); known || !ok {
		return err
	}
	for _, detail := range c.Details() {
		value, err := detail.Value()
		if info, ok := value.(*errdetails.ErrorInfo); err == nil && ok && info.GetDomain() == Domain {
			return faultFrom(codes.Code(c.Code()), c.Message(), info)
		}
	}
	return foreignFault(codes.Code(c.Code()), c.Message())
}

// ConnectInterceptor does for Connect handlers what NewServer's interceptors do for gRPC: faults travel whole,
// and panics and other errors are logged and become INTERNAL. It does not affect clients. A nil log is
// slog.Default.
func ConnectInterceptor(log *slog.Logger) connect.Interceptor {
	return connectInterceptor{newBoundary(log, nil)}
}

type connectInterceptor struct{ boundary boundary }

func (i connectInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (_ connect.AnyResponse, err error) {
		if r.Spec().IsClient {
			return next(ctx, r)
		}
		defer i.close(ctx, r.Spec().Procedure, &err)
		return next(ctx, r)
	}
}

func (i connectInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i connectInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		defer i.close(ctx, conn.Spec().Procedure, &err)
		return next(ctx, received{conn})
	}
}

// received is a stream whose malformed requests are faults of the client: Invalid (REQUEST_MALFORMED).
type received struct{ connect.StreamingHandlerConn }

func (r received) Receive(message any) error {
	err := r.StreamingHandlerConn.Receive(message)
	c, ok := errors.AsType[*connect.Error](err)
	isEnd := errors.Is(err, io.EOF) && connect.CodeOf(err) == connect.CodeUnknown
	if !ok || isEnd || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, detail := range c.Details() {
		if value, err := detail.Value(); err == nil {
			if _, isFault := value.(*errdetails.ErrorInfo); isFault {
				return FromConnect(c)
			}
		}
	}
	switch c.Code() {
	case connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeUnavailable, connect.CodeResourceExhausted:
		return err
	default:
		return fault.New(fault.Invalid, "REQUEST_MALFORMED",
			"the body is not a message of the protocol in its content type: %s", c.Message())
	}
}

// close is deferred around a handler and determines the returned error.
func (i connectInterceptor) close(ctx context.Context, procedure string, err *error) {
	p := recover()
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic's value so
		panic(p)
	}
	if p != nil {
		i.boundary.panicked(ctx, procedure, p)
		*err = panicError{}
	}
	if *err == nil || connect.IsNotModifiedError(*err) {
		return
	}
	i.boundary.report(ctx, procedure, *err)
	*err = ConnectError(*err)
}
