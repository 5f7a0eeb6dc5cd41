package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/outbound"
)

const weather = `
tools:
  - name: forecast
    description: Tells the weather.
    inputSchema: {type: object, properties: {city: {type: string}, days: {type: integer}}, required: [city]}
    http:
      method: POST
      url: %s/v1/{city}
      query: {days: "{days}"}
      headers: {X-Key: "${WEATHER_KEY}"}
      body: {where: "{city}", unit: C}
      success: [2xx]
      maxBytes: 1000
    retry: safe
    timeout: 5s
agents:
  - {name: a, model: mine/x, tools: [forecast]}
  - {name: b, model: mine/x, tools: [{use: forecast, retry: never, approval: {when: [{field: city, equals: Rome}]}}]}
`

func TestAnHTTPToolCallsAnAllowedHost(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("X-Key"), " ", string(body)))
	}))
	t.Cleanup(server.Close)
	text := fmt.Sprintf(weather, server.URL)
	known := testKnown()
	known.HTTP = httptool.Peers{
		Policy: outbound.Policy{Hosts: []string{"127.0.0.1"}},
		Lookup: func(name string) (string, error) { return "secret", nil },
	}
	set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, known)
	if err != nil {
		t.Fatal(err)
	}
	tool, gated := set.Agents[0].Tools[0], set.Agents[1].Tools[0]
	rome := &agent.Call{Input: []byte(`{"city":"Rome"}`)}
	if tool.Retry != agent.RetrySafe || gated.Retry != agent.RetryNever || tool.NeedsApproval(t.Context(), rome) || !gated.NeedsApproval(t.Context(), rome) {
		t.Errorf("tools = %+v and %+v, want what each agent says", tool, gated)
	}
	for _, tool := range []agent.Tool{tool, gated} {
		got, err := tool.Execute(t.Context(), &agent.Call{ID: "1", IdempotencyKey: "k", Input: []byte(`{"city":"São Paulo","days":2}`)})
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := json.Marshal(got)
		for _, want := range []string{"POST /v1/S%C3%A3o%20Paulo?days=2 secret", `São Paulo`} {
			if !strings.Contains(string(answer), want) {
				t.Errorf("the answer is %s, want %q in it", answer, want)
			}
		}
	}

	_, err = Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown())
	wantMistakes(t, err, `a.yaml:8: tools: tool "forecast": http: url: the host `, `a.yaml:10: tools: tool "forecast": http: headers.X-Key: the environment variable WEATHER_KEY is not available`)
}

func TestADeclaredToolIsEitherAClientToolOrAnHTTPTool(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"{name: t}", "{name: t, client: true, http: {url: 'https://a.example'}}"} {
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte("agents:\n  - name: a\n    model: mine/x\n    tools:\n      - " + tool + "\n")}, testKnown())
		wantMistakes(t, err, `a.yaml:5: agent "a": tool "t": a declared tool has either client: true`)
	}
}
