package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
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

func TestARequestOfAFileSaysWhoseItIsAndIsSigned(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	known, err := webhook.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		err := webhook.Verifier{Secrets: []webhook.Secret{known}}.Verify(r.Header, body, time.Now())
		fmt.Fprintf(w, "%s %s %s %v", r.RequestURI, r.Header.Get("X-User"), body, err)
	}))
	t.Cleanup(server.Close)
	peers := testKnown()
	peers.HTTP = httptool.Peers{
		Policy: outbound.Policy{Hosts: []string{"127.0.0.1"}}, Lookup: func(string) (string, error) { return secret, nil },
	}
	file := "tools:\n  - name: t\n    http:\n      method: POST\n      url: " + server.URL + "/{{tenant}}\n      headers: {X-User: '{{user.id}}'}\n" +
		"      body: {plan: '{{session.metadata.plan}}'}\n      sign: SIGN\nagents: [{name: a, model: mine/x, tools: [t]}]\n"
	call := &agent.Call{Tenant: "acme", UserID: "ann", Metadata: map[string]string{"plan": "gold"}, Input: []byte(`{}`)}
	for _, sign := range []string{"{secret: '${S}'}", "{secret: ['${S}', '${OTHER}']}"} {
		set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(strings.Replace(file, "SIGN", sign, 1))}, peers)
		if err != nil {
			t.Fatal(err)
		}
		got, err := set.Agents[0].Tools[0].Execute(t.Context(), call)
		if want := `/acme ann {"plan":"gold"} <nil>`; err != nil || got != want {
			t.Errorf("sign: %s: the server says %v, %v, want %s", sign, got, err, want)
		}
	}
	for change, want := range map[string]string{
		"{{user.id}} {{user.name}}": `a.yaml:6:7: tools: tool "t": http: headers.X-User: {{user.name}} is not one of {{user.id}}`,
		"SIGN {}":                   `a.yaml:8:`,
		"SIGN {secret: x}":          `a.yaml:8:`,
	} {
		from, to, _ := strings.Cut(change, " ")
		changed := strings.Replace(strings.Replace(file, from, to, 1), "SIGN", "{secret: '${S}'}", 1)
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(changed)}, peers)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a mistake with %s", change, err, want)
		}
	}
}
