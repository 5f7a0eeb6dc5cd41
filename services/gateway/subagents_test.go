package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// playBelow plays a root that waits for sub-agents, who ask for approvals of these names.
func playBelow(h *fixture, t *testing.T, asks map[string][]string) map[string]*Run {
	root := h.AwaitRun(t, "default", "s1", nil)
	told, calls := []*eventv1.Chunk{Started(), StepStarted()}, []string{}
	below := map[string]*Run{}
	for session := range asks {
		calls = append(calls, "of-"+session)
	}
	slices.Sort(calls)
	var open []*statev1.Call
	for _, id := range calls {
		told = append(told, Call(id, `{"message":"go"}`), &eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{
			SubagentStart: &eventv1.SubagentStart{ToolCallId: id, SubSessionId: id[len("of-"):], SubAgentType: "other"},
		}})
		open = append(open, &statev1.Call{ToolCallId: id, ToolName: "add", Input: `{"message":"go"}`, Kind: statev1.CallKind_CALL_KIND_SUB_AGENT})
		below[id[len("of-"):]] = root.Child(id[len("of-"):])
	}
	awaits := &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "awaiting_children"}}}
	root.Show(1, append(told, StepCommitted(), awaits)...)
	root.Suspend(open, AssistantMessage(1, "", calls...))
	for session, run := range below {
		playAsk(run, 1, asks[session]...)
	}
	return below
}

// openAt returns the calls that the client shows as open approvals.
func (c *uiClient) openAt() (ids []string) {
	for _, p := range c.parts {
		if p["state"] == "approval-requested" {
			ids = append(ids, fmt.Sprint(p["toolCallId"]))
		}
	}
	slices.Sort(ids)
	return ids
}

// After each answer the client shows the approvals that still wait: those of another sub-agent, those that the
// same one asks for next, and those of both.
func TestAnAnswerToASubAgentLeavesTheOtherApprovalsAtTheClient(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"", "?aiSdk=6", "?aiSdk=7"} {
		for name, test := range map[string]struct {
			asks map[string][]string
			next []string // what the sub-agent a asks for when y1 has been answered
			want []string
		}{
			"another sub-agent waits":          {asks: map[string][]string{"a": {"y1"}, "b": {"y2"}}, want: []string{"y2"}},
			"the sub-agent waits for another":  {asks: map[string][]string{"a": {"y1", "y2"}}, want: []string{"y2"}},
			"the sub-agent asks again":         {asks: map[string][]string{"a": {"y1"}}, next: []string{"y3"}, want: []string{"y3"}},
			"it asks again while another does": {asks: map[string][]string{"a": {"y1"}, "b": {"y2"}}, next: []string{"y3"}, want: []string{"y2", "y3"}},
		} {
			t.Run(name+sdk, func(t *testing.T) {
				t.Parallel()
				h := open(t, nil)
				stream := h.request(t, "POST", "/chat"+sdk, chatBody("s1", "hi"))
				below := playBelow(h, t, test.asks)
				c := &uiClient{}
				c.apply(t, streamOf(t, stream).rest())
				answered := h.request(t, "POST", "/chat"+sdk, c.respond("y1", true).post("s1"))
				if len(test.asks["a"]) == 1 {
					run := h.AwaitRun(t, "default", "a", below["a"])
					run.Show(1, Resumed(), ApprovalResponse("y1", "approve"), Result("y1", `1`))
					run.Commit(ToolMessage(2, "y1", `1`))
					if len(test.next) > 0 {
						playAsk(run, 3, test.next...)
					} else {
						run.Show(3, StepStarted(), Text("Done."), StepCommitted(), Completed())
						run.Complete(AssistantMessage(3, "Done."))
					}
				}
				c.apply(t, streamOf(t, answered).rest())
				if got := c.openAt(); !slices.Equal(got, test.want) || c.reason != "tool-calls" {
					t.Errorf("the client asks for %q after a finish with %q, want %q", got, c.reason, test.want)
				}
				if got := h.storedAnswer(t, "s1").openAt(); !slices.Equal(got, test.want) {
					t.Errorf("after a reload it asks for %q, want %q", got, test.want)
				}
			})
		}
	}
}

// statusOf returns the status of the sub-agent of the call as the client shows it.
func (c *uiClient) statusOf(call string) any {
	for _, p := range c.parts {
		if data, _ := p["data"].(map[string]any); p["type"] == "data-subagent" && p["id"] == call {
			return data["status"]
		}
	}
	return nil
}

func TestAnInterruptedSubAgentIsShownAsThat(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]string{"the sub-agent is interrupted": "a", "the root is interrupted": "s1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			stream := h.chat(t, chatBody("s1", "hi"))
			root := h.AwaitRun(t, "default", "s1", nil)
			child := root.Child("a")
			child.Show(1, Started(), StepStarted(), Text("At work."))
			awaits := &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "awaiting_children"}}}
			begun := &eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{SubagentStart: &eventv1.SubagentStart{ToolCallId: "of-a", SubSessionId: "a", SubAgentType: "other"}}}
			root.Show(1, Started(), StepStarted(), Call("of-a", `{}`), begun, StepCommitted(), awaits)
			root.Suspend([]*statev1.Call{{ToolCallId: "of-a", ToolName: "add", Input: `{}`, Kind: statev1.CallKind_CALL_KIND_SUB_AGENT}}, AssistantMessage(1, "", "of-a"))
			if got := h.request(t, "POST", "/interrupt", fmt.Sprintf(`{"sessionId":%q}`, stopped)); got.StatusCode >= 400 {
				t.Fatalf("interrupt: %d %s", got.StatusCode, text(t, got))
			}
			if stopped == "a" {
				child.Interrupt(AssistantMessage(1, "At work."))
			}
			live := &uiClient{}
			live.apply(t, stream.rest())
			if got := live.statusOf("of-a"); got != "interrupted" {
				t.Errorf("live it is %v", got)
			}
			replayed := &uiClient{}
			replayed.replay(t, h.resume(t, "/chat/s1/stream?fromSequence=0").rest())
			if got := replayed.statusOf("of-a"); got != "interrupted" {
				t.Errorf("replayed it is %v", got)
			}
			if got := h.storedAnswer(t, "s1").statusOf("of-a"); got != "interrupted" {
				t.Errorf("stored it is %v", got)
			}
		})
	}
}

// storedAnswer returns a client with the answer of the session, as a page loads it.
func (h *fixture) storedAnswer(t *testing.T, session string) *uiClient {
	t.Helper()
	var stored struct{ Messages []struct{ Parts []uiPart } }
	if err := json.Unmarshal([]byte(text(t, h.request(t, "GET", "/messages?sessionId="+session, ""))), &stored); err != nil {
		t.Fatal(err)
	}
	return clientWith("", stored.Messages[1].Parts...)
}
