package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// crossings carry an error to a caller and back without a network.
var crossings = map[string]func(error) error{
	"grpc":    func(err error) error { return rpc.FaultError(rpc.StatusError(err)) },
	"connect": func(err error) error { return rpc.FromConnect(rpc.ConnectError(err)) },
	"two hops": func(err error) error {
		return rpc.FromConnect(rpc.ConnectError(fmt.Errorf("gateway: %w", rpc.FaultError(rpc.StatusError(err)))))
	},
}

func TestAFaultCrossesWhole(t *testing.T) {
	t.Parallel()
	for _, kind := range fault.Kinds() {
		for name, cross := range crossings {
			want := fault.New(kind, "STATE_SIZE_EXCEEDED", "2 MiB, and 1 MiB is allowed").With("limit", "1048576")
			err := cross(fmt.Errorf("commit step: %w", want))
			got, ok := fault.From(err)
			if !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%v over %s: got %#v, want %#v", kind, name, got, want)
			}
			if !errors.Is(err, kind) {
				t.Errorf("%v over %s: errors.Is is false for %v", kind, name, err)
			}
		}
	}
}

func TestAFaultWithoutMetadataHasNoneOnTheOtherSide(t *testing.T) {
	t.Parallel()
	got, _ := fault.From(crossings["grpc"](fault.New(fault.NotFound, "SESSION_NOT_FOUND", "no session s1")))
	if got.Meta != nil {
		t.Errorf("Meta = %v, want nil", got.Meta)
	}
}

func TestAReservedKeyCannotChangeTheKind(t *testing.T) {
	t.Parallel()
	got, _ := fault.From(crossings["grpc"](fault.New(fault.Invalid, "BAD", "bad").With("holdfast-kind", "too large")))
	if got.Kind != fault.Invalid || got.Meta != nil {
		t.Errorf("got %#v, want Invalid without metadata", got)
	}
}

func TestBrokenTextCostsNoMoreThanItself(t *testing.T) {
	t.Parallel()
	bad := "a\xffb"
	for name, cross := range crossings {
		got, _ := fault.From(cross(fault.New(fault.Stale, "EPOCH_STALE", "%s", bad).With(bad, bad)))
		want := &fault.Fault{Kind: fault.Stale, Reason: "EPOCH_STALE", Detail: "a\uFFFDb", Meta: map[string]string{"a\uFFFDb": "a\uFFFDb"}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("over %s: got %#v, want %#v", name, got, want)
		}
	}
}

func TestEachKindHasItsCodeAndStatus(t *testing.T) {
	t.Parallel()
	tests := map[fault.Kind]struct {
		code   codes.Code
		status int
	}{
		fault.Internal:        {codes.Internal, http.StatusInternalServerError},
		fault.Invalid:         {codes.InvalidArgument, http.StatusBadRequest},
		fault.Unauthenticated: {codes.Unauthenticated, http.StatusUnauthorized},
		fault.Denied:          {codes.PermissionDenied, http.StatusForbidden},
		fault.NotFound:        {codes.NotFound, http.StatusNotFound},
		fault.Conflict:        {codes.FailedPrecondition, http.StatusConflict},
		fault.Stale:           {codes.Aborted, http.StatusConflict},
		fault.TooLarge:        {codes.InvalidArgument, http.StatusRequestEntityTooLarge},
		fault.Exhausted:       {codes.ResourceExhausted, http.StatusTooManyRequests},
		fault.Unavailable:     {codes.Unavailable, http.StatusServiceUnavailable},
	}
	for _, kind := range fault.Kinds() {
		want, ok := tests[kind]
		if !ok {
			t.Errorf("%v is not in the table", kind)
		}
		if got := rpc.Code(kind); got != want.code {
			t.Errorf("Code(%v) = %v, want %v", kind, got, want.code)
		}
		if got := rpc.HTTPStatus(kind); got != want.status {
			t.Errorf("HTTPStatus(%v) = %d, want %d", kind, got, want.status)
		}
	}
}

