package modeltest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// RunRefusedFiles sends a conversation with many images to a provider that refuses one of them and names it by its place in the request.
// The model must say which file of the conversation that is, for each image and for each of the errors: the members of an error object,
// with %d for the numbers of the message and of its part.
func RunRefusedFiles(t *testing.T, connect func(*http.Client) (model.Model, error), refusals ...string) {
	t.Helper()
	request, images := conversationOfImages()
	for _, refusal := range refusals {
		for _, image := range images {
			var sent string
			m, err := connect(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				sent = string(body)
				message, part := locationOf(body, image.data)
				return &http.Response{
					StatusCode: http.StatusBadRequest, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(`{"error":{` + fmt.Sprintf(refusal, message, part) + `}}`)),
				}, nil
			})})
			if err != nil {
				t.Fatal(err)
			}
			reply := Collect(t, m.Generate(t.Context(), request))
			e, ok := errors.AsType[*model.Error](reply.Err)
			if !ok || e.Refusal == nil {
				t.Fatalf("%s: got the error %v, want a refusal", refusal, reply.Err)
			}
			if e.Refusal.Part != model.RefusedFile || !slices.Equal(e.Refusal.Files, []model.FileRef{image.ref}) {
				t.Errorf("%s: got the error %v with the refusal %+v, want one of the file %+v of\n%s", refusal, reply.Err, e.Refusal,
					image.ref, sent)
			}
		}
	}
}

type sentImage struct {
	ref  model.FileRef
	data string
}

// conversationOfImages has images in neighbouring messages, behind texts of the runtime, calls, a blank message and a file that no
// provider takes, so that their places in a request differ from those in the conversation.
func conversationOfImages() (r model.Request, images []sentImage) {
	r = NewRequest("m")
	r.Messages = nil
	add := func(role agent.Role, parts ...agent.Part) {
		m := agent.Message{ID: fmt.Sprint("m", len(r.Messages)), Role: role, Parts: parts}
		for i, p := range parts {
			if f, ok := p.(agent.File); ok && f.MediaType == "image/png" {
				_, data, _ := strings.Cut(f.URL, ",")
				images = append(images, sentImage{model.FileRef{MessageID: m.ID, Part: i}, data})
			}
		}
		r.Messages = append(r.Messages, m)
	}
	n := 0
	image := func() agent.File {
		n++
		data := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "the image number %d", n))
		return agent.File{MediaType: "image/png", URL: "data:image/png;base64," + data, Filename: fmt.Sprintf("%d.png", n)}
	}
	say := func(text string) agent.Text { return agent.Text{Text: text} }
	call := agent.ToolCall{ID: "call_1", Name: "look", Arguments: json.RawMessage(`{}`)}
	add(agent.RoleContext, say("A summary."))
	add(agent.RoleAssistant, say("I began."))
	add(agent.RoleUser, say("One."), image())
	add(agent.RoleUser, image(), say(""), say("Two."), image())
	add(agent.RoleAssistant, call, agent.ToolCall{ID: "call_2", Name: "look", Arguments: json.RawMessage(`{}`)})
	add(agent.RoleTool, agent.ToolResult{CallID: "call_1", Name: "look", Success: true, Result: json.RawMessage(`"a"`)})
	add(agent.RoleTool, agent.ToolResult{CallID: "call_2", Name: "look", Success: true, Result: json.RawMessage(`"b"`)})
	add(agent.RoleUser, image())
	add(agent.RoleAssistant, say("Let me see."))
	add(agent.RoleContext, say("It is noon."))
	add(agent.RoleUser, say(" "))
	add(agent.RoleUser, agent.File{MediaType: "application/x-unknown", URL: "ftp://example.com/a", Filename: "a"}, say("Three."),
		say("Four."), image())
	add(agent.RoleAssistant)
	add(agent.RoleUser, image(), image(), say("Which is nicest?"))
	return r, images
}

// locationOf finds the numbers of the message and of its part that have these data in the body of a request.
func locationOf(body []byte, data string) (message, part int) {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return -1, -1
	}
	for _, name := range []string{"messages", "contents", "input"} {
		list, _ := object[name].([]any)
		for i, m := range list {
			for _, member := range []string{"content", "parts"} {
				parts, _ := at(m, member).([]any)
				for k, p := range parts {
					if text, err := json.Marshal(p); err == nil && strings.Contains(string(text), data) {
						return i, k
					}
				}
			}
		}
	}
	return -1, -1
}
