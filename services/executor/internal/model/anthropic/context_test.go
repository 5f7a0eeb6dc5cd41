package anthropic_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

// redirected sends all requests to a server of the test, whatever host they name.
type redirected struct {
	to     *url.URL
	client *http.Client
}

func (r redirected) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := request.Clone(request.Context())
	sent.URL.Scheme, sent.URL.Host = r.to.Scheme, r.to.Host
	return r.client.Transport.RoundTrip(sent)
}

// sentContext returns the body of the request with rows of context, for a model behind a base URL.
func sentContext(t *testing.T, base, modelName string) []byte {
	t.Helper()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	m, err := anthropic.New(anthropic.Config{BaseURL: base, APIKey: modeltest.Key}, &http.Client{Transport: redirected{to, server.Client}})
	if err != nil {
		t.Fatal(err)
	}
	if reply := modeltest.Collect(t, m.Generate(t.Context(), modeltest.ContextConversation(modelName))); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	return server.Requests()[0].Body
}

func TestRowsOfContextAreSystemMessagesForModelsThatAcceptThem(t *testing.T) {
	t.Parallel()
	body := sentContext(t, anthropic.DefaultBaseURL, "claude-opus-4-8")
	modeltest.CompareGolden(t, "testdata/context-system.json", body)
	var sent struct {
		Messages []struct{ Role string }
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	for i, m := range sent.Messages { // the API's rules
		if m.Role != "system" {
			continue
		}
		if i == 0 || sent.Messages[i-1].Role != "user" {
			t.Errorf("the system message %d does not follow a turn of the user", i)
		}
		if i+1 < len(sent.Messages) && sent.Messages[i+1].Role != "assistant" {
			t.Errorf("the system message %d is followed by the %s", i, sent.Messages[i+1].Role)
		}
	}
}

func TestRowsOfContextAreMarkedMessagesOfTheUserForOtherModels(t *testing.T) {
	t.Parallel()
	body := sentContext(t, anthropic.DefaultBaseURL, "claude-sonnet-4-5")
	modeltest.CompareGolden(t, "testdata/context-user.json", body)
	for _, c := range []struct{ base, model string }{
		{"https://api.example.com/anthropic", "claude-opus-4-8"}, // compatible servers refuse the role
		{anthropic.DefaultBaseURL, "claude-opus-4-80"},
		{anthropic.DefaultBaseURL, "claude-opus-4-7"},
	} {
		var sent struct {
			Messages []struct{ Role string }
		}
		if err := json.Unmarshal(sentContext(t, c.base, c.model), &sent); err != nil {
			t.Fatal(err)
		}
		for _, m := range sent.Messages {
			if m.Role == "system" {
				t.Errorf("%s of %s received a system message", c.model, c.base)
			}
		}
	}
}
