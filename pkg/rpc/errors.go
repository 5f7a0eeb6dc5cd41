package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Domain is the domain of every ErrorInfo with a fault.
const Domain = "holdfast"

// kindKey is the metadata key of a kind beside its code. It is reserved: a fault's own value for it does not
// cross the wire.
const kindKey = "holdfast-kind"

// answer is the visible part of an error.
type answer struct {
	code codes.Code
	text string
	info *errdetails.ErrorInfo // nil for a code without a fault
}

// internal reports whether the error must be logged, because the caller receives only INTERNAL.
func (a answer) internal() bool {
	return a.code == codes.Internal || a.code == codes.Unknown || a.code == codes.DataLoss
}

// visibleError returns the part of err that may travel. The order matters: a fault takes precedence over the errors
// around it.
func visibleError(err error) answer {
	if f, ok := fault.From(err); ok {
		return faultAnswer(f)
	}
	if errors.Is(err, context.Canceled) {
		return codeAnswer(codes.Canceled)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codeAnswer(codes.DeadlineExceeded)
	}
	if code, text, ok := codeIn(err); ok {
		if tooLarge(code, text) {
			return foreignAnswer(messageTooLarge)
		}
		return codeAnswer(code)
	}
	return foreignAnswer(describe(codes.Internal))
}

func faultAnswer(f *fault.Fault) answer {
	meta := make(map[string]string, len(f.Meta)+1)
	for key, value := range f.Meta {
		meta[validUTF8(key)] = validUTF8(value)
	}
	meta[kindKey] = f.Kind.String()
	info := &errdetails.ErrorInfo{Domain: Domain, Reason: validUTF8(f.Reason), Metadata: meta}
	return answer{code: Code(f.Kind), text: validUTF8(f.Detail), info: info}
}

func foreignAnswer(f foreign) answer {
	return faultAnswer(fault.New(f.kind, f.reason, "%s", f.text))
}

func codeAnswer(code codes.Code) answer {
	if code == codes.Internal || code == codes.Unknown {
		return foreignAnswer(describe(codes.Internal))
	}
	return answer{code: code, text: describe(code).text}
}

// validUTF8 returns a text that protobuf can encode. A detail may quote a user's input, and one invalid byte would
// lose the whole fault.
func validUTF8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// codeIn finds a gRPC status or a Connect error in err.
func codeIn(err error) (codes.Code, string, bool) {
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok && s.GRPCStatus().Code() != codes.OK {
		return s.GRPCStatus().Code(), s.GRPCStatus().Message(), true
	}
	if c, ok := errors.AsType[*connect.Error](err); ok {
		return codes.Code(c.Code()), c.Message(), true
	}
	return codes.OK, "", false
}

// tooLarge distinguishes the limit on one message, which gRPC and Connect report only by text, from a limit that
// passes with time.
func tooLarge(code codes.Code, text string) bool {
	return code == codes.ResourceExhausted && strings.Contains(text, "larger than")
}

// StatusError returns the gRPC status error for a caller, as the server's interceptors do: nil for nil, a status
// with ErrorInfo for a fault, CANCELLED or DEADLINE_EXCEEDED for an ended context, and INTERNAL with a fixed
// text for everything else.
func StatusError(err error) error {
	if err == nil {
		return nil
	}
	return visibleError(err).status().Err()
}

func (a answer) status() *status.Status {
	s := status.New(a.code, a.text)
	if a.info == nil {
		return s
	}
	detailed, err := s.WithDetails(a.info)
	if err != nil {
		// Only invalid UTF-8 could cause this, and valid has replaced it.
		return s
	}
	return detailed
}

// FaultError converts err as the client's interceptors do: a gRPC status becomes an error with a *fault.Fault,
// equal to the one given to StatusError. nil, io.EOF, ended contexts, faults and other errors do not change.
func FaultError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := fault.From(err); ok {
		return err
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return faultFrom(s.Code(), s.Message(), info)
		}
	}
	return foreignFault(s.Code(), s.Message())
}

// faultFrom is the inverse of faultAnswer.
func faultFrom(code codes.Code, text string, info *errdetails.ErrorInfo) *fault.Fault {
	f := &fault.Fault{Kind: describe(code).kind, Reason: info.GetReason(), Detail: text}
	if len(info.GetMetadata()) > 1 {
		f.Meta = maps.Clone(info.GetMetadata())
		delete(f.Meta, kindKey)
	}
	for _, kind := range fault.Kinds() {
		// Ignore a kind that contradicts the code: proxies and other clients act on the code.
		if kind.String() == info.GetMetadata()[kindKey] && Code(kind) == code {
			f.Kind = kind
		}
	}
	return f
}

// foreignFault keeps a foreign text out of the fault, which may reach a user. The text stays in the wrapping
// error, for the log.
func foreignFault(code codes.Code, text string) error {
	f := describe(code)
	if tooLarge(code, text) {
		f = messageTooLarge
	}
	return fmt.Errorf("%w (%s: %s)", fault.New(f.kind, f.reason, "%s", f.text), code, text)
}
