package conversation_test

import (
	"testing"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

func TestARootAwaitsTheSubAgentsThatAwaitNothing(t *testing.T) {
	t.Parallel()
	open := func(session string, kind statev1.CallKind) *statev1.Call {
		return &statev1.Call{SessionId: session, Kind: kind}
	}
	const sub, client = statev1.CallKind_CALL_KIND_SUB_AGENT, statev1.CallKind_CALL_KIND_CLIENT_TOOL
	for name, c := range map[string]struct {
		calls []*statev1.Call
		want  bool
	}{
		"one at work":                     {[]*statev1.Call{open("s", sub)}, true},
		"one that waits for a client":     {[]*statev1.Call{open("s", sub), open("a", client)}, false},
		"one of two that waits":           {[]*statev1.Call{open("s", sub), open("s", sub), open("a", client)}, true},
		"one at work below another":       {[]*statev1.Call{open("s", sub), open("a", sub)}, true},
		"a waiting one below another":     {[]*statev1.Call{open("s", sub), open("a", sub), open("b", client)}, false},
		"one beside a waiting companion":  {[]*statev1.Call{open("s", sub), open("companion", client)}, true},
		"a waiting one, and a companion":  {[]*statev1.Call{open("s", sub), open("a", client), open("companion", client)}, false},
		"a waiting one of a companion":    {[]*statev1.Call{open("s", sub), open("companion", sub), open("a", client)}, false},
		"a companion with its sub-agents": {[]*statev1.Call{open("s", sub), open("companion", sub)}, true},
	} {
		root := &statev1.GetSessionResponse{
			Session: &statev1.Session{SessionId: "s", Status: statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN}, Calls: c.calls,
			SubSessions: []*statev1.SubSession{{SessionId: "companion", Mode: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT}},
		}
		if got := conversation.AwaitsSubAgents(root); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
