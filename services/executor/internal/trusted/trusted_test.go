package trusted_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

func TestAContextIsTheDocumentedJSON(t *testing.T) {
	t.Parallel()
	call := &agent.Call{
		ID: "call_1", Tool: "refund", IdempotencyKey: "key", Tenant: "acme", SessionID: "s-1", ParentSessionID: "s-0", RunID: "r-1",
		AgentType: "support", UserID: "u-17", Tags: []string{"vip"}, Metadata: map[string]string{"plan": "gold"}, Turn: 3, Step: 7,
		Input: json.RawMessage(`{"user":"root","tenant":"other"}`),
	}
	withRequest := trusted.Of(call)
	withRequest.Call.Attempt = 2
	withRequest.Deadline = time.Date(2026, 11, 28, 10, 0, 30, 0, time.UTC)
	withRequest.Traceparent = "00-a-b-01"
	for name, test := range map[string]struct {
		context trusted.Context
		want    string
	}{
		"a call": {trusted.Of(call), `{"tenant":"acme","user":{"id":"u-17"},` +
			`"session":{"id":"s-1","parentId":"s-0","tags":["vip"],"metadata":{"plan":"gold"}},"run":{"id":"r-1","turn":3},"step":7,` +
			`"call":{"id":"call_1","idempotencyKey":"key"}}`},
		"a request": {withRequest, `{"tenant":"acme","user":{"id":"u-17"},` +
			`"session":{"id":"s-1","parentId":"s-0","tags":["vip"],"metadata":{"plan":"gold"}},"run":{"id":"r-1","turn":3},"step":7,` +
			`"call":{"id":"call_1","idempotencyKey":"key","attempt":2},"deadline":"2026-11-28T10:00:30Z","traceparent":"00-a-b-01"}`},
		"nobody": {trusted.OfRun(&agent.RunView{Tenant: "acme", SessionID: "s-1", RunID: "r-1", Turn: 1}), `{"tenant":"acme","user":null,` +
			`"session":{"id":"s-1","parentId":null,"tags":[],"metadata":{}},"run":{"id":"r-1","turn":1},"step":0}`},
		"a hook": {trusted.OfHook(&agent.HookCall{Tenant: "acme", SessionID: "s-1", RunID: "r-1", UserID: "u", Turn: 1, Step: 2}),
			`{"tenant":"acme","user":{"id":"u"},"session":{"id":"s-1","parentId":null,"tags":[],"metadata":{}},"run":{"id":"r-1","turn":1},"step":2}`},
		"a method": {trusted.OfMethod(&agent.MethodCall{Tenant: "acme", SessionID: "s-1", UserID: "u", Tags: []string{"vip"}}),
			`{"tenant":"acme","user":{"id":"u"},"session":{"id":"s-1","parentId":null,"tags":["vip"],"metadata":{}},"step":0}`},
	} {
		got, err := json.Marshal(test.context)
		if err != nil || string(got) != test.want {
			t.Errorf("%s is %s, %v, want\n%s", name, got, err, test.want)
		}
	}
}
