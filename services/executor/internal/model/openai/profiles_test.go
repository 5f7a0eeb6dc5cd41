package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

const pixelURL = "data:image/png;base64,iVBORw0KGgo="

// nastyConversation has what servers refuse: roles in a row, texts of the runtime in the middle, a message after results, several calls,
// blank texts, long and foreign ids, files of all kinds, and reasoning of three makers.
func nastyConversation(host string) model.Request {
	data := func(fields string) json.RawMessage {
		return json.RawMessage(`{"chat":{"host":"` + host + `","model":"m"},` + fields + `}`)
	}
	say := func(role agent.Role, parts ...agent.Part) agent.Message {
		return agent.Message{ID: "m", Role: role, Parts: parts}
	}
	call := func(id, name string) agent.ToolCall {
		return agent.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(`{"city":"Oslo"}`)}
	}
	result := func(id string, value string) agent.Message {
		return say(agent.RoleTool, agent.ToolResult{CallID: id, Name: "weather", Success: true, Result: json.RawMessage(value)})
	}
	long := "functions.weather:0/" + strings.Repeat("x", 60)
	temperature := 0.5
	return model.Request{
		Model: "m", System: "You help.", MaxOutputTokens: 512, Temperature: &temperature, Choice: model.ChoiceRequired,
		Tools: []model.Tool{{Name: "weather", Strict: true, InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)}},
		Messages: []agent.Message{
			say(agent.RoleContext, agent.Text{Text: "A summary."}),
			say(agent.RoleAssistant, agent.Text{Text: "I began."}),
			say(agent.RoleUser, agent.Text{Text: "One."}, agent.File{MediaType: "image/png", URL: pixelURL, Filename: "a.png"}),
			say(agent.RoleUser, agent.Text{Text: " "}),
			say(agent.RoleUser, agent.File{MediaType: "application/pdf", URL: "data:application/pdf;base64,JVBERg==", Filename: "b.pdf"}, agent.Text{Text: "Two."}),
			say(agent.RoleAssistant,
				agent.Reasoning{Text: "Think.", ProviderData: data(`"field":"reasoning_content"`)},
				agent.Reasoning{ProviderData: data(`"calls":{"0":{"google":{"thought_signature":"c2ln"}}}`)},
				call(long, "weather"), call("call_2", "weather")),
			result(long, `"Sunny."`), result("call_2", `""`),
			say(agent.RoleUser, agent.Text{Text: "Stop."}),
			say(agent.RoleAssistant, agent.Text{Text: "Stopped."}),
			say(agent.RoleAssistant, agent.Text{Text: "Yes."}),
			say(agent.RoleContext, agent.Text{Text: "A late answer."}),
			say(agent.RoleUser, agent.Text{Text: "Go on."}),
			say(agent.RoleAssistant,
				agent.Reasoning{Text: "Foreign.", ProviderData: json.RawMessage(`{"chat":{"host":"elsewhere.example","model":"m"},"field":"reasoning"}`)},
				agent.Reasoning{Text: "Signed.", ProviderData: json.RawMessage(`{"type":"thinking","signature":"s"}`)},
				agent.Text{Text: "Let me look."}, call("call_3", "wea ther")),
			result("call_3", `{"sky":"blue"}`),
		},
	}
}

const profilesHost = "server.example"

// sentWith returns the body of the request for a conversation with a profile.
func sentWith(t *testing.T, name string, r model.Request) []byte {
	t.Helper()
	var body []byte
	client := &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: req,
			Body: io.NopCloser(strings.NewReader(stream(deltaChoice(`"content":"a"`), finishChoice("stop")))),
		}, nil
	})}
	m, err := openai.New(openai.Config{BaseURL: "http://" + profilesHost + "/v1", Profile: name}, client)
	if err != nil {
		t.Fatal(err)
	}
	if reply := modeltest.Collect(t, m.Generate(t.Context(), r)); reply.Err != nil {
		t.Fatalf("%s: got error %v", name, reply.Err)
	}
	return body
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// profileOf returns a profile by its name.
func profileOf(t *testing.T, name string) profile.Profile {
	t.Helper()
	o, err := profile.ParseOverride(json.RawMessage(`"` + name + `"`))
	if err != nil {
		t.Fatal(err)
	}
	return profile.Find(mustParse(t, "http://"+profilesHost+"/v1"), "m", o)
}

