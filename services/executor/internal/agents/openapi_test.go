package agents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/endpoint"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

const shop = `openapi: 3.0.3
servers: [{url: 'https://shop.example'}]
paths:
  /orders:
    get: {operationId: listOrders, summary: Lists orders.}
  /orders/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    get: {operationId: getOrder}
    delete: {operationId: cancelOrder}
  /orders/{id}/refund:
    post:
      operationId: refundOrder
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
      requestBody:
        content: {application/json: {schema: {type: object, properties: {amount: {type: number}}}}}
  /orders/{id}/invoice:
    get:
      operationId: invoice
`

// shopKnown is what files with the shop may use.
func shopKnown() Known {
	known := testKnown()
	known.HTTP = httptool.Peers{
		Policy: outbound.Policy{Hosts: []string{"shop.example", "127.0.0.1"}}, Lookup: func(string) (string, error) { return "secret", nil },
	}
	known.Fetch = func(_ context.Context, url string, _ int) ([]byte, error) {
		if url != "https://shop.example/openapi.yaml" {
			return nil, errors.New("there is nothing")
		}
		return []byte(shop), nil
	}
	return known
}

// loadShop loads a file of agents beside shop.yaml.
func loadShop(t *testing.T, text string, known Known) (*Set, error) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{"shop.yaml": shop, "a.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, versions, err := Load(t.Context(), []string{filepath.Join(dir, "a.yaml")}, nil, known)
	if versions.files[filepath.Join(dir, "shop.yaml")] == "" && strings.Contains(text, ": shop.yaml") {
		t.Error("a change of shop.yaml would not be noticed")
	}
	if f, ok := fault.From(err); ok {
		err = fault.New(f.Kind, f.Reason, "%s", strings.ReplaceAll(f.Detail, dir+"/", ""))
	}
	return set, err
}

func toolNames(a agent.Agent) string {
	var names []string
	for _, t := range a.Tools {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

func TestAnAgentHasTheOperationsOfADocument(t *testing.T) {
	t.Parallel()
	set, err := loadShop(t, `
tools:
  - {openapi: shop.yaml, operations: [refundOrder], prefix: shop_, retry: safe, timeout: 5s}
agents:
  - name: a
    model: mine/x
    tools:
      - {openapi: shop.yaml, operations: [list*, getOrder]}
      - {openapi: shop.yaml, operations: [cancelOrder], approval: always, auth: {bearer: "${SHOP_KEY}"}}
      - {use: shop_refundOrder, approval: {when: [{field: body.amount, greaterThan: 100}]}}
  - {name: b, model: mine/x, tools: [shop_refundOrder, {openapi: "https://shop.example/openapi.yaml", operations: [getOrder], readOnly: false}]}
`, shopKnown())
	if err != nil {
		t.Fatal(err)
	}
	a, b := set.Agents[0], set.Agents[1]
	if got := toolNames(a.Agent) + ", " + toolNames(b.Agent); got != "listOrders getOrder cancelOrder shop_refundOrder, shop_refundOrder getOrder" {
		t.Errorf("the tools are %s", got)
	}
	list, cancel, refund := a.Tools[0], a.Tools[2], a.Tools[3]
	if !list.ReadOnly || list.Approval || list.Description != "Lists orders." || cancel.ReadOnly || !cancel.Approval || refund.Retry != agent.RetrySafe {
		t.Errorf("the tools are %+v, %+v and %+v", list, cancel, refund)
	}
	if b.Tools[0].ApproveWhen != nil || b.Tools[1].ReadOnly {
		t.Errorf("the tools of b are %+v", b.Tools)
	}
	for amount, want := range map[int]bool{50: false, 200: true} {
		call := &agent.Call{Input: fmt.Appendf(nil, `{"id":"o","body":{"amount":%d}}`, amount)}
		if got := refund.NeedsApproval(t.Context(), call); got != want {
			t.Errorf("a refund of %d needs approval: %v, want %v", amount, got, want)
		}
	}
	if len(set.Operations) != 5 || set.Operations[4].Path != "/orders/{id}" || set.Operations[4].ReadOnly {
		t.Errorf("operations = %+v", set.Operations)
	}
}

func TestABadOperationTakesDownOnlyItself(t *testing.T) {
	t.Parallel()
	set, err := loadShop(t, "agents:\n  - {name: a, model: mine/x, tools: [{openapi: shop.yaml}, calculate]}\n", shopKnown())
	wantMistakes(t, err, `shop.yaml:18: agent "a": document "shop.yaml": the operation GET /orders/{id}/invoice cannot be a tool: its path has {id}`)
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("mistakes = %v, want one", err)
	}
	if len(set.Agents) != 1 || toolNames(set.Agents[0].Agent) != "listOrders getOrder cancelOrder refundOrder calculate" {
		t.Errorf("agents = %+v, want one without the bad operation", set.Agents)
	}
	if len(set.Problems) != 1 || set.Problems[0].Part != (Part{Kind: ToolPart, Name: "invoice", Agent: "a"}) || !set.Incomplete["a"] {
		t.Errorf("problems = %+v", set.Problems)
	}
}

func TestMistakesInAnImportAreReported(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"openapi: none.yaml":                                       `a.yaml:4: agent "a": document "none.yaml": openapi: it cannot be read: there is no file "none.yaml"`,
		"openapi: 'https://shop.example/x'":                        `a.yaml:4: agent "a": document "https://shop.example/x": openapi: it cannot be fetched: there is nothing`,
		"openapi: 3":                                               `a.yaml:4: agent "a": tools: openapi must be a path, a URL or an OpenAPI document`,
		"openapi: a.yaml":                                          `a.yaml:1: it is no OpenAPI document`,
		"openapi: {openapi: 3.1.0}":                                `a.yaml:4: it has no paths`,
		"openapi: shop.yaml, operations: [getOrders]":              `a.yaml:4: agent "a": document "shop.yaml": operations: no operation is "getOrders"`,
		"openapi: shop.yaml, operations: [getOrder], baseURL: x":   `a.yaml:4: agent "a": document "shop.yaml": url: it must begin with a fixed https://host`,
		"openapi: shop.yaml, operations: [getOrder], auth: {x: y}": `a.yaml:4: agent "a": document "shop.yaml": auth: there is no field "x"`,
		"openapi: shop.yaml, operations: [getOrder], baseURL: 'https://evil.example'":                `the host "evil.example" is not on the list of allowed hosts`,
		"openapi: shop.yaml, operations: [getOrder], approval: {when: [{field: amount, equals: 1}]}": `approval`,
	} {
		set, err := loadShop(t, "agents:\n  - name: a\n    model: mine/x\n    tools: [{"+entry+"}]\n", shopKnown())
		wantMistakes(t, err, want)
		if len(set.Agents) != 1 || len(set.Agents[0].Tools) != 0 {
			t.Errorf("%s: the agent has the tools %s, want none", entry, toolNames(set.Agents[0].Agent))
		}
	}
	_, err := loadShop(t, "tools: [{openapi: shop.yaml, operations: [getOrder]}, {openapi: shop.yaml, operations: [getOrder], retry: safe}]\n"+
		"agents: [{name: a, model: mine/x, tools: [getOrder]}]\n", shopKnown())
	wantMistakes(t, err, `a.yaml:1: the tool "getOrder" is declared differently`)
}

