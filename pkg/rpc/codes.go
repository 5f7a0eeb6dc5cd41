package rpc

import (
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Code returns the gRPC code of the kind, which is also its Connect code. Invalid and TooLarge share
// INVALID_ARGUMENT.
func Code(k fault.Kind) codes.Code {
	switch k {
	case fault.Invalid, fault.TooLarge:
		return codes.InvalidArgument
	case fault.Unauthenticated:
		return codes.Unauthenticated
	case fault.Denied:
		return codes.PermissionDenied
	case fault.NotFound:
		return codes.NotFound
	case fault.Conflict:
		return codes.FailedPrecondition
	case fault.Stale:
		return codes.Aborted
	case fault.Exhausted:
		return codes.ResourceExhausted
	case fault.Unavailable:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}

// HTTPStatus returns the kind's status on HTTP routes.
func HTTPStatus(k fault.Kind) int {
	switch k {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.Denied:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict, fault.Stale:
		return http.StatusConflict
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Exhausted:
		return http.StatusTooManyRequests
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// foreign describes a code without ErrorInfo: from gRPC itself, a proxy, or a foreign server.
type foreign struct {
	kind   fault.Kind
	reason string
	text   string
}

// describe returns INTERNAL for an unknown code.
func describe(code codes.Code) foreign {
	if f, ok := foreigns[code]; ok {
		return f
	}
	return foreign{fault.Internal, "INTERNAL", "internal error"}
}

var foreigns = map[codes.Code]foreign{
	codes.Canceled:           {fault.Unavailable, "CANCELLED", "the call was cancelled"},
	codes.DeadlineExceeded:   {fault.Unavailable, "DEADLINE_EXCEEDED", "the call ran out of time"},
	codes.Unavailable:        {fault.Unavailable, "UNAVAILABLE", "the service cannot be reached at the moment"},
	codes.InvalidArgument:    {fault.Invalid, "INVALID_ARGUMENT", "the request is not valid"},
	codes.OutOfRange:         {fault.Invalid, "OUT_OF_RANGE", "the request is out of range"},
	codes.Unauthenticated:    {fault.Unauthenticated, "UNAUTHENTICATED", "credentials are missing or do not hold"},
	codes.PermissionDenied:   {fault.Denied, "PERMISSION_DENIED", "these credentials may not do that"},
	codes.NotFound:           {fault.NotFound, "NOT_FOUND", "not found"},
	codes.AlreadyExists:      {fault.Conflict, "ALREADY_EXISTS", "it exists already"},
	codes.FailedPrecondition: {fault.Conflict, "FAILED_PRECONDITION", "the state does not allow the call"},
	codes.Aborted:            {fault.Stale, "ABORTED", "the call was overtaken by another one"},
	codes.ResourceExhausted:  {fault.Exhausted, "RESOURCE_EXHAUSTED", "a limit is reached; wait and try again"},
	codes.Unimplemented:      {fault.Internal, "UNIMPLEMENTED", "the service does not know this call"},
	codes.DataLoss:           {fault.Internal, "DATA_LOSS", "internal error"},
}

// messageTooLarge replaces gRPC's own limit on a message. It arrives as RESOURCE_EXHAUSTED, but a retry would
// never help.
var messageTooLarge = foreign{fault.TooLarge, "MESSAGE_TOO_LARGE", "the message is larger than the limit on messages"}