func mustParse(t *testing.T, address string) *url.URL {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestEachProfileSendsWhatItsServerAccepts(t *testing.T) {
	t.Parallel()
	for _, name := range profile.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := sentWith(t, name, nastyConversation(profilesHost))
			for _, mistake := range mistakes(body, profileOf(t, name)) {
				t.Error(mistake)
			}
			modeltest.CompareGolden(t, "testdata/chat/profiles/"+name+".json", body)
		})
	}
}

// Any conversation that the planner can make is one that the server of the profile accepts, and no text of it is lost.
func TestEachProfileSendsAnyConversation(t *testing.T) {
	t.Parallel()
	const conversations = 100
	for _, name := range profile.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := profileOf(t, name)
			for seed := range uint64(conversations) {
				r, texts := randomConversation(rand.New(rand.NewPCG(seed, 1)), profilesHost)
				body := sentWith(t, name, r)
				found := mistakes(body, p)
				for _, text := range texts {
					if !strings.Contains(string(body), text) {
						found = append(found, "the text "+text+" is lost")
					}
				}
				if len(found) > 0 {
					t.Fatalf("seed %d: %v\n%s", seed, found, body)
				}
			}
		})
	}
}

// randomConversation returns a request in which each call has its result, as the planner makes it, and texts that must survive.
func randomConversation(random *rand.Rand, host string) (r model.Request, texts []string) {
	r = nastyConversation(host)
	r.Messages = nil
	one := func(values ...string) string { return values[random.IntN(len(values))] }
	text := func() string {
		if random.IntN(6) == 0 {
			return one("", " ", "\n")
		}
		t := fmt.Sprintf("text-%d.", len(texts))
		texts = append(texts, t)
		return t
	}
	if random.IntN(3) == 0 {
		r.System = one("", " ")
	}
	id := 0
	for range 1 + random.IntN(12) {
		switch random.IntN(6) {
		case 0, 1:
			m := agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: text()}}}
			switch random.IntN(4) {
			case 0:
				m.Parts = append(m.Parts, agent.File{MediaType: "image/png", URL: pixelURL, Filename: "a.png"})
			case 1:
				m.Parts = append(m.Parts, agent.File{MediaType: "text/plain", URL: "data:text/plain,file", Filename: "a.txt"}, agent.Text{Text: text()})
			}
			r.Messages = append(r.Messages, m)
		case 2:
			role := agent.RoleContext
			if random.IntN(2) == 0 {
				role = agent.RoleSystem
			}
			r.Messages = append(r.Messages, agent.Message{Role: role, Parts: []agent.Part{agent.Text{Text: text()}}})
		case 3:
			r.Messages = append(r.Messages, agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: text()}}})
		default:
			m := agent.Message{Role: agent.RoleAssistant}
			if random.IntN(2) == 0 {
				m.Parts = append(m.Parts, agent.Reasoning{Text: "hidden", ProviderData: json.RawMessage(`{"chat":{"host":"` + one(host, "other.example") +
					`","model":"` + one("m", "n") + `"},"field":"` + one("reasoning", "reasoning_content", "content") + `"}`)})
			}
			if random.IntN(2) == 0 {
				m.Parts = append(m.Parts, agent.Text{Text: text()})
			}
			results := agent.Message{Role: agent.RoleTool}
			for range 1 + random.IntN(3) {
				id++
				call := fmt.Sprint(one("call_", "functions.f:", "tool use ", strings.Repeat("y", 50)), id)
				m.Parts = append(m.Parts, agent.ToolCall{ID: call, Name: one("weather", "no such tool"), Arguments: json.RawMessage(`{}`)})
				results.Parts = append(results.Parts, agent.ToolResult{CallID: call, Success: random.IntN(3) > 0, Result: json.RawMessage(one(`""`, `" "`, `{"a":1}`)), Error: "no"})
			}
			r.Messages = append(r.Messages, m, results)
		}
	}
	// The last question may have no file that the profile does not accept: that is an error of its own.
	r.Messages = append(r.Messages, agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: text()}}})
	return r, texts
}

type sentMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		ExtraContent json.RawMessage `json:"extra_content"`
	} `json:"tool_calls"`
	ToolCallID       string          `json:"tool_call_id"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	Details          json.RawMessage `json:"reasoning_details"`
}

var idForms = map[string]*regexp.Regexp{
	profile.IDAny: regexp.MustCompile(`.`), profile.IDWord: regexp.MustCompile(`^[A-Za-z0-9_-]+$`), profile.IDAlphanumeric: regexp.MustCompile(`^[A-Za-z0-9]+$`),
}

// mistakes returns what a server of the profile refuses in a request.
func mistakes(body []byte, p profile.Profile) (found []string) {
	complain := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	var members map[string]json.RawMessage
	var messages []sentMessage
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members["messages"], &messages) != nil {
		return []string{"the body is not JSON"}
	}
	for _, name := range append([]string{profile.LimitTokens, profile.LimitCompletion}, p.Omit...) {
		if _, has := members[name]; has != (name == p.OutputLimit) {
			complain("the member %s is sent: %v", name, has)
		}
	}
	if _, has := members["stream_options"]; has != p.StreamOptions {
		complain("stream_options are sent: %v", has)
	}
	if choice := string(members["tool_choice"]); choice != `"`+p.RequiredChoice+`"` && (choice != "" || p.RequiredChoice != "") {
		complain("the tool choice is %s", choice)
	}
	if !p.Strict && strings.Contains(string(members["tools"]), "strict") {
		complain("a tool is strict")
	}
	var open []string
	for i, m := range messages {
		before := "start"
		if i > 0 {
			before = messages[i-1].Role
		}
		switch {
		case m.Role == "system" && (p.System == profile.SystemDeveloper || p.System == profile.SystemUser || p.System == profile.SystemFirst && i > 0):
			complain("message %d is a system message", i)
		case m.Role == "developer" && p.System != profile.SystemDeveloper:
			complain("message %d is a developer's", i)
		}
		if p.AlternateRoles && m.Role == before && m.Role != "tool" {
			complain("messages %d and %d are both of %s", i-1, i, m.Role)
		}
		if p.AlternateRoles && m.Role == "assistant" && (before == "start" || before == "system") {
			complain("the conversation begins with the assistant")
		}
		if p.AnswerAfterTool && m.Role == "user" && before == "tool" {
			complain("message %d follows a result", i)
		}
		if p.SingleCalls && len(m.ToolCalls) > 1 {
			complain("message %d has %d calls", i, len(m.ToolCalls))
		}
		found = append(found, contentMistakes(i, m, p)...)
		if (m.ReasoningContent != "" || m.Reasoning != "" || m.Details != nil) && (p.Reasoning == profile.ReasoningNever || len(m.ToolCalls) == 0 && p.Reasoning != profile.ReasoningAlways) {
			complain("message %d has reasoning", i)
		}
		if len(m.ToolCalls) > 0 && p.ReasoningFiller != "" && m.ReasoningContent == "" {
			complain("message %d has calls without reasoning", i)
		}
		if m.Role != "tool" && len(open) > 0 {
			complain("message %d comes before the results of %v", i, open)
		}
		for n, call := range m.ToolCalls {
			open = append(open, call.ID)
			if !idForms[p.CallIDs].MatchString(call.ID) || len(call.ID) < p.CallIDMin || len(call.ID) > p.CallIDMax {
				complain("the id %q of message %d", call.ID, i)
			}
			if !idForms[profile.IDWord].MatchString(call.Function.Name) {
				complain("the name %q of message %d", call.Function.Name, i)
			}
			if call.ExtraContent != nil && !p.CallExtra || n == 0 && p.CallExtra && p.CallSignature != "" && call.ExtraContent == nil {
				complain("the extra content %s of message %d", call.ExtraContent, i)
			}
		}
		if m.Role == "tool" {
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				complain("message %d is a result without its call %q", i, m.ToolCallID)
				continue
			}
			open = slices.Delete(open, at, at+1)
		}
	}
	return found
}

func contentMistakes(i int, m sentMessage, p profile.Profile) (found []string) {
	complain := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	var text string
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	switch {
	case m.Content == nil:
		if len(m.ToolCalls) == 0 || p.CallContent != profile.ContentOmitted {
			complain("message %d has no content", i)
		}
	case string(m.Content) == "null":
		if len(m.ToolCalls) == 0 || p.CallContent != profile.ContentNull {
			complain("message %d has null as its content", i)
		}
	case json.Unmarshal(m.Content, &text) == nil:
		isCall := len(m.ToolCalls) > 0 && p.CallContent == profile.ContentEmpty
		if strings.TrimSpace(text) == "" && !p.EmptyText && !isCall {
			complain("message %d is blank", i)
		}
	case json.Unmarshal(m.Content, &parts) == nil:
		for _, part := range parts {
			media := map[string]string{"image_url": profile.MediaImage, "file": profile.MediaFile}[part.Type]
			if part.Type != "text" && !p.Accepts(media) {
				complain("message %d has a part of the type %s", i, part.Type)
			}
		}
	default:
		complain("message %d has the content %s", i, m.Content)
	}
	return found
}
