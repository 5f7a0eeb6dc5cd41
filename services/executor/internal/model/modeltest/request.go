package modeltest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

var update = flag.Bool("update", false, "rewrite the golden files of requests")

const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

// Conversation returns a request with every kind of message: a system prompt, an image, reasoning with provider
// data, a text with two calls, their results in separate messages (the second failed), a context message and a
// second question.
func Conversation(providerData json.RawMessage) model.Request {
	temperature := 0.5
	return model.Request{
		Model:           "some-model",
		System:          "You know the weather <everywhere>.",
		MaxOutputTokens: 512,
		Temperature:     &temperature,
		Tools: []model.Tool{
			{
				Name: "weather", Description: "The weather of a city.",
				InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","maxLength":9007199254740993}},` +
					`"required":["city"],"additionalProperties":false}`),
			},
			{Name: "clock"},
		},
		Messages: []agent.Message{
			{ID: "m1", Role: agent.RoleUser, Parts: []agent.Part{
				agent.Text{Text: "Which of these cities is nicer today? Zürich or this:"},
				agent.File{MediaType: "image/png", URL: pixel, Filename: "city.png"},
			}},
			{ID: "m2", Role: agent.RoleAssistant, Parts: []agent.Part{
				agent.Reasoning{Text: "I need both.", ProviderData: providerData},
				agent.Text{Text: "Let me look."},
				agent.ToolCall{ID: "call_1", Name: "weather", Arguments: json.RawMessage(`{"city":"Zürich"}`)},
				agent.ToolCall{ID: "call_2", Name: "weather", Arguments: json.RawMessage(`{"city":"Atlantis"}`)},
			}},
			{ID: "m3", Role: agent.RoleTool, Parts: []agent.Part{
				agent.ToolResult{
					CallID: "call_1", Name: "weather", Result: json.RawMessage(`{"sky":"blue","degrees":21.5}`), Success: true,
				},
			}},
			{ID: "m4", Role: agent.RoleTool, Parts: []agent.Part{
				agent.ToolResult{CallID: "call_2", Name: "weather", Error: "no such city"},
			}},
			{ID: "m5", Role: agent.RoleContext, Hidden: true, Parts: []agent.Part{agent.Text{Text: "It is noon."}}},
			{ID: "m6", Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: "Zürich."}}},
			{ID: "m7", Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "Sure?"}}},
		},
	}
}

// CompareGolden compares the body of a request with a golden file. The flag -update writes the file.
func CompareGolden(t *testing.T, path string, body []byte) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, body, "", "  "); err != nil {
		t.Fatalf("the body is not JSON: %v\n%s", err, body)
	}
	got.WriteByte('\n')
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%s\nwant, as in %s,\n%s", got.Bytes(), path, want)
	}
}

// invalidToolName is a name that no tool may have, and validToolName its form in requests.
const invalidToolName, validToolName = "multi_tool.use parallel", "multi_tool_use_parallel"

// testUnknownToolName sends a conversation with a call of a nonexistent tool.
func (p Provider) testUnknownToolName(t *testing.T) {
	t.Parallel()
	server := NewServer(t, p.Dir, Text, Encoding{})
	request := NewRequest(Text)
	request.Messages = append(request.Messages,
		agent.Message{ID: "m2", Role: agent.RoleAssistant, Parts: []agent.Part{
			agent.ToolCall{ID: "call_1", Name: invalidToolName, Arguments: json.RawMessage(`{}`)},
		}},
		agent.Message{ID: "m3", Role: agent.RoleTool, Parts: []agent.Part{
			agent.ToolResult{CallID: "call_1", Name: invalidToolName, Error: "there is no such tool"},
		}},
	)
	Collect(t, p.Connect(t, server).Generate(t.Context(), request))
	for _, sent := range server.Requests() {
		if bytes.Contains(sent.Body, []byte(invalidToolName)) || !bytes.Contains(sent.Body, []byte(validToolName)) {
			t.Errorf("got the request %s, want the call of %q renamed to %q", sent.Body, invalidToolName, validToolName)
		}
	}
}

// testUnsupportedFiles sends an unsupported file, and then a conversation with it.
func (p Provider) testUnsupportedFiles(t *testing.T) {
	t.Parallel()
	server := NewServer(t, p.Dir, Text, Encoding{})
	m := p.Connect(t, server)
	request := NewRequest(Text)
	request.Messages = []agent.Message{{ID: "m1", Role: agent.RoleUser, Parts: []agent.Part{
		agent.Text{Text: "Read this."}, agent.File{MediaType: "image/png", URL: "ftp://example.com/a.png", Filename: "drawing.png"},
	}}}
	if reply := Collect(t, m.Generate(t.Context(), request)); reply.Err == nil || len(server.Requests()) != 0 {
		t.Errorf("got error %v and %d requests, want the file to be refused", reply.Err, len(server.Requests()))
	}
	request.Messages = append(request.Messages,
		agent.Message{ID: "m2", Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "Never mind."}}},
		agent.Message{ID: "m3", Role: agent.RoleUser, Hidden: true, Parts: []agent.Part{agent.Text{Text: "Go on."}}},
	)
	reply := Collect(t, m.Generate(t.Context(), request))
	sent := server.Requests()
	if reply.Err != nil || len(sent) != 1 {
		t.Fatalf("got error %v and %d requests, want a reply", reply.Err, len(sent))
	}
	if !bytes.Contains(sent[0].Body, []byte("drawing.png")) || bytes.Contains(sent[0].Body, []byte("ftp:")) {
		t.Errorf("got the request %s, want a note in place of the file", sent[0].Body)
	}
	if _, ok := request.Messages[0].Parts[1].(agent.File); !ok {
		t.Error("the conversation has changed")
	}
}

// RequestOfTool returns a request with a tool, an earlier call of it and its result.
func RequestOfTool(name string) model.Request {
	r := NewRequest("m")
	r.Tools = []model.Tool{{Name: name}}
	r.Messages = append(r.Messages,
		agent.Message{
			ID: "m2", Role: agent.RoleAssistant,
			Parts: []agent.Part{agent.ToolCall{ID: "call_1", Name: name, Arguments: json.RawMessage(`{}`)}},
		},
		agent.Message{
			ID: "m3", Role: agent.RoleTool,
			Parts: []agent.Part{agent.ToolResult{CallID: "call_1", Name: name, Success: true, Result: json.RawMessage(`1`)}},
		},
	)
	return r
}
