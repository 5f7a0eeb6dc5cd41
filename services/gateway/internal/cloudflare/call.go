package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// methodCall is the body of a call of a method. Without a body, the method has no arguments.
type methodCall struct {
	Args []json.RawMessage `json:"args" doc:"the arguments of the method, any JSON values"`
}

// methodAnswer is the answer of a method.
type methodAnswer struct {
	Result json.RawMessage   `json:"result"`
	Values []json.RawMessage `json:"values,omitempty" doc:"what the method has sent before its result"`
}

// callMethod is POST /agents/{agent}/{name}/call/{method}, for clients without a socket. NotFound (AGENT_NOT_FOUND,
// METHOD_NOT_FOUND), Denied (METHOD_NOT_CALLABLE), TooLarge (RESULT_TOO_LARGE), Unavailable (EXECUTOR_UNREACHABLE,
// METHOD_TIMEOUT), and the faults of the method.
func (s *Sockets) callMethod(w http.ResponseWriter, r *http.Request, tenant string) error {
	var body methodCall
	if err := httpapi.ReadOptionalJSON(w, r, s.Bodies, &body); err != nil {
		return err
	}
	stream, release, err := s.Streams.Open(r.Context(), httpapi.ProtocolWait)
	if err != nil {
		return err
	}
	defer release()
	a, err := s.resolve(stream, r)
	if err != nil {
		return err
	}
	caller, _ := auth.From(stream)
	request := &executorv1.CallMethodRequest{
		Tenant: tenant, SessionId: a.session, AgentType: a.agent, Method: r.PathValue("method"), Caller: caller.StateCaller(),
	}
	for _, value := range body.Args {
		request.Arguments = append(request.Arguments, string(value))
	}
	ctx, cancel := context.WithTimeout(stream, s.MethodTimeout)
	defer cancel()
	answer, size := methodAnswer{Result: json.RawMessage("null")}, int64(0)
	err = s.Methods.Call(ctx, request, func(got *executorv1.CallMethodResponse) error {
		switch event := got.GetEvent().(type) {
		case *executorv1.CallMethodResponse_StateChanged:
			s.Live.Notify(ctx, &streamv2.StreamRef{Tenant: tenant, RootSessionId: a.session, SessionId: a.session})
		case *executorv1.CallMethodResponse_Value:
			answer.Values = append(answer.Values, json.RawMessage(event.Value))
			size += int64(len(event.Value))
		case *executorv1.CallMethodResponse_Result:
			answer.Result = json.RawMessage(event.Result)
			size += int64(len(event.Result))
		}
		if size > s.MaxText {
			return fault.New(fault.TooLarge, "RESULT_TOO_LARGE",
				"the values of a method may have at most %d bytes together over HTTP; call it over a socket, which gets each of them at once",
				s.MaxText).WithSizes(0, s.MaxText)
		}
		return nil
	})
	switch {
	case stream.Err() != nil:
		return context.Cause(stream)
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded): // the executor may see the deadline first
		return fault.New(fault.Unavailable, "METHOD_TIMEOUT",
			"the method has not ended within %v (HOLDFAST_GATEWAY_METHOD_TIMEOUT)", s.MethodTimeout)
	case err != nil:
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, answer)
	return nil
}
