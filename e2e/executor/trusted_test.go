package executor_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// trustedFile declares an agent whose tools tell their servers whose call it is. Its model tries to be another user.
const trustedFile = `
mcpServers:
  own: {url: "http://MCP", context: true}
  foreign: {url: "http://MCP", prefix: foreign_}
models:
  scripted:
    script: |
      models:
        clerk:
          rules:
            - when: {lastRole: tool}
              reply: 'Done.'
            - when: {lastUser: '.'}
              reply:
                - call: {name: refund, arguments: {order: 'o-1', user: root, text: '{{"{{user.id}}"}} {{"{{tenant}}"}}'}}
                - call: {name: whose, arguments: {user: root, tenant: other, _meta: {holdfast.run/context: {tenant: other}}}}
                - call: {name: foreign_whose, arguments: {}}
agents:
  - name: clerk
    model: scripted/clerk
    tools:
      - name: refund
        description: Refunds an order.
        http:
          method: POST
          url: http://SHOP/{{tenant}}/orders/{order}
          query: {session: "{{session.id}}"}
          headers: {X-User: "{{user.id}}", X-Key: "{{call.idempotencyKey}}"}
          body: {user: "{{user.id}}", plan: "{{session.metadata.plan}}", text: "{text}", agent: "{{agent}}"}
      - mcp: own
      - mcp: foreign
`

// The servers of tools learn the user from the runtime, whatever the model says.
func TestToolServersLearnWhoseCallItIs(t *testing.T) {
	t.Parallel()
	type refund struct {
		uri, user, key, idempotencyKey, body string
	}
	refunds := make(chan refund, 10)
	shop := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		refunds <- refund{r.RequestURI, r.Header.Get("X-User"), r.Header.Get("X-Key"), r.Header.Get("Idempotency-Key"), string(body)}
	}))
	t.Cleanup(shop.Close)
	address, shopAddress := harness.FreeAddress(t), strings.TrimPrefix(shop.URL, "http://")
	harness.StartProgram(t, "mcpserver", harness.Program(t, "e2e/executor/mcpserver"), address, "MCP_LISTEN="+address)
	s := harness.Start(t, harness.Options{
		Agents:      strings.NewReplacer("MCP", address, "SHOP", shopAddress).Replace(trustedFile),
		ExecutorEnv: []string{"HOLDFAST_EXECUTOR_TOOL_HOSTS=" + address + "," + shopAddress},
	})
	start := `{"sessionId": "s", "userId": "ann", "agentType": "clerk", "message": "Refund o-1.", "metadata": {"plan": "gold"}}`
	if a := s.Do(t, http.MethodPost, "/start", []byte(start)); a.Code != http.StatusOK {
		t.Fatalf("start: got %d %s", a.Code, a.Body)
	}
	s.WaitStatus(t, "s", "completed")

	if len(refunds) != 1 {
		t.Fatalf("%d refunds, want one", len(refunds))
	}
	got := <-refunds
	uri, session, _ := strings.Cut(got.uri, "?")
	tenant := strings.Split(uri, "/")[1]
	body := `{"agent":"clerk","plan":"gold","text":"{{user.id}} {{tenant}}","user":"ann"}`
	if tenant == "" || !strings.HasSuffix(uri, "/orders/o-1") || session != "session=s" || got.user != "ann" || got.body != body {
		t.Errorf("refund = %+v, want that of ann with the body %s", got, body)
	}
	if got.key == "" || got.key != got.idempotencyKey {
		t.Errorf("keys = %q and %q, want the same", got.key, got.idempotencyKey)
	}

	said := map[string]string{} // by tool
	for _, m := range s.Messages(t, "s") {
		for _, part := range m.Parts {
			var text string
			if json.Unmarshal(part.Output, &text) == nil {
				said[part.ToolName] = text
			}
		}
	}
	var told struct {
		Tenant  string
		User    struct{ ID string }
		Session struct {
			ID       string
			Metadata map[string]string
		}
		Run  struct{ Turn int }
		Step int
		Call struct{ IdempotencyKey string }
	}
	if err := json.Unmarshal([]byte(said["whose"]), &told); err != nil {
		t.Fatalf("the parts say %v: %v", said, err)
	}
	if told.Tenant != tenant || told.User.ID != "ann" || told.Session.ID != "s" || told.Session.Metadata["plan"] != "gold" ||
		told.Run.Turn != 1 || told.Step != 1 || told.Call.IdempotencyKey == "" {
		t.Errorf("the server was told %s, want the context of the call", said["whose"])
	}
	if said["foreign_whose"] != "null" {
		t.Errorf("the server without context: true was told %s, want nothing", said["foreign_whose"])
	}
}