func TestOnlyFaultsKeepTheirText(t *testing.T) {
	t.Parallel()
	const secret = "password=hunter2"
	tests := []struct {
		name string
		err  error
		code codes.Code
	}{
		{"plain", errors.New(secret), codes.Internal},
		{"around a fault", fmt.Errorf("%s: %w", secret, fault.New(fault.Stale, "EPOCH_STALE", "stale")), codes.Aborted},
		{"around a kind", fmt.Errorf("%s: %w", secret, fault.NotFound), codes.NotFound},
		{"around a cancelled context", fmt.Errorf("%s: %w", secret, context.Canceled), codes.Canceled},
		{"around a deadline", fmt.Errorf("%s: %w", secret, context.DeadlineExceeded), codes.DeadlineExceeded},
		{"a status", status.Error(codes.Unimplemented, secret), codes.Unimplemented},
		{"a wrapped status", fmt.Errorf("call: %w", status.Error(codes.AlreadyExists, secret)), codes.AlreadyExists},
		{"an unknown status", status.Error(codes.Unknown, secret), codes.Internal},
		{"a Connect error", connect.NewError(connect.CodeOutOfRange, errors.New(secret)), codes.OutOfRange},
		{"a message over the limit", status.Error(codes.ResourceExhausted, secret+" larger than max"), codes.InvalidArgument},
		{"a broken transport", rpc.FaultError(status.Error(codes.Unavailable, secret)), codes.Unavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := status.Convert(rpc.StatusError(test.err))
			if s.Code() != test.code || strings.Contains(fmt.Sprint(s.Proto()), secret) || s.Message() == "" && test.name != "around a kind" {
				t.Errorf("StatusError = %v, want %v with a text of its own", s.Proto(), test.code)
			}
			c := &connect.Error{}
			if err := rpc.ConnectError(test.err); !errors.As(err, &c) || c.Code() != connect.Code(test.code) || strings.Contains(err.Error(), secret) {
				t.Errorf("ConnectError = %v, want %v with a text of its own", err, test.code)
			}
		})
	}
}

func TestAStatusFromSomebodyElseIsAFaultByItsCode(t *testing.T) {
	t.Parallel()
	const text = "dial tcp 10.0.0.3:7001: refused"
	tests := map[codes.Code]struct {
		kind   fault.Kind
		reason string
	}{
		codes.Canceled:           {fault.Unavailable, "CANCELLED"},
		codes.Unknown:            {fault.Internal, "INTERNAL"},
		codes.InvalidArgument:    {fault.Invalid, "INVALID_ARGUMENT"},
		codes.DeadlineExceeded:   {fault.Unavailable, "DEADLINE_EXCEEDED"},
		codes.NotFound:           {fault.NotFound, "NOT_FOUND"},
		codes.AlreadyExists:      {fault.Conflict, "ALREADY_EXISTS"},
		codes.PermissionDenied:   {fault.Denied, "PERMISSION_DENIED"},
		codes.ResourceExhausted:  {fault.Exhausted, "RESOURCE_EXHAUSTED"},
		codes.FailedPrecondition: {fault.Conflict, "FAILED_PRECONDITION"},
		codes.Aborted:            {fault.Stale, "ABORTED"},
		codes.OutOfRange:         {fault.Invalid, "OUT_OF_RANGE"},
		codes.Unimplemented:      {fault.Internal, "UNIMPLEMENTED"},
		codes.Internal:           {fault.Internal, "INTERNAL"},
		codes.Unavailable:        {fault.Unavailable, "UNAVAILABLE"},
		codes.DataLoss:           {fault.Internal, "DATA_LOSS"},
		codes.Unauthenticated:    {fault.Unauthenticated, "UNAUTHENTICATED"},
		codes.Code(77):           {fault.Internal, "INTERNAL"},
	}
	for code, want := range tests {
		for name, err := range map[string]error{
			"grpc":    rpc.FaultError(status.Error(code, text)),
			"connect": rpc.FromConnect(connect.NewError(connect.Code(code), errors.New(text))),
		} {
			f, ok := fault.From(err)
			if !ok || f.Kind != want.kind || f.Reason != want.reason {
				t.Errorf("%v over %s = %v, want %v (%s)", code, name, err, want.kind, want.reason)
				continue
			}
			if strings.Contains(f.Detail, text) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v over %s: detail %q in error %q, want the transport's text in the error alone", code, name, f.Detail, err)
			}
		}
	}
}

func TestWhatIsNoStatusStaysAsItIs(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, io.EOF, context.Canceled, context.DeadlineExceeded, errors.New("plain"), fault.New(fault.Stale, "A", "b")} {
		if got := rpc.FaultError(err); got != err {
			t.Errorf("FaultError(%v) = %v", err, got)
		}
		if got := rpc.FromConnect(err); got != err {
			t.Errorf("FromConnect(%v) = %v", err, got)
		}
	}
	if rpc.StatusError(nil) != nil || rpc.ConnectError(nil) != nil {
		t.Error("nil became an error")
	}
}
