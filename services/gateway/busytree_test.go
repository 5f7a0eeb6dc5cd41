package gateway_test

import (
	"net/http"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// The ways to send a message to the session demo:room with a policy. Each reports whether the message was refused as SESSION_BUSY.
var waysToSend = map[string]func(t *testing.T, h *fixture, policy string) (refused bool){
	"POST /chat": func(t *testing.T, h *fixture, policy string) bool {
		return isBusyAnswer(t, h.request(t, http.MethodPost, "/chat", chatBody("demo:room", "two"), "X-Holdfast-On-Busy", policy))
	},
	"POST /start": func(t *testing.T, h *fixture, policy string) bool {
		return isBusyAnswer(t, h.request(t, http.MethodPost, "/start", toJSON(map[string]any{"sessionId": "demo:room", "message": "two", "onBusy": policy})))
	},
	"Start": func(t *testing.T, h *fixture, policy string) bool {
		_, err := apiClient(t, h).Start(t.Context(), &agentv1.StartRequest{
			SessionId: "demo:room", Message: "two", OnBusy: agentv1.BusyPolicy(statev1.BusyPolicy_value["BUSY_POLICY_"+policyNames[policy]]),
		})
		if err != nil && reason(err) != "SESSION_BUSY" {
			t.Fatal(err)
		}
		return err != nil
	},
	"the protocol of Cloudflare's agents": func(t *testing.T, h *fixture, policy string) bool { // by the policy of the agent
		s, _ := h.agentClient(t, "demo/room")
		s.say(chatRequest("r2", words("two")))
		if policy != "reject" {
			return false
		}
		for {
			if f := s.frame(); f.ID == "r2" && f.Done {
				return f.Error
			}
		}
	},
}

var policyNames = map[string]string{"reject": "REJECT", "enqueue": "ENQUEUE", "interrupt": "INTERRUPT", "rollback": "ROLLBACK"}

func isBusyAnswer(t *testing.T, r *reply) bool {
	t.Helper()
	switch r.StatusCode {
	case http.StatusOK:
		return false
	case http.StatusConflict:
		wantFault(t, r, http.StatusConflict, "SESSION_BUSY")
	default:
		t.Fatalf("got %d %s", r.StatusCode, text(t, r))
	}
	return true
}

func TestATreeAtWorkFollowsTheBusyPolicyWhicheverWayAMessageComes(t *testing.T) {
	t.Parallel()
	for way, send := range waysToSend {
		for policy, name := range policyNames {
			t.Run(way+", "+policy, func(t *testing.T) {
				t.Parallel()
				value := statev1.BusyPolicy(statev1.BusyPolicy_value["BUSY_POLICY_"+name])
				h := open(t, nil, &statev1.Agent{AgentType: "demo", OnBusy: value}, &statev1.Agent{AgentType: "other"})
				h.request(t, http.MethodPost, "/chat", chatBody("demo:room", "one"))
				root := h.AwaitRun(t, "default", "demo:room", nil)
				child := root.Child("a")
				child.Show(1, Started(), StepStarted(), Text("At work."))
				awaits := &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "awaiting_children"}}}
				root.Show(1, Started(), StepStarted(), Call("of-a", `{}`), StepCommitted(), awaits)
				root.Suspend([]*statev1.Call{{ToolCallId: "of-a", ToolName: "add", Input: `{}`, Kind: statev1.CallKind_CALL_KIND_SUB_AGENT}}, AssistantMessage(1, "", "of-a"))

				if refused := send(t, h, policy); refused != (policy == "reject") {
					t.Fatalf("the message was refused: %t", refused)
				}
				waiting := 1
				if policy == "reject" {
					waiting = 0
				}
				waitFor(t, "the message waits", func() bool { return len(h.State.Get("default", "demo:room").GetWaiting()) == waiting })
				stops := policy == "interrupt" || policy == "rollback"
				if stop := h.State.Newest("default", "a").GetStop(); (stop != nil) != stops {
					t.Errorf("the sub-agent has the stop %v, want one: %t", stop, stops)
				}
			})
		}
	}
}
