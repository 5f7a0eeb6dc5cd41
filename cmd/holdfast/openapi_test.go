package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// shopAPI describes the shop. SERVER stands for its address.
const shopAPI = `{"openapi": "3.1.0", "servers": [{"url": "SERVER/v1"}], "paths": {
	"/orders": {"get": {"operationId": "listOrders", "parameters": [
		{"name": "status", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
		{"name": "customer", "in": "query", "required": true, "schema": {"type": "string"}}]}},
	"/orders/{id}/refund": {"post": {"operationId": "refundOrder", "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
		"requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Refund"}}}}}},
	"/photos": {"post": {"operationId": "addPhoto", "requestBody": {"required": true, "content": {"image/png": {}}}}}},
	"components": {"schemas": {"Refund": {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}}}}`

const shopAgents = `
models:
  scripted:
    script: |
      models:
        clerk:
          chunk: whole
          rules:
            - when: {toolResult: refundOrder}
              reply: 'Done: {{.LastResult}}'
            - when: {toolResult: listOrders}
              reply: [{call: {name: refundOrder, arguments: '{"id": "o/1", "body": {"amount": 5}}'}}]
            - reply: [{call: {name: listOrders, arguments: '{"status": ["open", "new"]}'}}]
agents:
  - name: clerk
    model: scripted/clerk
    tools:
      - openapi: SERVER/openapi.json
        operations: [listOrders, refundOrder]
        auth: {bearer: "${SHOP_KEY}"}
        parameters: {customer: "{{session.id}}"}
`

func TestAnAgentCallsTheOperationsOfAnOpenAPIDocument(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var requests []string
	var address string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi.json" {
			fmt.Fprint(w, strings.ReplaceAll(shopAPI, "SERVER", address))
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		requests = append(requests, fmt.Sprintf("%s %s %s %s", r.Method, r.RequestURI, r.Header.Get("Authorization"), body))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"orders": 1}`)
	}))
	t.Cleanup(server.Close)
	address = server.URL
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(shopAgents, "SERVER", address)), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"SHOP_KEY=s3", "HOLDFAST_EXECUTOR_TOOL_HOSTS=" + strings.TrimPrefix(address, "http://")}
	r := startWith(t, environ, "--data", t.TempDir(), "--agents", file)
	got := r.do(t, http.MethodPost, "/chat", `{"id":"s1","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"refund"}]}]}`)
	if !strings.Contains(got, `Done: `) {
		t.Errorf("got %s", got)
	}
	mu.Lock()
	sent := strings.Join(requests, "\n")
	mu.Unlock()
	if want := "GET /v1/orders?customer=s1&status=open&status=new Bearer s3 \nPOST /v1/orders/o%2F1/refund Bearer s3 amount=5"; sent != want {
		t.Errorf("the shop received\n%s, want\n%s", sent, want)
	}

	var out bytes.Buffer
	if err := run(t.Context(), []string{"agents", "check", file}, environ, &out, io.Discard); err != nil {
		t.Errorf("agents check: %v, %s", err, out.String())
	}
	for _, want := range []string{"no mistakes; agents: clerk\n", "listOrders ", "GET ", "/orders ", "read-only", "refundOrder", "POST", "/orders/{id}/refund"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("agents check prints\n%s, want %q in it", out.String(), want)
		}
	}
	out.Reset()
	whole := filepath.Join(t.TempDir(), "all.yaml")
	text := strings.ReplaceAll(strings.ReplaceAll(shopAgents, "SERVER", address), "        operations: [listOrders, refundOrder]\n", "")
	if err := os.WriteFile(whole, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), []string{"agents", "check", whole, "--json"}, environ, &out, io.Discard)
	for _, want := range []string{`"valid": false`, "openapi.json:7:", "its body is image/png", `"method": "POST"`, `"readOnly": true`} {
		if err == nil || !strings.Contains(strings.ReplaceAll(out.String(), `":`, `": `), want) && !strings.Contains(out.String(), want) {
			t.Errorf("agents check = %v, %s, want %q in it", err, out.String(), want)
		}
	}
}
