package openai_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

// strictServer refuses requests by their body, with a status and a text, and answers the others.
type strictServer struct {
	refuses func(body string) (status int, text string)
	answer  string // in place of a text

	mu     sync.Mutex
	bodies []string
}

func (s *strictServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, string(body))
	s.mu.Unlock()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r}
	answer := stream(deltaChoice(`"content":"a"`), finishChoice("stop"))
	if strings.HasSuffix(r.URL.Path, "/responses") {
		answer = event("response.output_text.delta", `"output_index":0,"delta":"a"`) + responseEnd("completed", "")
	}
	if s.answer != "" {
		answer = s.answer
	}
	if status, text := s.refuses(string(body)); status != 0 {
		res.StatusCode, answer = status, text
		res.Header.Set("Content-Type", "application/json")
	}
	res.Body = io.NopCloser(strings.NewReader(answer))
	return res, nil
}

func connectStrict(t *testing.T, s *strictServer, c openai.Config) *openai.Model {
	t.Helper()
	m, err := openai.New(c, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestARefusedRequestIsSentOnceMoreInAnotherForm(t *testing.T) {
	t.Parallel()
	const noTemperature = `{"error":{"message":"Unsupported value: 'temperature' does not support 0.5 with this model.","param":"temperature"}}`
	for _, api := range []string{openai.APIChat, openai.APIResponses} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			s := &strictServer{refuses: func(body string) (int, string) {
				if strings.Contains(body, `"temperature"`) {
					return http.StatusBadRequest, noTemperature
				}
				return 0, ""
			}}
			m := connectStrict(t, s, openai.Config{API: api})
			temperature := 0.5
			r := modeltest.NewRequest("m")
			r.Temperature = &temperature
			for range 3 {
				if reply := modeltest.Collect(t, m.Generate(t.Context(), r)); reply.Err != nil || reply.Text != "a" {
					t.Fatalf("got %+v", reply)
				}
			}
			// The first call pays for the lesson, the others keep it.
			if len(s.bodies) != 4 || strings.Contains(s.bodies[1]+s.bodies[2]+s.bodies[3], "temperature") {
				t.Errorf("got the requests %q", s.bodies)
			}
			// Another model of the server may be different.
			r.Model = "other"
			modeltest.Collect(t, m.Generate(t.Context(), r))
			if !strings.Contains(s.bodies[4], "temperature") {
				t.Errorf("got the request %s for another model, want the temperature", s.bodies[4])
			}
		})
	}
}

func TestATemplateThatRefusesAConversationIsObeyed(t *testing.T) {
	t.Parallel()
	s := &strictServer{refuses: func(body string) (int, string) {
		if strings.Contains(body, `"role":"system"`) {
			return http.StatusInternalServerError, `{"error":{"code":500,"message":"Jinja Exception: System role not supported","type":"server_error"}}`
		}
		return 0, ""
	}}
	r := modeltest.NewRequest("m")
	r.System = "You help."
	reply := modeltest.Collect(t, connectStrict(t, s, openai.Config{}).Generate(t.Context(), r))
	if reply.Err != nil || len(s.bodies) != 2 || !strings.Contains(s.bodies[1], "You help.") {
		t.Errorf("got %+v after %q", reply, s.bodies)
	}
}

// A server that refuses everything is asked a few times, never with the same body.
func TestAServerThatRefusesEverythingIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	const words = "max_tokens, temperature, stream_options, tool_choice, strict are unsupported; reasoning_content must be passed back; " +
		"extra_content is unknown; roles must alternate; system role not supported; length of 9; response_format is not supported"
	s := &strictServer{refuses: func(string) (int, string) { return http.StatusBadRequest, words }}
	m := connectStrict(t, s, openai.Config{})
	reply := modeltest.Collect(t, m.Generate(t.Context(), nastyConversation("api.openai.com")))
	expect(t, reply.Err, model.CodeUnsupported, false)
	seen := map[string]bool{}
	for _, body := range s.bodies {
		if seen[body] {
			t.Fatalf("the same body was sent twice: %s", body)
		}
		seen[body] = true
	}
	const most = 17
	if len(s.bodies) > most {
		t.Errorf("got %d requests, want at most %d", len(s.bodies), most)
	}
}

