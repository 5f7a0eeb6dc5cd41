package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// RunModelChange takes a reply with a secret that is valid for its maker, and continues the conversation with the same model, with another
// model, and with another server. Only those that may read the secret get it back: the same model, and other models of the server if
// sharedByServer. None gets the data of another API. connect returns a model at the base URL; reply is the event stream.
func RunModelChange(
	t *testing.T, connect func(base string, client *http.Client) (model.Model, error), reply, secret string, sharedByServer bool,
) {
	t.Helper()
	const server, other = "http://one.example", "http://two.example"
	ask := func(base string, r model.Request) (sent string, got Reply) {
		m, err := connect(base, &http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			sent = string(body)
			return &http.Response{
				StatusCode: http.StatusOK, Request: req, Header: http.Header{"Content-Type": {"text/event-stream"}},
				Body: io.NopCloser(strings.NewReader(reply)),
			}, err
		})})
		if err != nil {
			t.Fatal(err)
		}
		if got = Collect(t, m.Generate(t.Context(), r)); got.Err != nil {
			t.Fatal(got.Err)
		}
		return sent, got
	}
	request := NewRequest("first")
	_, got := ask(server, request)
	first := agent.Message{ID: "m2", Role: agent.RoleAssistant}
	for _, data := range foreignData {
		first.Parts = append(first.Parts, agent.Reasoning{Text: "foreign thoughts", ProviderData: json.RawMessage(data)})
	}
	for i, data := range got.ProviderData {
		first.Parts = append(first.Parts, agent.Reasoning{Text: got.Reasoning[i], ProviderData: data})
	}
	results := agent.Message{ID: "m3", Role: agent.RoleTool}
	for _, c := range got.Calls {
		first.Parts = append(first.Parts, agent.ToolCall{ID: c.ID, Name: c.Name, Arguments: json.RawMessage(c.Arguments)})
		results.Parts = append(results.Parts,
			agent.ToolResult{CallID: c.ID, Name: c.Name, Success: true, Result: json.RawMessage(`"blue"`)})
	}
	if len(got.Calls) == 0 || len(got.ProviderData) == 0 {
		t.Fatalf("got the reply %+v, want one with provider data and a call", got)
	}
	request.Messages = append(request.Messages, first, results)
	for _, next := range []struct {
		base, model string
		may         bool
	}{{server, "first", true}, {server, "second", sharedByServer}, {other, "first", false}, {other, "second", false}} {
		request.Model = next.model
		sent, _ := ask(next.base, request)
		if strings.Contains(sent, secret) != next.may {
			t.Errorf("%s at %s: got the request %s, with the secret: want %v", next.model, next.base, sent, next.may)
		}
		if strings.Contains(sent, "foreign") {
			t.Errorf("%s at %s: the request has the data of another maker: %s", next.model, next.base, sent)
		}
		if !strings.Contains(sent, "blue") || !strings.Contains(sent, got.Calls[0].Name) {
			t.Errorf("%s at %s: the conversation is incomplete: %s", next.model, next.base, sent)
		}
	}
}

// foreignData is the provider data of each API, made elsewhere.
var foreignData = []string{
	`{"type":"thinking","signature":"foreign","origin":{"host":"elsewhere.example","model":"first"}}`,
	`{"type":"redacted_thinking","data":"foreign","origin":{"host":"elsewhere.example","model":"first"}}`,
	`{"signature":"foreign","of":"call","origin":{"host":"elsewhere.example","model":"first"}}`,
	`{"signature":"foreign","of":"thought","origin":{"host":"elsewhere.example","model":"first"}}`,
	`{"responses":{"host":"elsewhere.example","model":"first"},"item":{"type":"reasoning","id":"rs_foreign",` +
		`"summary":[],"encrypted_content":"foreign"}}`,
	`{"chat":{"host":"elsewhere.example","model":"first"},"field":"reasoning_content"}`,
	`{"chat":{"host":"elsewhere.example","model":"first"},"calls":{"0":{"foreign":true}},` +
		`"details":[{"type":"reasoning.encrypted","data":"foreign"}]}`,
	`["foreign"]`, `"foreign"`,
}
