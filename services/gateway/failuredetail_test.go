package gateway_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// The words of a provider may quote its account or the conversation.
func TestOnlyOperatorsReadTheCauseOfAFailure(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"operator": "scopes: [operate]", "user": "scopes: [chat, read]"})
	as := func(name string) connect.ClientOption {
		return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				r.Header().Set("Authorization", keys[name])
				return next(ctx, r)
			}
		}))
	}
	if _, err := clients(t, h, as("user"))["connect"].Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", Message: "hi"}); err != nil {
		t.Fatal(err)
	}
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Fail("The model refused the request.", "provider_invalid_request")
	for name, want := range map[string]string{"operator": "internals", "user": ""} {
		for wire, client := range clients(t, h, as(name)) {
			session, err := client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "s1"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.GetRun(t.Context(), &agentv1.GetRunRequest{SessionId: "s1", RunId: session.GetRun().GetRunId()})
			if err != nil {
				t.Fatal(err)
			}
			for what, f := range map[string]*agentv1.Failure{"session": session.GetSession().GetFailure(), "its run": session.GetRun().GetFailure(), "run": got.GetRun().GetFailure()} {
				if f.GetDetail() != want || f.GetError() != "The model refused the request." {
					t.Errorf("%s over %s: the failure of the %s is %v, want the cause %q", name, wire, what, f, want)
				}
			}
		}
	}
}