func TestConcurrentCallsLearnTogether(t *testing.T) {
	t.Parallel()
	s := &strictServer{refuses: func(body string) (int, string) {
		if strings.Contains(body, `"stream_options"`) {
			return http.StatusUnprocessableEntity, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`
		}
		return 0, ""
	}}
	m := connectStrict(t, s, openai.Config{BaseURL: "http://127.0.0.1:9/v1"})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if reply := modeltest.Collect(t, m.Generate(t.Context(), modeltest.NewRequest("m"))); reply.Err != nil {
				t.Errorf("got error %v", reply.Err)
			}
		})
	}
	wg.Wait()
}

// After a change of the model, nothing of the former one but its texts is sent.
func TestProviderDataGoesOnlyWhereItCameFrom(t *testing.T) {
	t.Parallel()
	chat := func(host, name, fields string) json.RawMessage {
		return json.RawMessage(`{"chat":{"host":"` + host + `","model":"` + name + `"},` + fields + `}`)
	}
	const calls, field, details = `"calls":{"0":{"google":{"thought_signature":"c2ln"}}}`, `"field":"reasoning_content"`, `"details":[{"type":"reasoning.encrypted","data":"c2ln"}]`
	for name, test := range map[string]struct {
		api  string
		data json.RawMessage
		want string // in the request; empty for neither reasoning nor signature
	}{
		"the same model's extra content":     {openai.APIChat, chat(profilesHost, "m", calls), "c2ln"},
		"another model's extra content":      {openai.APIChat, chat(profilesHost, "n", calls), ""},
		"another server's extra content":     {openai.APIChat, chat("other.example", "m", calls), ""},
		"the same model's details":           {openai.APIChat, chat(profilesHost, "m", details), "c2ln"},
		"another model's details":            {openai.APIChat, chat(profilesHost, "n", details), ""},
		"the same server's reasoning":        {openai.APIChat, chat(profilesHost, "n", field), "hidden"},
		"another server's reasoning":         {openai.APIChat, chat("other.example", "m", field), ""},
		"Anthropic's signature":              {openai.APIChat, json.RawMessage(`{"type":"thinking","signature":"c2ln"}`), ""},
		"an encrypted item":                  {openai.APIResponses, json.RawMessage(`{"responses":{"host":"` + profilesHost + `","model":"n"},"item":{"type":"reasoning","encrypted_content":"c2ln"}}`), "c2ln"},
		"another server's encrypted item":    {openai.APIResponses, json.RawMessage(`{"responses":{"host":"other.example","model":"m"},"item":{"type":"reasoning","encrypted_content":"c2ln"}}`), ""},
		"an item that older versions stored": {openai.APIResponses, json.RawMessage(`{"type":"reasoning","encrypted_content":"c2ln"}`), "c2ln"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &strictServer{refuses: func(string) (int, string) { return 0, "" }}
			m := connectStrict(t, s, openai.Config{API: test.api, BaseURL: "http://" + profilesHost + "/v1"})
			r := modeltest.NewRequest("m")
			r.Messages = append(r.Messages,
				message(agent.RoleAssistant, agent.Reasoning{Text: "hidden", ProviderData: test.data}, agent.Text{Text: "shown"}, agent.ToolCall{ID: "c", Name: "clock", Arguments: json.RawMessage(`{}`)}),
				resultMessage(agent.ToolResult{Success: true, Result: json.RawMessage(`1`)}))
			if reply := modeltest.Collect(t, m.Generate(t.Context(), r)); reply.Err != nil {
				t.Fatal(reply.Err)
			}
			body := s.bodies[0]
			if !strings.Contains(body, "shown") {
				t.Errorf("the text is lost: %s", body)
			}
			if has := strings.Contains(body, "c2ln") || strings.Contains(body, "hidden"); has != (test.want != "") || !strings.Contains(body, test.want) {
				t.Errorf("got %s, want %q", body, test.want)
			}
		})
	}
}

func TestALessonIsLoggedOnceWithItsFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &strictServer{refuses: func(body string) (int, string) {
		if strings.Contains(body, `"max_tokens"`) {
			return http.StatusBadRequest, `{"error":{"message":"Unsupported parameter: 'max_tokens'. The key is ` + modeltest.Key + `."}}`
		}
		return 0, ""
	}}
	m := connectStrict(t, s, openai.Config{BaseURL: "http://server.example/v1", APIKey: modeltest.Key, Log: slog.New(slog.NewJSONHandler(&out, nil))})
	r := modeltest.NewRequest("some-model")
	r.MaxOutputTokens = 5
	for range 3 {
		if reply := modeltest.Collect(t, m.Generate(t.Context(), r)); reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	var line struct{ Server, Model, Profile, Refusal string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("got the log %s (%v), want one line", out.Bytes(), err)
	}
	if line.Server != "server.example" || line.Model != "some-model" || !strings.Contains(line.Refusal, "max_tokens") || strings.Contains(out.String(), modeltest.Key) {
		t.Errorf("got %s", out.Bytes())
	}
	// The fields are a profile that begins where the lesson ended.
	taught := &strictServer{refuses: s.refuses}
	if reply := modeltest.Collect(t, connectStrict(t, taught, openai.Config{Profile: line.Profile}).Generate(t.Context(), r)); reply.Err != nil || len(taught.bodies) != 1 {
		t.Errorf("the profile %s: got error %v and %d requests, want 1", line.Profile, reply.Err, len(taught.bodies))
	}
}