func TestADescriptionImportsByURLOrInline(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.URL.Path) }))
	t.Cleanup(server.Close)
	known := shopKnown()
	client, err := endpoint.New(endpoint.Config{URL: "http://localhost/1", Policy: outbound.Policy{Hosts: []string{"localhost"}}}, endpoint.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	inline := `{"openapi":"3.1.0","servers":[{"url":"` + server.URL + `"}],"paths":{"/carts":{"get":{"operationId":"listCarts"}}}}`
	described := func(tools string) (*Set, error) {
		d := Described{Client: client, Data: []byte(`{"endpoint":1,"agents":[{"name":"a","model":"mine/x","tools":[` + tools + `]}]}`)}
		set, _, err := Load(t.Context(), nil, []Described{d}, known)
		return set, err
	}
	set, err := described(`{"openapi":"https://shop.example/openapi.yaml","operations":["getOrder"]},{"openapi":` + inline + `}`)
	if err != nil || toolNames(set.Agents[0].Agent) != "getOrder listCarts" {
		t.Fatalf("agents = %+v, %v", set, err)
	}
	i := slices.IndexFunc(set.Agents[0].Tools, func(t agent.Tool) bool { return t.Name == "listCarts" })
	got, err := set.Agents[0].Tools[i].Execute(t.Context(), &agent.Call{Input: []byte(`{}`)})
	if err != nil || got != "GET /carts" {
		t.Errorf("the server says %v, %v", got, err)
	}
	_, err = described(`{"openapi":"/etc/passwd"}`)
	wantMistakes(t, err, `agent "a": document "/etc/passwd": openapi: the description of an endpoint cannot name files; give a URL or the document itself`)
	_, err = described(`{"openapi":"https://shop.example/openapi.yaml","operations":["getOrder"],"headers":{"X":"${SHOP_KEY}"}}`)
	wantMistakes(t, err, "the environment variable SHOP_KEY is not for the description of an endpoint")
}

func TestWhatASetImportsIsBounded(t *testing.T) {
	t.Parallel()
	paths := make([]string, 200)
	for i := range paths {
		paths[i] = fmt.Sprintf(`"/p%d":{"get":{"operationId":"o%d"}}`, i, i)
	}
	known := shopKnown()
	known.Fetch = func(context.Context, string, int) ([]byte, error) {
		return []byte(`{"openapi":"3.1.0","servers":[{"url":"https://shop.example"}],"paths":{` + strings.Join(paths, ",") + "}}"), nil
	}
	agentsWith := func(n int, url string) string {
		text := "agents:\n"
		for i := range n {
			text += fmt.Sprintf("  - {name: a%d, model: mine/x, tools: [{openapi: '%s'}]}\n", i, strings.ReplaceAll(url, "N", fmt.Sprint(i)))
		}
		return text
	}
	set, err := loadShop(t, agentsWith(26, "https://shop.example/api"), known)
	wantMistakes(t, err, `a.yaml:27: agent "a25": document "https://shop.example/api": more than 5000 operations are imported`)
	if n := len(set.Agents[24].Tools); n != 200 {
		t.Errorf("the last agent within the limit has %d tools, want 200", n)
	}
	paths = paths[:1]
	set, err = loadShop(t, agentsWith(51, "https://shop.example/N"), known)
	wantMistakes(t, err, `a.yaml:52: agent "a50": document "https://shop.example/50": openapi: it cannot be fetched: there are more than 50 documents`)
	if n := len(set.Agents[49].Tools); n != 1 {
		t.Errorf("the last agent within the limit has %d tools, want 1", n)
	}
}
