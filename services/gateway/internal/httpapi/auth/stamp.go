package auth

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Stamped is a connection to the state service that names the caller of each request, and checks the rights to its
// content. Every request of a gateway goes through it, so no handler can forget to.
type Stamped struct {
	grpc.ClientConnInterface
	Audit    Auditor  // of refused content; nil for none
	Entrance Entrance // nil for none
}

// Entrance is asked about the commands of callers, whatever transport they come by.
type Entrance interface {
	// Enter is called before a command is sent, with the rights to it checked. It may change the command. An error refuses it.
	// It is not called again for a repetition of the same command.
	Enter(ctx context.Context, caller Identity, command proto.Message) error
	// Entered is called after the command has succeeded.
	Entered(ctx context.Context, caller Identity, command proto.Message, answer any)
}

// callerField is the name of the field for the caller in requests.
const callerField protoreflect.Name = "caller"

// Invoke sets the field "caller" of the request, if it has one, to the identity of ctx, and makes the call. It asks the
// entrance first. A context without an identity is a mistake of this program. Denied (SCOPE_MISSING, OWNER_REFUSED), and the
// errors of the entrance.
func (s Stamped) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if m, ok := request.(proto.Message); ok {
		if err := s.stamp(ctx, m.ProtoReflect()); err != nil {
			return fmt.Errorf("call %s: %w", method, err)
		}
	}
	err := s.ClientConnInterface.Invoke(ctx, method, request, answer, options...)
	if err == nil && s.Entrance != nil {
		s.entered(ctx, request, answer)
	}
	if fault.KindOf(err) == fault.Denied {
		s.recordDenied(ctx, request, err)
	}
	return err
}

func (s Stamped) entered(ctx context.Context, request, answer any) {
	m, is := request.(proto.Message)
	if caller, known := From(ctx); is && known {
		s.Entrance.Entered(ctx, caller, m, answer)
	}
}

// recordDenied records what the state service denied a caller, such as the approval of its own request.
func (s Stamped) recordDenied(ctx context.Context, request any, refusal error) {
	caller, known := From(ctx)
	m, is := request.(proto.Message)
	if !known || !is {
		return
	}
	e := caller.refused(string(m.ProtoReflect().Descriptor().Name()), refusal)
	e.Action = ActionDenied
	for _, name := range []protoreflect.Name{"session_id", "tool_call_id"} {
		if field := m.ProtoReflect().Descriptor().Fields().ByName(name); field != nil {
			e.Detail[string(name)] = m.ProtoReflect().Get(field).String()
		}
	}
	record(ctx, s.Audit, e)
}

func (s Stamped) stamp(ctx context.Context, m protoreflect.Message) error {
	field := m.Descriptor().Fields().ByName(callerField)
	if field == nil {
		return nil
	}
	caller, known := From(ctx)
	if !known {
		return fmt.Errorf("the context of a %s has no identity", m.Descriptor().Name())
	}
	err := caller.checkContent(m.Interface())
	if err == nil {
		err = caller.confine(m)
	}
	if err != nil {
		record(ctx, s.Audit, caller.refused(string(m.Descriptor().Name()), err))
		return err
	}
	if s.Entrance != nil && !m.Has(field) { // a repetition has its caller already
		if err := s.Entrance.Enter(ctx, caller, m.Interface()); err != nil {
			return err
		}
		if err := caller.confine(m); err != nil { // the change may name another user
			return err
		}
	}
	m.Set(field, protoreflect.ValueOfMessage(caller.StateCaller().ProtoReflect()))
	return nil
}

// StateCaller returns the caller as requests to the state service name it.
func (i Identity) StateCaller() *statev1.Caller {
	return &statev1.Caller{Actor: i.Actor(), Owner: i.Owner()}
}
