package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

// actsOf says for each route that changes something, and each RPC, which calls to the state service it makes. The test of the
// state service says what the audit log has of each.
var actsOf = map[string]string{
	"POST /chat": "StartRun, SubmitCalls", "POST /start": "StartRun", "POST /resume": "StartRun", "POST /retry": "StartRun",
	"POST /abort": "RequestStop", "POST /interrupt": "RequestStop", "POST /chat/{id}/abort": "RequestStop", "POST /chat/{id}/interrupt": "RequestStop",
	"POST /submit-tool-result": "SubmitCall", "POST /chat/{id}/submit-tool-result": "SubmitCall",
	"POST /branch": "Branch", "POST /rewind": "Rewind", "POST /tokens": "none: token.minted of the gateway",
	"POST /files":          "none: a file is nobody's until a message refers to it",
	"PATCH /sessions/{id}": "UpdateSession", "DELETE /sessions/{id}": "DeleteSession", "DELETE /users/{id}": "Erase", "DELETE /tenant": "Erase",
	"GET /audit/export": "ListEvents, and audit.exported of the gateway",
	"GET /ws":           "StartRun, SubmitCall, RequestStop", "GET /chat/ws": "as POST /chat", "GET /agents/{agent}/{name}": "as POST /chat, SaveState, GrantMethod",

	"Start": "StartRun", "Resume": "StartRun", "Interrupt": "RequestStop", "Abort": "RequestStop", "SubmitToolResult": "SubmitCall", "Branch": "Branch", "Rewind": "Rewind",
	"UpdateSession": "UpdateSession", "DeleteSession": "DeleteSession", "AppendMessages": "AppendMessages", "TruncateMessages": "TruncateMessages",
	"EraseUser": "Erase", "EraseTenant": "Erase", "CreateToken": "none: token.minted of the gateway",
}

func TestEachRouteAndRPCThatChangesSomethingIsAnActOfTheAuditLog(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, route := range open(t, nil).service.Routes() {
		name := route.Method + " " + route.Pattern
		known[name] = true
		if route.Method != http.MethodGet && route.Method != http.MethodHead && actsOf[name] == "" {
			t.Errorf("%s changes something: add to actsOf the calls that it makes, or why it needs no entry", name)
		}
	}
	service := agentv1.File_holdfast_agent_v1_agent_proto.Services().ByName("AgentService")
	if service == nil {
		t.Fatal(agentv1connect.AgentServiceName)
	}
	for i := range service.Methods().Len() {
		name := string(service.Methods().Get(i).Name())
		known[name] = true
		reads := strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || name == "Stream" || name == "WaitRun" || name == "CanResume" || name == "QueryUsage"
		if !reads && actsOf[name] == "" {
			t.Errorf("%s changes something: add to actsOf the calls that it makes, or why it needs no entry", name)
		}
	}
	for name := range actsOf {
		if !known[name] {
			t.Errorf("actsOf has %s, which does not exist", name)
		}
	}
}
