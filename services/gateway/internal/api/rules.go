package api

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api/contract"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// requestInvalid is the reason of a broken rule without a reason of its own.
const requestInvalid = "REQUEST_INVALID"

// Validate checks a request by the rules of its contract, which are read at the first request of its type. Invalid, with the
// reason of the first broken rule and the metadata "field" and "rule"; REQUEST_INVALID for a rule without a reason.
func Validate(request proto.Message) error {
	broken, err := contract.Check(request.ProtoReflect())
	if broken == nil {
		return err // nil, or a rule that cannot be checked
	}
	reason := broken.Rule
	if broken.Rule != strings.ToUpper(broken.Rule) || broken.Rule == "" {
		reason = requestInvalid
	}
	text := broken.Text
	if broken.Field != "" {
		text = fmt.Sprintf("%s %s", broken.Field, text)
	}
	return fault.New(fault.Invalid, reason, "%s", text).With("field", broken.Field).With("rule", broken.Rule)
}

// refusals turns refusals of the program around the gateway into faults, which this wire has.
type refusals struct{}

func (refusals) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		answer, err := next(ctx, r)
		if refusal := httpapi.RefusalOf(err); refusal != nil {
			return nil, refusal.Fault()
		}
		return answer, err
	}
}

func (refusals) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (refusals) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// rules checks the requests of clients before the service sees them.
type rules struct{}

func (rules) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if m, ok := r.Any().(proto.Message); ok {
			if err := Validate(m); err != nil {
				return nil, err
			}
		}
		return next(ctx, r)
	}
}

func (rules) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (rules) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error { return next(ctx, checked{conn}) }
}

// checked is a stream whose requests are checked.
type checked struct{ connect.StreamingHandlerConn }

func (c checked) Receive(message any) error {
	err := c.StreamingHandlerConn.Receive(message)
	if m, ok := message.(proto.Message); ok && err == nil {
		return Validate(m)
	}
	return err
}
